/* vec_avx2.h: the vector words of vec_avx512.h for AVX2 with FMA and F16C: 8 rows a vector, so a group of 16 rows takes two.
 *
 * The dot product is maddubs, whose 16-bit pairs saturate: vec_dots adds up in 16 bits only as many products as the largest
 * code allows, then widens. Codes around 128 (whole bytes) are multiplied as signed ones, by moving the sign to the activation:
 * |w| * (x sign w) stays below 2^15. */
#ifndef BACKENDS_CPU_VEC_AVX2_H
#define BACKENDS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

enum {
    VEC_ROWS = 8,
    VEC_HALVES = 2,   /* vectors that a group of 16 rows takes */
    VEC_TOGETHER = 1, /* slots whose weights fit the registers at once */
    VEC_TOKENS = 2,   /* tokens whose sums are interleaved */
    VEC_COLUMNS = 6,  /* tokens whose float sums, two vectors each, fit the registers */
    VEC_SIGNED = 1,   /* vec_dots takes 128 off codes above 127 by itself */
};

typedef uint32_t vec_u __attribute__((vector_size(32)));
typedef int32_t vec_i __attribute__((vector_size(32)));
typedef float vec_f __attribute__((vector_size(32)));

VEC_INLINE vec_u vec_load(const void *p)
{
    return (vec_u)_mm256_loadu_si256((const __m256i *)p);
}

VEC_INLINE vec_u vec_load_u16(const void *p)
{
    return (vec_u)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE vec_u vec_load_u8(const void *p)
{
    return (vec_u)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

VEC_INLINE vec_f vec_load_half(const void *p)
{
    return (vec_f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE vec_f vec_load_bf16(const void *p)
{
    return (vec_f)(vec_load_u16(p) << 16);
}

VEC_INLINE vec_f vec_load_f32(const float *p)
{
    return (vec_f)_mm256_loadu_ps(p);
}

VEC_INLINE vec_f vec_load_part(const float *p, int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (vec_f)_mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

VEC_INLINE float vec_sum(vec_f v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

VEC_INLINE void vec_store_f32(float *p, vec_f v)
{
    _mm256_storeu_ps(p, (__m256)v);
}

VEC_INLINE vec_u vec_all(uint32_t x)
{
    return (vec_u)_mm256_set1_epi32((int)x);
}

VEC_INLINE vec_f vec_all_f32(float x)
{
    return (vec_f)_mm256_set1_ps(x);
}

VEC_INLINE vec_u vec_bytes(uint8_t x)
{
    return (vec_u)_mm256_set1_epi8((char)x);
}

VEC_INLINE vec_f vec_float(vec_u v)
{
    return (vec_f)_mm256_cvtepi32_ps((__m256i)v);
}

VEC_INLINE vec_f vec_fma(vec_f a, vec_f b, vec_f c)
{
    return (vec_f)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

VEC_INLINE vec_u vec_lookup(const uint8_t *table, vec_u idx)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return (vec_u)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)idx);
}

VEC_INLINE vec_u vec_sixteens(const uint8_t *bits, int lane)
{
    int32_t mask;
    memcpy(&mask, bits + lane / 2, sizeof mask);
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), spread), bit);
    return (vec_u)_mm256_and_si256(_mm256_cmpeq_epi8(bytes, bit), _mm256_set1_epi8(16));
}

VEC_INLINE void vec_dots(vec_u (*sums)[VEC_TOGETHER], vec_u (*w)[8], const int8_t *const *x, int first, int n, int tokens,
                         int slots, int top)
{
    (void)slots;
    const int whole = top > 127, most = top < 16 ? 8 : top < 32 ? 4 : top < 64 ? 2 : 1, run = most < n ? most : n;
#pragma GCC unroll 8
    for (int j = first; j < first + n; j += run)
#pragma GCC unroll 2
        for (int t = 0; t < tokens; t++) {
            __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int i = j; i < j + run; i++) {
                int32_t quad;
                memcpy(&quad, x[t] + 4 * i, sizeof quad);
                __m256i all = _mm256_set1_epi32(quad), code = (__m256i)w[0][i];
                if (whole) {
                    code = _mm256_xor_si256(code, _mm256_set1_epi8((char)0x80));
                    all = _mm256_sign_epi8(all, code);
                    code = _mm256_abs_epi8(code);
                }
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(code, all));
            }
            sums[t][0] += (vec_u)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        }
}

#endif
