/* test_formats.c: the weight formats and base/half.h.
 *
 * Unpacking is held bit for bit to an independent implementation, on blocks with sane and with hostile scales; packing of the
 * formats whose rule is fixed is held byte for byte (tests/golden/formats.py wrote both). The packers that search are held to
 * an error on normally distributed values: measured 2 to 5 % below the bound, which is in turn below what ggml's own packers
 * leave, so that a search that breaks shows. Any values and any bytes must be survived by every format. */
#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"
#include "formats/formats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void print_message_of(const char *what, const struct format *f, long at)
{
    print_error("%s: %s, at value or byte %ld\n", what, f->name, at);
}

/* Equal bits, or both a NaN: which NaN a multiplication gives is the processor's choice. */
static bool same(float a, float b)
{
    return bits_from_f32(a) == bits_from_f32(b) || (a != a && b != b);
}

struct record {
    char kind[4], name[12];
    uint32_t n_values, n_bytes;
};

static void *read_bytes(FILE *f, size_t n)
{
    /* Behind the bytes comes memory that a sanitizer watches, so reading past a block shows. */
    void *p = malloc(n);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, n, f), n);
    return p;
}

static void check_record(const struct format *f, const struct record *r, const uint8_t *blocks, const float *values)
{
    size_t size = r->n_bytes;
    assert_int_equal(format_row_bytes(f, r->n_values), size);
    if (!memcmp(r->kind, "unpk", 4)) {
        float *got = malloc(r->n_values * sizeof *got);
        assert_non_null(got);
        f->unpack(blocks, got, r->n_values);
        for (uint32_t i = 0; i < r->n_values; i++)
            if (!same(got[i], values[i])) {
                print_message_of("unpacked value differs", f, i);
                print_error("%a is not %a\n", (double)got[i], (double)values[i]);
                fail();
            }
        free(got);
    } else {
        uint8_t *got = malloc(size);
        assert_non_null(got);
        f->pack(values, got, r->n_values);
        for (size_t i = 0; i < size; i++)
            if (got[i] != blocks[i]) {
                print_message_of("packed byte differs", f, (long)i);
                fail();
            }
        free(got);
    }
}

static void test_golden(void **state)
{
    (void)state;
    FILE *file = fopen("tests/golden/formats.bin", "rb");
    assert_non_null(file); /* tests run from the top of the tree */
    int seen[N_FORMATS] = {0}, packed = 0;
    struct record r;
    while (fread(&r, sizeof r, 1, file) == 1) {
        char name[13] = {0};
        memcpy(name, r.name, 12);
        enum format_id id;
        assert_int_equal(format_by_name(name, &id), 0);
        uint8_t *blocks = read_bytes(file, r.n_bytes);
        float *values = read_bytes(file, r.n_values * sizeof *values);
        check_record(format_get(id), &r, blocks, values);
        seen[id]++;
        packed += !memcmp(r.kind, "pack", 4);
        free(blocks);
        free(values);
    }
    fclose(file);
    for (int i = 0; i < N_FORMATS; i++)
        if (i != FORMAT_F32 && i != FORMAT_I32 && format_get((enum format_id)i)->gguf_type >= 0)
            assert_true(seen[i] > 0);
    assert_int_equal(packed, 7);
}

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = format_get((enum format_id)i);
        enum format_id id;
        assert_int_equal(format_by_name(f->name, &id), 0);
        assert_int_equal(id, i);
        assert_int_equal(format_by_gguf_type(f->gguf_type, &id), f->gguf_type < 0 ? -1 : 0); /* -1: never in a file */
        assert_int_equal(id, i);
        assert_true((f->unpack == NULL) == (i == FORMAT_I32));
        assert_true((f->pack == NULL) == (i == FORMAT_I32));
    }
    enum format_id id;
    assert_int_equal(format_by_name("q4_k", &id), 0);
    assert_int_equal(id, FORMAT_Q4_K);
    assert_int_equal(format_by_name("Q4_2", &id), -1);
    assert_int_equal(format_by_name("", &id), -1);
    assert_int_equal(format_by_gguf_type(-1, &id), -1);
    assert_int_equal(format_by_gguf_type((1LL << 32) + 2, &id), -1);
}

/* The squared error of a round trip, relative to the sum of squares. */
static double nmse(const struct format *f, const float *x, int64_t n)
{
    void *blocks = malloc(format_row_bytes(f, n));
    float *y = malloc((size_t)n * sizeof *y);
    assert_true(blocks && y);
    f->pack(x, blocks, n);
    f->unpack(blocks, y, n);
    double error = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        sum += (double)x[i] * (double)x[i];
    }
    free(blocks);
    free(y);
    return error / sum;
}

static float *normal_values(int64_t n, double sigma)
{
    struct rng r = rng_seed(7);
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(sigma * rng_normal(&r));
    return x;
}

