/* arena.c: a list of chunks, each twice the last, up to 1 MiB steps. malloc per object was the alternative: a graph of a
 * thousand nodes would then need a thousand frees, and an error path that remembers them. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used; /* bytes behind this header, and how many of them are handed out */
};

enum { FIRST_CHUNK = 16 * 1024, LARGEST_STEP = 1024 * 1024, ALIGNMENT = 16 };
#define HEADER ((sizeof(struct arena_chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

static struct arena_chunk *chunk_create(size_t size)
{
    if (size > SIZE_MAX - HEADER)
        return NULL;
    struct arena_chunk *c = malloc(HEADER + size);
    if (c)
        *c = (struct arena_chunk){.size = size};
    return c;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - ALIGNMENT)
        return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < size) {
        size_t step = c ? c->size * 2 : FIRST_CHUNK;
        if (step > LARGEST_STEP)
            step = LARGEST_STEP;
        if (step < size)
            step = size;
        c = chunk_create(step);
        if (!c)
            return NULL;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = (char *)c + HEADER + c->used;
    c->used += size;
    a->used += size;
    memset(p, 0, size);
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *keep = NULL;
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        if (!keep || c->size > keep->size) {
            free(keep);
            keep = c;
        } else {
            free(c);
        }
    }
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
    a->chunks = keep;
    a->used = 0;
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}
