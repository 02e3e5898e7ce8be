/* quantize_a8_avx512.c: f32 to A8, a block of 32 values in two vectors. Bound by the latency of finding the largest value,
 * which the processor hides by working on several blocks at once. */
#include "backends/cpu/quantize_a8.h"

#include <immintrin.h>
#include <math.h>

static inline void block(const float *x, struct block_a8 *y)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    /* Compared as integers: a NaN is above infinity. */
    __m512i most = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                    _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(most)))), d = absmax / 127;
    if (!(absmax < INFINITY) || d < A8_SMALLEST) {
        *y = (struct block_a8){.d = absmax < INFINITY ? 0 : NAN};
        return;
    }
    d = d < A8_LARGEST ? d : A8_LARGEST;
    __m512 inverse = _mm512_set1_ps(1 / d), low = _mm512_set1_ps(-127), high = _mm512_set1_ps(127);
    a = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(a, inverse), low), high);
    b = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(b, inverse), low), high);
    __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(b)), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    y->d = d;
    y->sum[0] = (int16_t)(_mm256_extract_epi16(sums, 0) + _mm256_extract_epi16(sums, 4) - 16 * 128);
    y->sum[1] = (int16_t)(_mm256_extract_epi16(sums, 8) + _mm256_extract_epi16(sums, 12) - 16 * 128);
    _mm256_storeu_si256((__m256i *)(void *)y->qs, q);
}

static int run(const struct exec *x, const struct node *n)
{
    quantize_a8(n, &x->worker, block);
    return 0;
}

const struct kernel cpu_quantize_a8_avx512 = {
    .op = OP_QUANTIZE, .variant = "a8_avx512", .needs = CPU_AVX512, .fits = quantize_a8_fits, .run = run};