static void test_error(void **state)
{
    (void)state;
    static const struct {
        enum format_id id;
        double bound, ggml; /* what ggml 0.25.3 leaves on such values */
    } bounds[] = {
        {FORMAT_F16, 4.31e-8, 4.32e-8},    {FORMAT_BF16, 2.81e-6, 2.74e-6},   {FORMAT_Q4_0, 7.46e-3, 7.42e-3},
        {FORMAT_Q4_1, 6.21e-3, 6.13e-3},   {FORMAT_Q5_0, 1.85e-3, 1.83e-3},   {FORMAT_Q5_1, 1.455e-3, 1.43e-3},
        {FORMAT_Q8_0, 2.91e-5, 2.88e-5},   {FORMAT_Q2_K, 7.11e-2, 8.82e-2},   {FORMAT_Q3_K, 2.095e-2, 2.28e-2},
        {FORMAT_Q4_K, 5e-3, 5.12e-3},      {FORMAT_Q5_K, 1.227e-3, 1.31e-3},  {FORMAT_Q6_K, 3.05e-4, 3.17e-4},
        {FORMAT_IQ4_NL, 5.45e-3, 5.81e-3}, {FORMAT_IQ4_XS, 5.57e-3, 5.90e-3}, {FORMAT_MXFP4, 1.247e-2, 1.30e-2},
    };
    enum { N = 1 << 16 };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct format *f = format_get(bounds[i].id);
        /* Sigma only moves the exponent, except where f16 scales become denormal (checked loosely below). */
        for (double sigma = 0.02; sigma < 30; sigma *= 1024) {
            float *x = normal_values(N, sigma);
            double e = nmse(f, x, N);
            if (!(e < bounds[i].bound)) {
                print_error("%s: error %.3e, bound %.3e, ggml's %.3e\n", f->name, e, bounds[i].bound, bounds[i].ggml);
                fail();
            }
            free(x);
        }
    }
}

/* Scales among binary16's denormals are coarse: the searches must take the scale as it was rounded. */
static void test_small_scales(void **state)
{
    (void)state;
    enum { N = 1 << 14 };
    float *x = normal_values(N, 1e-4);
    for (int i = 0; i < N_FORMATS; i++)
        if (i != FORMAT_I32)
            assert_true(nmse(format_get((enum format_id)i), x, N) < (i == FORMAT_Q2_K ? 0.09 : 0.035));
    free(x);
}

static void fill(float *x, int n, int kind, struct rng *r)
{
    static const float special[] = {NAN,     INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f,
                                    -1e-40f, 0.0f,     -0.0f,     65504,   7e4f,     1.2e-38f};
    for (int i = 0; i < n; i++) {
        float normal = (float)rng_normal(r);
        switch (kind) {
        case 0:
            x[i] = 0;
            break;
        case 1:
            x[i] = -0.0f;
            break;
        case 2:
            x[i] = 1.25f;
            break;
        case 3:
            x[i] = -1.25f;
            break;
        case 4:
            x[i] = 3.4e38f;
            break;
        case 5:
            x[i] = i % 2 ? 3.4e38f : -3.4e38f;
            break;
        case 6:
            x[i] = 1e-41f * (float)i;
            break;
        case 7:
            x[i] = normal * 1e-9f;
            break;
        case 8:
            x[i] = normal * 1e20f;
            break;
        case 9:
            x[i] = i == 5 ? NAN : normal;
            break;
        case 10:
            x[i] = i == n - 1 ? INFINITY : normal;
            break;
        case 11:
            x[i] = i == 9 ? -INFINITY : normal;
            break;
        case 12:
            x[i] = special[rng_below(r, sizeof special / sizeof *special)];
            break;
        case 13:
            x[i] = i == 17 ? 1e6f : normal * 1e-6f;
            break;
        case 14:
            x[i] = f32_from_bits((uint32_t)rng_u64(r));
            break;
        default:
            x[i] = normal + 10;
            break;
        }
    }
}

/* Any values: no fault (the sanitizers watch), the block's end respected, the same bytes twice, finite in gives finite out,
 * and a non-finite value shows in its block. */
