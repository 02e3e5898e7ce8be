/* test_cuda_unpack.cc: the unpacking that CUDA kernels do, as plain C++ on the host: groups of the s32 layouts
 * (backends/cuda/s32.cuh) and values in file order (unpack.cuh) of every format, on random bytes, against the formats' own
 * unpack. What needs a device is `hone check`'s. */
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <math.h>
#include <stdlib.h>

#define _Static_assert static_assert
#define restrict __restrict__
extern "C" {
#include "base/rng.h"
#include "formats/blocks.h"
#include "formats/layouts.h"
#include "formats/s32.h"
#include "tests/test.h"
}
#include "backends/cuda/unpack.cuh"

static uint8_t *random_bytes(size_t n, struct rng *r)
{
    uint8_t *p = (uint8_t *)malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(rng_u64(r) >> 32);
    return p;
}

/* The same bits, or both not a number. */
static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)) || (a == 0 && b == 0);
}

template <class F> static void check_s32(const struct layout *l, struct rng *r)
{
    const struct format *f = format_get(F::format);
    const int64_t k = 3 * (f->block == 32 ? 96 : 256), rows = 7;
    size_t row_bytes = format_row_bytes(f, k);
    uint8_t *src = random_bytes(row_bytes * (size_t)rows, r), *packed = (uint8_t *)malloc(l->bytes(k, rows)),
            of_block[S32_STREAMS];
    float *expected = (float *)malloc((size_t)k * sizeof *expected), got[32];
    assert_true(l->format == F::format && F::block == f->block && packed && expected);
    l->pack(src, packed, k, rows, 0, rows);
    struct s32_matrix m;
    for (int i = 0; i < S32_STREAMS; i++)
        of_block[i] = (uint8_t)F::bytes[i];
    assert_true(s32_stream(of_block, k / f->block * rows, S32_STREAMS) == l->bytes(k, rows));
    for (int i = 0; i < S32_STREAMS; i++)
        m.stream[i] = packed + s32_stream(of_block, k / f->block * rows, i);
    for (int64_t row = 0; row < rows; row++) {
        f->unpack(src + (size_t)row * row_bytes, expected, k);
        for (int64_t g = 0; g < k / 32; g++) {
            uint32_t u = (uint32_t)(row * (k / 32) + g);
            s32_values<F>(F::load(m, u), u, got);
            for (int i = 0; i < 32; i++)
                if (!same(got[i], expected[32 * g + i]))
                    fail_msg("%s: row %d, value %d is %g, not %g", l->name, (int)row, (int)(32 * g + i), (double)got[i],
                             (double)expected[32 * g + i]);
        }
    }
    free(src);
    free(packed);
    free(expected);
}

static void test_s32(void **state)
{
    (void)state;
    struct rng r = rng_seed(21);
    for (int round = 0; round < 20; round++) {
#define X(ID, id) check_s32<s32_##id>(&layout_##id##_s32, &r);
        S32_FORMATS(X)
#undef X
    }
}

/* All bytes at every place of a nibble table, and the ends of each byte range of the scales. */
static void test_codes(void **state)
{
    (void)state;
    for (uint32_t low = 0; low < 16; low++)
        for (uint32_t high = 0; high < 16; high++) {
            uint32_t byte = low | high << 4, c[8], all = byte * 0x01010101u;
            words4 q = {all, all, all, all};
            codes_of_nibbles(q, c);
            assert_int_equal(c[0], low * 0x01010101u);
            assert_int_equal(c[7], high * 0x01010101u);
            const uint32_t table[4] = {0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu};
            codes_of_table(q, table, c);
            assert_int_equal(c[1], low * 0x01010101u);
            assert_int_equal(c[6], high * 0x01010101u);
        }
}

static void test_file_order(void **state)
{
    (void)state;
    struct rng r = rng_seed(22);
    for (int id = 0; id < N_FORMATS; id++) {
        const struct format *f = format_get((enum format_id)id);
        const int64_t n = 512;
        if (!f->unpack)
            continue;
        for (int round = 0; round < 20; round++) {
            uint8_t *src = random_bytes(format_row_bytes(f, n), &r);
            float *expected = (float *)malloc((size_t)n * sizeof *expected);
            unpack_row row = unpack_row_of((enum format_id)id, (size_t)f->bytes);
            assert_non_null(expected);
            f->unpack(src, expected, n);
            for (int64_t i = 0; i < n; i++)
                if (!same(unpack_at(row, src, i), expected[i]))
                    fail_msg("%s: value %d is %g, not %g", f->name, (int)i, (double)unpack_at(row, src, i),
                             (double)expected[i]);
            free(src);
            free(expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s32),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_file_order),
    };
    return cmocka_run_group_tests_name("cuda_unpack", tests, NULL, NULL);
}
