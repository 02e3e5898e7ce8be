/* quantize_a8_avx2.c: f32 to A8, a block of 32 values in four vectors. */
#include "backends/cpu/quantize_a8.h"

#include <immintrin.h>
#include <math.h>

static inline void block(const float *x, struct block_a8 *y)
{
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        /* Compared as integers: a NaN is above infinity. */
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    float absmax = _mm_cvtss_f32(_mm_castsi128_ps(half)), d = absmax / 127;
    if (!(absmax < INFINITY) || d < A8_SMALLEST) {
        *y = (struct block_a8){.d = absmax < INFINITY ? 0 : NAN};
        return;
    }
    d = d < A8_LARGEST ? d : A8_LARGEST;
    __m256 inverse = _mm256_set1_ps(1 / d);
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(v[i], inverse), _mm256_set1_ps(-127)), _mm256_set1_ps(127));
        q[i] = _mm256_cvtps_epi32(v[i]);
    }
    /* Packing works in 128-bit halves, so dwords come out in the order 0 2 4 6 1 3 5 7. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    y->d = d;
    y->sum[0] = (int16_t)(_mm256_extract_epi16(sums, 0) + _mm256_extract_epi16(sums, 4) - 16 * 128);
    y->sum[1] = (int16_t)(_mm256_extract_epi16(sums, 8) + _mm256_extract_epi16(sums, 12) - 16 * 128);
    _mm256_storeu_si256((__m256i *)(void *)y->qs, bytes);
}

static int run(const struct exec *x, const struct node *n)
{
    quantize_a8(n, &x->worker, block);
    return 0;
}

const struct kernel cpu_quantize_a8_avx2 = {
    .op = OP_QUANTIZE, .variant = "a8_avx2", .needs = CPU_AVX2, .fits = quantize_a8_fits, .run = run};