static void test_odd_values(void **state)
{
    (void)state;
    struct rng r = rng_seed(3);
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = format_get((enum format_id)i);
        if (!f->pack)
            continue;
        for (int round = 0; round < 20 * 16; round++) {
            float x[256], y[256];
            uint8_t a[1024 + 8], b[1024 + 8];
            size_t size = format_row_bytes(f, 256);
            bool finite = true, has_finite_range = i != FORMAT_F16 && i != FORMAT_F32 && i != FORMAT_BF16;
            fill(x, 256, round % 16, &r);
            for (int j = 0; j < 256; j++)
                finite = finite && isfinite(x[j]);
            memset(a, 0xa5, sizeof a);
            memset(b, 0x5a, sizeof b);
            f->pack(x, a, 256);
            f->pack(x, b, 256);
            assert_memory_equal(a, b, size);
            for (size_t j = size; j < size + 8; j++)
                assert_int_equal(a[j], 0xa5);
            f->unpack(a, y, 256);
            bool out_finite = true;
            float largest = 0, error = 0;
            for (int j = 0; j < 256; j++) {
                out_finite = out_finite && isfinite(y[j]);
                largest = fmaxf(largest, fabsf(x[j]));
                error = fmaxf(error, fabsf(y[j] - x[j]));
            }
            if (finite && out_finite && !(error <= 2.5f * largest)) { /* rounding a scale of 2^-24 may double it, but no more */
                print_error("%s: values of kind %d up to %g come back with an error of %g\n", f->name, round % 16,
                            (double)largest, (double)error);
                fail();
            }
            if (has_finite_range && finite != out_finite) {
                print_error("%s: values of kind %d: finite %d in, %d out\n", f->name, round % 16, finite, out_finite);
                fail();
            }
            if (round % 16 < 2)
                for (int j = 0; j < 256; j++)
                    assert_true(y[j] == 0);
            if (round % 16 == 2 || round % 16 == 3)
                for (int j = 0; j < 256; j++)
                    assert_true(fabsf(y[j] - x[j]) <= (i == FORMAT_MXFP4 ? 0.25f : 0.005f)); /* it has 1 and 1.5 */
        }
    }
}

/* Any bytes, at any alignment, unpack without a fault and always to the same bits. */
static void test_any_bytes(void **state)
{
    (void)state;
    struct rng r = rng_seed(4);
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = format_get((enum format_id)i);
        if (!f->unpack)
            continue;
        size_t size = format_row_bytes(f, 256);
        for (int round = 0; round < 200; round++) {
            uint8_t raw[1024 + 3];
            float y[256], z[256];
            for (size_t j = 0; j < size; j++)
                raw[j] = round == 0 ? 0xff : round == 1 ? 0 : (uint8_t)rng_u64(&r);
            f->unpack(raw, y, 256);
            memmove(raw + 1 + round % 3, raw, size);
            f->unpack(raw + 1 + round % 3, z, 256);
            for (int j = 0; j < 256; j++)
                assert_true(same(y[j], z[j]));
        }
    }
}

static void expect_digest(const char *what, const void *data, size_t size, const char *hex)
{
    struct sha256 h;
    struct hone_error e = {0};
    assert_int_equal(hash_sha256(&h, data, size, &e), 0);
    if (strcmp(h.hex, hex)) {
        print_error("%s: digest %s, expected %s\n", what, h.hex, hex);
        fail();
    }
}

/* All of binary16; of f32 every sign, exponent and upper ten fraction bits with the lower 13 bits at and beside the rounding
 * points, NaN left out. Digests of numpy's conversions (tests/golden/formats.py). */
static void test_half(void **state)
{
    (void)state;
    uint32_t *wide = malloc(65536 * sizeof *wide);
    assert_non_null(wide);
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f32_from_f16((uint16_t)h);
        wide[h] = f != f ? 0x7fc00000u : bits_from_f32(f);
        assert_true(same(f32_from_f16(f16_from_f32(f)), f));
        float g = f32_from_bf16((uint16_t)h);
        assert_true(same(f32_from_bf16(bf16_from_f32(g)), g));
    }
    expect_digest("f16 to f32", wide, 65536 * sizeof *wide, "385ff5fe69182797cda5f1827e20cf423f4416bc9246f27d0eec27cac9039259");
    free(wide);

    static const uint32_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff};
    uint16_t *half = malloc(6 * ((size_t)1 << 19) * sizeof *half), *brain = malloc(6 * ((size_t)1 << 19) * sizeof *brain);
    assert_true(half && brain);
    size_t n = 0;
    for (uint32_t upper = 0; upper < 1u << 19; upper++)
        for (int i = 0; i < 6; i++) {
            float f = f32_from_bits(upper << 13 | low[i]);
            if (f != f) {
                assert_true((f16_from_f32(f) & 0x7fff) > 0x7c00);
                assert_true((bf16_from_f32(f) & 0x7fff) > 0x7f80);
                continue;
            }
            half[n] = f16_from_f32(f);
            brain[n++] = bf16_from_f32(f);
        }
    expect_digest("f32 to f16", half, n * sizeof *half, "10928caca4a6919fc0f13c059951563d6798430cc8d0f7d866068d60ce2ec5e2");
    expect_digest("f32 to bf16", brain, n * sizeof *brain, "44ab9288b6efeb9a6fdce761e749c968c3e2d3de2f9192c0898c4d97064e206a");
    free(half);
    free(brain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_golden),     cmocka_unit_test(test_error),
        cmocka_unit_test(test_small_scales), cmocka_unit_test(test_odd_values), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_half),
    };
    return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
