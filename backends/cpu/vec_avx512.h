/* vec_avx512.h: the few vector words in which the x16 kernels are written, for AVX-512 with VNNI; vec_avx2.h has the same
 * words for AVX2. A vector has a lane of 32 bits a row of the weight, VEC_ROWS rows.
 *
 * Bitwise and integer arithmetic is that of the compiler's vector types, plain C operators; here is what C has no operator
 * for. Products and sums of floats that must round the same way everywhere are written as vec_fma, never as * and +, which a
 * compiler may fuse or not. */
#ifndef BACKENDS_CPU_VEC_AVX512_H
#define BACKENDS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

enum {
    VEC_ROWS = 16,
    VEC_HALVES = 1,   /* vectors that a group of 16 rows takes */
    VEC_TOGETHER = 2, /* slots whose weights fit the registers at once */
    VEC_TOKENS = 4,   /* tokens whose sums are interleaved to hide the latency of the dot product */
    VEC_COLUMNS = 12, /* tokens whose float sums, two vectors each, fit the registers */
    VEC_SIGNED = 0,   /* vec_dots takes 128 off codes above 127 by itself */
};

typedef uint32_t vec_u __attribute__((vector_size(64)));
typedef int32_t vec_i __attribute__((vector_size(64)));
typedef float vec_f __attribute__((vector_size(64)));

VEC_INLINE vec_u vec_load(const void *p)
{
    return (vec_u)_mm512_loadu_si512(p);
}

VEC_INLINE vec_u vec_load_u16(const void *p)
{
    return (vec_u)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

VEC_INLINE vec_u vec_load_u8(const void *p)
{
    return (vec_u)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE vec_f vec_load_half(const void *p)
{
    return (vec_f)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VEC_INLINE vec_f vec_load_bf16(const void *p)
{
    return (vec_f)(vec_load_u16(p) << 16);
}

VEC_INLINE vec_f vec_load_f32(const float *p)
{
    return (vec_f)_mm512_loadu_ps(p);
}

/* The first n values (below VEC_ROWS), then zeros; touches no more. */
VEC_INLINE vec_f vec_load_part(const float *p, int64_t n)
{
    return (vec_f)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

VEC_INLINE float vec_sum(vec_f v)
{
    return _mm512_reduce_add_ps((__m512)v);
}

VEC_INLINE void vec_store_f32(float *p, vec_f v)
{
    _mm512_storeu_ps(p, (__m512)v);
}

VEC_INLINE vec_u vec_all(uint32_t x)
{
    return (vec_u)_mm512_set1_epi32((int)x);
}

VEC_INLINE vec_f vec_all_f32(float x)
{
    return (vec_f)_mm512_set1_ps(x);
}

/* The same byte everywhere. */
VEC_INLINE vec_u vec_bytes(uint8_t x)
{
    return (vec_u)_mm512_set1_epi8((char)x);
}

VEC_INLINE vec_f vec_float(vec_u v)
{
    return (vec_f)_mm512_cvtepi32_ps((__m512i)v);
}

/* a b + c in one rounding. */
VEC_INLINE vec_f vec_fma(vec_f a, vec_f b, vec_f c)
{
    return (vec_f)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* Each byte of idx (0 to 15) replaced by that entry of the table. */
VEC_INLINE vec_u vec_lookup(const uint8_t *table, vec_u idx)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return (vec_u)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), (__m512i)idx);
}

/* 16 in every byte whose bit is set: bits[] has one for each byte of the 16 rows' vector; `lane` is the first row. */
VEC_INLINE vec_u vec_sixteens(const uint8_t *bits, int lane)
{
    (void)lane;
    uint64_t mask;
    memcpy(&mask, bits, sizeof mask);
    return (vec_u)_mm512_maskz_mov_epi8(_cvtu64_mask64(mask), _mm512_set1_epi8(16));
}

/* sums[t][s] += over dwords j < n: the four codes (unsigned bytes up to `top`) of w[s][j] times x[t][4 j ..] (signed bytes). */
VEC_INLINE void vec_dots(vec_u (*sums)[VEC_TOGETHER], vec_u (*w)[8], const int8_t *const *x, int first, int n, int tokens,
                         int slots, int top)
{
    (void)top;
#pragma GCC unroll 8
    for (int j = first; j < first + n; j++)
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            int32_t quad;
            memcpy(&quad, x[t] + 4 * j, sizeof quad);
            __m512i all = _mm512_set1_epi32(quad);
#pragma GCC unroll 2
            for (int s = 0; s < slots; s++)
                sums[t][s] = (vec_u)_mm512_dpbusd_epi32((__m512i)sums[t][s], (__m512i)w[s][j], all);
        }
}

#endif
