/* gguf_index.c: finds keys and tensors by name.
 *
 * Open addressing with linear probing, half full at most, slots of (position, 32 bits of the hash). It also is how names that
 * occur twice are found. A hostile file can hold names that all fall into one slot and make insertion quadratic; among honest
 * names a probe of 100 slots does not happen (expected longest run at half load: ln n / 0.19, 61 for 131072 names), so one of
 * 512 is an error. Sorting the names instead needs no such limit but breaks up file order or needs a second array, and each
 * lookup then costs eleven string compares instead of one. */
#include "model/gguf_index.h"

#include "base/hash.h"

#include <string.h>

enum { LONGEST_PROBE = 512 };

struct slot {
    uint32_t record; /* position + 1; 0: free */
    uint32_t tag;    /* upper half of the hash */
};
struct gguf_index {
    uint64_t mask;
    struct slot slots[];
};

static const struct gguf_string *name_of(const void *records, size_t stride, int64_t i)
{
    return (const void *)((const char *)records + (size_t)i * stride);
}

/* The slot that holds the name whose hash is h, or the free one where it would go; -1 after too long a probe. */
static int64_t probe(const struct gguf_index *ix, const void *records, size_t stride, const char *name, size_t size, uint64_t h)
{
    for (uint64_t i = 0; i < LONGEST_PROBE; i++) {
        uint64_t at = (h + i) & ix->mask;
        if (!ix->slots[at].record)
            return (int64_t)at;
        const struct gguf_string *other = name_of(records, stride, ix->slots[at].record - 1);
        if (ix->slots[at].tag == (uint32_t)(h >> 32) && other->size == size && !memcmp(other->data, name, size))
            return (int64_t)at;
    }
    return -1;
}

int gguf_index_create(struct gguf_index **out, struct arena *a, const void *records, size_t stride, int64_t n, int64_t *twin,
                      struct hone_error *e)
{
    INVARIANT(n >= 0 && n < INT32_MAX / 4);
    uint64_t slots = 8;
    while (slots < (uint64_t)n * 2)
        slots *= 2;
    struct gguf_index *ix = arena_alloc(a, sizeof *ix + slots * sizeof(struct slot));
    if (!ix)
        return err_set(e, HONE_ERESOURCE, "out of memory for an index of %lld names", (long long)n);
    ix->mask = slots - 1;
    for (int64_t i = 0; i < n; i++) {
        const struct gguf_string *name = name_of(records, stride, i);
        uint64_t h = hash64(name->data, name->size);
        int64_t at = probe(ix, records, stride, name->data, name->size, h);
        if (at < 0 || ix->slots[at].record) {
            *twin = at < 0 ? -1 : i;
            return HONE_EINPUT;
        }
        ix->slots[at] = (struct slot){.record = (uint32_t)i + 1, .tag = (uint32_t)(h >> 32)};
    }
    *out = ix;
    return 0;
}

int64_t gguf_index_find(const struct gguf_index *ix, const void *records, size_t stride, const char *name, size_t size)
{
    if (!ix)
        return -1;
    int64_t at = probe(ix, records, stride, name, size, hash64(name, size));
    return at < 0 ? -1 : (int64_t)ix->slots[at].record - 1;
}
