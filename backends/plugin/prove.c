/* prove.c: a layout moves bits and changes none. Before one is used, matrices of several shapes are packed, in parts as the
 * engine does it and out of order, and must come back bit by bit (rule 5). The bytes are random and not numbers, so that a
 * layout that computes shows; a second matrix of numbers proves that unpack_row reads what the format means. Guards around
 * everything find what is written outside. Shapes that the layout refuses are passed over, but all of them may not be. */
#include "backends/plugin/plugin.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 4096, GUARD_BYTE = 0xa5 };

/* Memory between guards; the first byte aligned to 64. */
static unsigned char *guarded_alloc(size_t size)
{
    unsigned char *p = aligned_alloc(64, (size + 2 * GUARD + 63) / 64 * 64);
    if (!p)
        return NULL;
    memset(p, GUARD_BYTE, size + 2 * GUARD);
    return p + GUARD;
}

static void guarded_free(unsigned char *p)
{
    if (p)
        free(p - GUARD);
}

static bool guards_whole(const unsigned char *p, size_t size)
{
    for (size_t i = 0; i < GUARD; i++)
        if (p[-1 - (ptrdiff_t)i] != GUARD_BYTE || p[size + i] != GUARD_BYTE)
            return false;
    return true;
}

struct proof {
    const struct layout *l;
    int64_t k, rows;
    size_t row_bytes, file_bytes, packed_bytes;
    unsigned char *file, *packed, *row;
    float *values, *expected;
};

#define REFUSE(p, e, text, ...)                                                                                                \
    err_set((e), HONE_EINPUT, "layout %s, matrix [%lld, %lld]: " text, (p)->l->name, (long long)(p)->k,                        \
            (long long)(p)->rows __VA_OPT__(, ) __VA_ARGS__)

/* Ranges from the last to the first, each of one to three grains. */
static void pack_in_parts(const struct proof *p)
{
    int64_t grain = p->l->grain, units = (p->rows + grain - 1) / grain;
    for (int64_t end = units, n = 1; end > 0; n = n % 3 + 1) {
        int64_t begin = end > n ? end - n : 0, last = end * grain < p->rows ? end * grain : p->rows;
        p->l->pack(p->file, p->packed, p->k, p->rows, begin * grain, last - begin * grain);
        end = begin;
    }
}

static int prove_bits(const struct proof *p, struct hone_error *e)
{
    probe_stage("layout %s: pack was being tried on [%lld, %lld]", p->l->name, (long long)p->k, (long long)p->rows);
    pack_in_parts(p);
    if (!guards_whole(p->packed, p->packed_bytes))
        return REFUSE(p, e, "pack writes outside of the %zu bytes that `bytes` gives", p->packed_bytes);
    probe_stage("layout %s: restore_row was being tried on [%lld, %lld]", p->l->name, (long long)p->k, (long long)p->rows);
    for (int64_t row = 0; row < p->rows; row++) {
        p->l->restore_row(p->packed, p->row, p->k, p->rows, row);
        if (!guards_whole(p->row, p->row_bytes))
            return REFUSE(p, e, "restore_row writes beyond the %zu bytes of row %lld", p->row_bytes, (long long)row);
        const unsigned char *was = p->file + (size_t)row * p->row_bytes;
        for (size_t i = 0; i < p->row_bytes; i++)
            if (p->row[i] != was[i])
                return REFUSE(p, e, "what was packed does not come back: byte %zu of row %lld was 0x%02x and is 0x%02x", i,
                              (long long)row, was[i], p->row[i]);
    }
    return 0;
}

