/* merger.c: greedy pairwise merging in O(n log n), as byte-pair encoding (Sennrich, Haddow and Birch 2016) and SentencePiece's
 * score-driven variant both need it.
 *
 * The symbols are a linked list in an array; a heap holds (rank, position) of every pair that may join. A pair that has changed
 * since it was pushed is recognised when it is popped: its symbol now has another rank, or none. If by chance it has the same
 * rank again, the entry is as good as the new one. So the heap needs no deletion, and one 64-bit compare orders it: rank first,
 * then position, which is the leftmost-first rule. Looking for the best pair by a scan each time is quadratic: 50 KB of one
 * letter, which one word can be, would take minutes. */
#include "model/merger.h"

#include <stdbool.h>
#include <stdlib.h>

void merger_free(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct merger){0};
}

int merger_reset(struct merger *m, size_t n, struct hone_error *e)
{
    m->n = m->heap_n = 0;
    if (n <= m->cap)
        return 0;
    size_t cap = n < 64 ? 64 : n + n / 2;
    free(m->symbols);
    free(m->heap);
    *m = (struct merger){0};
    /* At most n - 1 pairs at first, and two new ones for each of at most n - 1 joins. */
    m->symbols = malloc(cap * sizeof *m->symbols);
    m->heap = malloc(3 * cap * sizeof *m->heap);
    if (!m->symbols || !m->heap) {
        merger_free(m);
        return err_set(e, HONE_ERESOURCE, "out of memory for a word of %zu symbols", n);
    }
    m->cap = cap;
    m->heap_cap = 3 * cap;
    return 0;
}

static void heap_push(struct merger *m, uint64_t key)
{
    size_t i = m->heap_n++;
    while (i > 0 && m->heap[(i - 1) / 2] > key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = key;
}

static uint64_t heap_pop(struct merger *m)
{
    uint64_t top = m->heap[0], last = m->heap[--m->heap_n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < m->heap_n) {
        if (child + 1 < m->heap_n && m->heap[child + 1] < m->heap[child])
            child++;
        if (m->heap[child] >= last)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

static void consider(struct merger *m, int32_t i, merger_join_fn *join, const void *context)
{
    struct symbol *left = &m->symbols[i];
    left->rank = MERGER_NEVER;
    if (left->next < 0)
        return;
    join(context, left, &m->symbols[left->next]);
    if (left->rank != MERGER_NEVER)
        heap_push(m, (uint64_t)left->rank << 32 | (uint32_t)i);
}

void merger_run(struct merger *m, merger_join_fn *join, const void *context)
{
    for (size_t i = 0; i < m->n; i++)
        m->symbols[i].next = i + 1 < m->n ? (int32_t)i + 1 : -1;
    for (size_t i = 0; i < m->n; i++)
        consider(m, (int32_t)i, join, context);
    while (m->heap_n) {
        uint64_t key = heap_pop(m);
        int32_t i = (int32_t)(uint32_t)key;
        struct symbol *left = &m->symbols[i];
        if (left->rank != key >> 32)
            continue;
        struct symbol *right = &m->symbols[left->next];
        left->id = left->joined;
        left->size += right->size;
        left->next = right->next;
        right->rank = MERGER_NEVER;
        if (left->next >= 0)
            m->symbols[left->next].prev = i;
        consider(m, i, join, context);
        if (left->prev >= 0)
            consider(m, left->prev, join, context);
    }
}
