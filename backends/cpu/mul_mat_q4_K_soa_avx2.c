/* mul_mat_q4_K_soa_avx2.c: Q4_K weights in q4_K.soa times A8 activations, along rows: 32 codes a step in one vector, a sum
 * across lanes at the end of each row. Slower than q4_K_avx2, whose 16 rows side by side need no such sum and share each scale
 * of the activation; here for weights that a device's layout already holds, and as the second opinion on both.
 *
 * A worker has whole rows and goes through all tokens while a row is in its cache. */
#include "backends/cpu/x16_fits.h"
#include "base/cpu.h"
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/layouts.h"

#include <immintrin.h>
#include <string.h>

/* Sub-scales and sub-minima of a super-block times d and dmin. */
struct scales {
    float scale[8], min[8];
};

static inline void read_scales(const uint8_t *head, struct scales *s)
{
    uint16_t d, dmin;
    memcpy(&d, head, sizeof d);
    memcpy(&dmin, head + 2, sizeof dmin);
    float scale = f32_from_f16(d), min = f32_from_f16(dmin);
    const uint8_t *p = head + 4; /* formats/kquant.h has the packing of the 12 bytes */
    for (int g = 0; g < 4; g++) {
        s->scale[g] = scale * (float)(p[g] & 63);
        s->min[g] = min * (float)(p[g + 4] & 63);
        s->scale[g + 4] = scale * (float)((p[g + 8] & 15) | p[g] >> 6 << 4);
        s->min[g + 4] = min * (float)(p[g + 8] >> 4 | p[g + 4] >> 6 << 4);
    }
}

/* sums += the products of 32 codes with one block of the activation, by lanes; *mins += those with the minimum. */
static inline __m256 group(__m256i codes, const struct block_a8 *x, float scale, float min, __m256 sums, float *mins)
{
    __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)x->qs);
    __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), _mm256_set1_epi16(1));
    *mins += min * (x->d * (float)(x->sum[0] + x->sum[1]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(quads), _mm256_set1_ps(scale * x->d), sums);
}

static float dot(const uint8_t *codes, const uint8_t *heads, const struct block_a8 *x, int64_t n_blocks)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256 sums = _mm256_setzero_ps();
    float mins = 0;
    for (int64_t b = 0; b < n_blocks; b++, codes += 128, heads += 16, x += 8) {
        struct scales s;
        read_scales(heads, &s);
        for (int c = 0; c < 4; c++) {
            __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(codes + 32 * c));
            sums = group(_mm256_and_si256(pair, low), x + 2 * c, s.scale[2 * c], s.min[2 * c], sums, &mins);
            sums = group(_mm256_and_si256(_mm256_srli_epi16(pair, 4), low), x + 2 * c + 1, s.scale[2 * c + 1], s.min[2 * c + 1],
                         sums, &mins);
        }
    }
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half))) - mins;
}

static bool fits(const struct node *n, struct reason *r)
{
    return x16_fits(&layout_q4_K_soa, FORMAT_A8, n, r);
}

static int run(const struct exec *x, const struct node *n)
{
    enum { GRAIN = 16 }; /* rows: a cache line of the output */
    const struct tensor *w = n->src[0], *out = n->out;
    int64_t per_row = w->ne[0] / BLOCK_K, lo, hi, i[3];
    const uint8_t *codes = w->data, *heads = codes + (size_t)(per_row * w->ne[1]) * 128;
    worker_range(&x->worker, w->ne[1], GRAIN, &lo, &hi);
    for (int64_t row = lo; row < hi; row++)
        for (int64_t t = 0; t < tensor_rows(out); t++) {
            tensor_row_index(out, t, i);
            float *y = tensor_row(out, i[0], i[1], i[2]);
            y[row] = dot(codes + (size_t)(row * per_row) * 128, heads + (size_t)(row * per_row) * 16,
                         tensor_row(n->src[1], i[0], i[1], i[2]), per_row);
        }
    return 0;
}

const struct kernel cpu_mul_mat_q4_K_soa_avx2 = {
    .op = OP_MUL_MAT,
    .variant = "q4_K_soa_avx2",
    .needs = CPU_AVX2 | CPU_FMA,
    .wants = {.layout = &layout_q4_K_soa, .quantized = true, .activation = FORMAT_A8},
    .fits = fits,
    .run = run,
};
