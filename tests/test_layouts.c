/* test_layouts.c: every packed layout of layouts.def on random bytes: packing in parts and restoring gives the file's bytes
 * back, unpack_row gives what the format's unpack gives, padding is zero, nothing is written outside. And the rule of the A8
 * activation, which no file holds and so no other implementation has. */
#include "base/half.h"
#include "base/rng.h"
#include "formats/blocks.h"
#include "formats/layouts.h"

#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct layout *const layouts[] = {
#define LAYOUT(name) &layout_##name,
#include "formats/layouts.def"
#undef LAYOUT
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts, GUARD = 64 };

static void *random_bytes(size_t n, struct rng *r)
{
    uint8_t *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(rng_u64(r) >> 32);
    return p;
}

static void check_matrix(const struct layout *l, int64_t k, int64_t rows, struct rng *r)
{
    const struct format *f = format_get(l->format);
    size_t row_bytes = format_row_bytes(f, k), size = l->bytes(k, rows);
    uint8_t *src = random_bytes(row_bytes * (size_t)rows, r), *packed = malloc(size + GUARD), *row = malloc(row_bytes);
    float *got = malloc((size_t)k * sizeof *got), *expected = malloc((size_t)k * sizeof *expected);
    assert_true(packed && row && got && expected && size >= row_bytes * (size_t)rows);
    memset(packed, 0xa5, size + GUARD);
    /* The parts in reverse, as threads might come. */
    int64_t part = 2 * l->grain;
    for (int64_t first = (rows - 1) / part * part; first >= 0; first -= part)
        l->pack(src, packed, k, rows, first, rows - first < part ? rows - first : part);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(packed[size + (size_t)i], 0xa5);
    for (int64_t i = 0; i < rows; i++) {
        l->restore_row(packed, row, k, rows, i);
        if (memcmp(row, src + (size_t)i * row_bytes, row_bytes) != 0)
            fail_msg("%s [%d, %d]: row %d is not restored", l->name, (int)k, (int)rows, (int)i);
        l->unpack_row(packed, got, k, rows, i);
        f->unpack(src + (size_t)i * row_bytes, expected, k);
        if (memcmp(got, expected, (size_t)k * sizeof *got) != 0)
            fail_msg("%s [%d, %d]: row %d unpacks to other values", l->name, (int)k, (int)rows, (int)i);
    }
    free(src);
    free(packed);
    free(row);
    free(got);
    free(expected);
}

static void test_layouts(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 15, 16, 17, 32, 33, 79};
    struct rng r = rng_seed(11);
    for (int i = 0; i < N_LAYOUTS; i++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int blocks = 1; blocks <= 5; blocks += 2)
                check_matrix(layouts[i], blocks * format_get(layouts[i]->format)->block, counts[c], &r);
}

/* Rows that fill up the last group are zero bytes: a kernel may compute with them. */
static void test_padding(void **state)
{
    (void)state;
    struct rng r = rng_seed(12);
    for (int i = 0; i < N_LAYOUTS; i++) {
        const struct layout *l = layouts[i];
        const struct format *f = format_get(l->format);
        int64_t k = f->block * 2, padded = l->grain;
        uint8_t *src = random_bytes(format_row_bytes(f, k), &r), *packed = malloc(l->bytes(k, 1)), row[1024];
        assert_non_null(packed);
        memset(packed, 0xa5, l->bytes(k, 1));
        l->pack(src, packed, k, 1, 0, 1);
        for (int64_t j = 1; j < padded && l->bytes(k, 1) == l->bytes(k, padded); j++) {
            l->restore_row(packed, row, k, padded, j);
            for (size_t b = 0; b < format_row_bytes(f, k); b++)
                assert_int_equal(row[b], 0);
        }
        free(src);
        free(packed);
    }
}

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        const struct layout *l = layouts[i];
        int block = format_get(l->format)->block;
        for (int j = 0; j < i; j++)
            assert_string_not_equal(l->name, layouts[j]->name);
        assert_null(l->refuses(block, 1));
        assert_non_null(l->refuses(0, 1));
        assert_non_null(l->refuses(block, 0));
        if (block > 1)
            assert_non_null(l->refuses(block + 1, 16));
        assert_true(l->grain >= 1);
    }
}

/* One block by the words of a8.c, one value at a time. */
static void check_a8(const float *x)
{
    struct block_a8 b;
    float y[32];
    double absmax = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        finite = finite && isfinite(x[i]);
        absmax = fmax(absmax, fabs((double)x[i]));
    }
    format_get(FORMAT_A8)->pack(x, &b, 32);
    format_get(FORMAT_A8)->unpack(&b, y, 32);
    float d = (float)absmax / 127;
    if (!finite)
        assert_true(isnan(b.d) && b.sum[0] == 0 && b.sum[1] == 0);
    else if (d < 0x1p-100f)
        assert_true(b.d == 0);
    else
        assert_true(b.d == fminf(d, 0x1p103f));
    int sum[2] = {0};
    for (int i = 0; i < 32; i++) {
        double q = finite && b.d > 0 ? nearbyint((double)(x[i] * (1 / b.d))) : 0;
        assert_int_equal(b.qs[i], (int)fmax(-127, fmin(127, q)));
        assert_true(finite ? y[i] == b.d * (float)b.qs[i] : isnan(y[i]));
        if (finite && d >= 0x1p-100f && d < 0x1p103f)
            assert_true(fabs((double)x[i] - (double)y[i]) <= absmax / 253);
        sum[i / 16] += b.qs[i];
    }
    assert_true(sum[0] == b.sum[0] && sum[1] == b.sum[1]);
}

static void test_a8(void **state)
{
    (void)state;
    struct rng r = rng_seed(13);
    static const float scales[] = {1, 1e-3f, 1e4f, 1e-38f, 1e-30f, 1e30f, 3e38f, 0};
    for (int round = 0; round < 4000; round++) {
        float x[32];
        for (int i = 0; i < 32; i++)
            x[i] = (float)(2 * rng_uniform(&r) - 1) * scales[round % 8];
        if (round % 5 == 1) /* ties: multiples of half a step */
            for (int i = 0; i < 32; i++)
                x[i] = i ? 0.5f * (float)((int)rng_below(&r, 509) - 254) : 127;
        if (round % 5 == 2)
            x[rng_below(&r, 32)] = round % 2 ? NAN : -INFINITY;
        check_a8(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_a8),
    };
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