static int prove_values(const struct proof *p, struct hone_error *e)
{
    pack_in_parts(p);
    probe_stage("layout %s: unpack_row was being tried on [%lld, %lld]", p->l->name, (long long)p->k, (long long)p->rows);
    for (int64_t row = 0; row < p->rows; row++) {
        p->l->unpack_row(p->packed, p->values, p->k, p->rows, row);
        format_get(p->l->format)->unpack(p->file + (size_t)row * p->row_bytes, p->expected, p->k);
        if (!guards_whole((unsigned char *)p->values, (size_t)p->k * sizeof(float)))
            return REFUSE(p, e, "unpack_row writes beyond the values of row %lld", (long long)row);
        for (int64_t i = 0; i < p->k; i++)
            if (memcmp(&p->values[i], &p->expected[i], sizeof(float)) != 0)
                return REFUSE(p, e, "unpack_row gives %.9g for value %lld of row %lld, which is %.9g", (double)p->values[i],
                              (long long)i, (long long)row, (double)p->expected[i]);
    }
    return 0;
}

/* The file's bytes: random ones, or numbers where the format can be written. */
static void fill(const struct proof *p, bool numbers, struct rng *rng)
{
    const struct format *f = format_get(p->l->format);
    for (size_t i = 0; i < p->file_bytes; i++)
        p->file[i] = (unsigned char)rng_u64(rng);
    for (int64_t row = 0; row < p->rows && numbers && f->pack; row++) {
        for (int64_t i = 0; i < p->k; i++)
            p->values[i] = (float)rng_normal(rng);
        f->pack(p->values, p->file + (size_t)row * p->row_bytes, p->k);
    }
}

static int prove_shape(struct proof *p, struct rng *rng, struct hone_error *e)
{
    const struct format *f = format_get(p->l->format);
    p->row_bytes = format_row_bytes(f, p->k);
    p->file_bytes = p->row_bytes * (size_t)p->rows;
    probe_stage("layout %s: bytes was being asked", p->l->name);
    p->packed_bytes = p->l->bytes(p->k, p->rows);
    if (p->packed_bytes > 2 * p->file_bytes + (1 << 20))
        return REFUSE(p, e, "it wants %zu bytes for a matrix of %zu", p->packed_bytes, p->file_bytes);
    p->file = guarded_alloc(p->file_bytes);
    p->packed = guarded_alloc(p->packed_bytes);
    p->row = guarded_alloc(p->row_bytes);
    p->values = (float *)(void *)guarded_alloc((size_t)p->k * sizeof(float));
    p->expected = (float *)(void *)guarded_alloc((size_t)p->k * sizeof(float));
    int rc = 0;
    if (!p->file || !p->packed || !p->row || !p->values || !p->expected) {
        rc = err_set(e, HONE_ERESOURCE, "no memory to prove layout %s", p->l->name);
    } else {
        fill(p, false, rng);
        rc = prove_bits(p, e);
        if (!rc && f->pack) { /* without a pack there may be NaNs among the values, which have many forms */
            fill(p, true, rng);
            rc = prove_values(p, e);
        }
    }
    guarded_free(p->file);
    guarded_free(p->packed);
    guarded_free(p->row);
    guarded_free((unsigned char *)p->values);
    guarded_free((unsigned char *)p->expected);
    return rc;
}

int layout_prove(const struct layout *l, struct hone_error *e)
{
    struct rng rng = rng_seed(20250101);
    int block = format_get(l->format)->block, proven = 0, rc = 0;
    int64_t grain = l->grain, lengths[] = {1, 3, 256, 512, 1536, 2048},
            rows[] = {1, 2, grain, grain + 1, 3 * grain - 1, 4 * grain, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !rc; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows && !rc; j++) {
            /* The first two lengths count blocks, the others values. */
            struct proof p = {
                .l = l, .k = i < 2 ? lengths[i] * block : (lengths[i] + block - 1) / block * block, .rows = rows[j]};
            if (p.k * p.rows > 1 << 20)
                continue;
            probe_stage("layout %s: refuses was being asked", l->name);
            if (l->refuses && l->refuses(p.k, p.rows))
                continue;
            proven++;
            rc = prove_shape(&p, &rng, e);
        }
    if (!rc && !proven)
        rc = err_set(e, HONE_EINPUT, "layout %s: it refuses every shape that was tried", l->name);
    return rc;
}
