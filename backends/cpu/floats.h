/* floats.h: vectors of f32 in which the kernels that are not matrix products are written: one body, built for AVX-512 (16
 * lanes) and for AVX2 (8 lanes). The file that includes it is compiled for one of the two (its suffix, see the Makefile), and
 * which one decides everything here.
 *
 * vf is the compiler's own vector type, so + - * / are operators, and the compiler may contract a * b + c. Where a result has
 * to equal another one bit for bit (quantised codes) nothing here can be contracted: conversions and divisions stand in
 * between. Loads and stores need no alignment. Elements behind the end of a row are neither read nor written: tails
 * are masked.
 *
 * The compilers' generic vectors alone lost: no masks, no half precision, no conversions. A library of wrappers lost because
 * this page is all that is needed of it. */
#ifndef BACKENDS_CPU_FLOATS_H
#define BACKENDS_CPU_FLOATS_H

#include "base/cpu.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* Before a loop with a constant number of turns, which keeps an array of vectors in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* cpu_<op>_<isa>, its variant and its needs. */
#define CPU_KERNEL_NAME__(op, isa) cpu_##op##_##isa
#define CPU_KERNEL_NAME_(op, isa)  CPU_KERNEL_NAME__(op, isa)
#define CPU_KERNEL_NAME(op)        CPU_KERNEL_NAME_(op, FLOATS_ISA)
#define FLOATS_TEXT_(x)            #x
#define FLOATS_TEXT(x)             FLOATS_TEXT_(x)
#define FLOATS_VARIANT             FLOATS_TEXT(FLOATS_ISA)

#ifdef __AVX512F__

#define FLOATS_ISA   avx512
#define FLOATS_NEEDS (CPU_AVX512 | CPU_AVX2 | CPU_FMA | CPU_F16C)
enum { V = 16 }; /* lanes */
typedef __m512 vf;
typedef __m512i vi;   /* lanes of int32 */
typedef __mmask16 vm; /* a bit a lane */

INLINE vf v_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(void *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
INLINE vf v_all(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
/* The first n lanes, 0 <= n <= V. */
INLINE vm v_first(int64_t n)
{
    return (vm)(n >= V ? 0xffff : (1u << n) - 1);
}
INLINE vf v_load_first(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
INLINE void v_store_first(void *p, vf a, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), a);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Of two lanes one of which is a NaN: b's. */
INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}
/* a with the sign of b. */
INLINE vf v_copysign(vf a, vf b)
{
    return _mm512_or_ps(_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a), _mm512_and_ps(_mm512_set1_ps(-0.0f), b));
}
/* Lanes 2 i and 2 i + 1 exchanged. */
INLINE vf v_swap_pairs(vf a)
{
    return _mm512_permute_ps(a, 0xb1);
}
/* To the nearest whole number, ties to even. */
INLINE vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
/* Comparisons are false where a lane is a NaN. */
INLINE vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
INLINE vm v_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
INLINE vm v_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
INLINE bool v_every(vm m)
{
    return m == 0xffff;
}
/* Lanes whose int32 at x lies in [lo, hi]. */
INLINE vm v_within(const void *x, int32_t lo, int32_t hi)
{
    vi a = _mm512_loadu_si512(x);
    return _mm512_cmpge_epi32_mask(a, _mm512_set1_epi32(lo)) & _mm512_cmple_epi32_mask(a, _mm512_set1_epi32(hi));
}
INLINE vm v_and(vm a, vm b)
{
    return (vm)(a & b);
}
/* a times 2^n for whole n, with under- and overflow as they should be. */
INLINE vf v_scale(vf a, vf n)
{
    return _mm512_scalef_ps(a, n);
}
INLINE float v_lane_0(vf a)
{
    return _mm512_cvtss_f32(a);
}
/* Sums and maxima over the lanes, always in the same order. */
INLINE float v_sum(vf a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
INLINE float v_largest(vf a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

INLINE vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vf v_all_f16(uint16_t h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}
INLINE vf v_load_f16_first(const void *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p));
}
INLINE vf v_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE vf v_load_bf16_first(const void *p, int64_t n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_first(n), p)), 16));
}
INLINE __m256i v_to_f16(vf a)
{
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* To nearest, ties to even, a NaN stays one. The processor's own conversion takes denormals for zeros. */
INLINE __m256i v_to_bf16(vf a)
{
    vi b = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    vi r = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    vi nan = _mm512_or_si512(b, _mm512_set1_epi32(0x400000));
    r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), nan);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
INLINE void v_store_16bit(void *p, __m256i a)
{
    _mm256_storeu_si256((__m256i *)p, a);
}
INLINE void v_store_16bit_first(void *p, __m256i a, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), a);
}
/* V signed bytes. */
INLINE vf v_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* The low nibbles of V bytes, or the high ones. */
INLINE vf v_load_nibbles(const void *p, bool high)
{
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    a = _mm_and_si128(high ? _mm_srli_epi16(a, 4) : a, _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(a));
}
/* The nearest whole numbers, ties to even, as V signed bytes. Returns their sum. */
INLINE int v_store_i8(void *p, vf a)
{
    vi i = _mm512_cvtps_epi32(a);
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(i));
    return _mm512_reduce_add_epi32(i);
}
/* Towards zero. */
INLINE vf v_trunc(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
/* Lane i is on where bit i is. */
INLINE vm v_bits(uint32_t bits)
{
    return (vm)bits;
}
/* a, of which the compiler no longer knows that it was a product: a sum with it is rounded twice, as where nothing is
 * contracted. */
INLINE vf v_rounded(vf a)
{
    __asm__("" : "+v"(a));
    return a;
}

#else

#define FLOATS_ISA   avx2
#define FLOATS_NEEDS (CPU_AVX2 | CPU_FMA | CPU_F16C)
enum { V = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* all bits of a lane or none */

INLINE vf v_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void v_store(void *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
INLINE vf v_all(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vm v_first(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}
INLINE vf v_load_first(const void *p, int64_t n)
{
    return _mm256_maskload_ps(p, _mm256_castps_si256(v_first(n)));
}
INLINE void v_store_first(void *p, vf a, int64_t n)
{
    _mm256_maskstore_ps(p, _mm256_castps_si256(v_first(n)), a);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
INLINE vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
INLINE vf v_copysign(vf a, vf b)
{
    return _mm256_or_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a), _mm256_and_ps(_mm256_set1_ps(-0.0f), b));
}
INLINE vf v_swap_pairs(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}
INLINE vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
INLINE vm v_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
INLINE vm v_le(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
INLINE vm v_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
INLINE bool v_every(vm m)
{
    return _mm256_movemask_ps(m) == 0xff;
}
INLINE vm v_within(const void *x, int32_t lo, int32_t hi)
{
    vi a = _mm256_loadu_si256((const __m256i *)x);
    vi outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), a), _mm256_cmpgt_epi32(a, _mm256_set1_epi32(hi)));
    return _mm256_castsi256_ps(_mm256_xor_si256(outside, _mm256_set1_epi32(-1)));
}
INLINE vm v_and(vm a, vm b)
{
    return _mm256_and_ps(a, b);
}
/* In two steps of half the exponent, so that results near both ends of the range are reached; |n| <= 250, or a NaN. */
INLINE vf v_scale(vf a, vf n)
{
    vi i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), rest = _mm256_sub_epi32(i, half);
    vf x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, _mm256_set1_epi32(127)), 23));
    vf y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, _mm256_set1_epi32(127)), 23));
    return a * x * y;
}
INLINE float v_lane_0(vf a)
{
    return _mm256_cvtss_f32(a);
}
INLINE float v_sum(vf b)
{
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
INLINE float v_largest(vf b)
{
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/* AVX2 masks no 16-bit elements: tails go through a buffer. */
INLINE __m128i v_16bit_first(const void *p, int64_t n)
{
    uint16_t room[8] = {0};
    memcpy(room, p, (size_t)(n < V ? n : V) * sizeof *room);
    return _mm_loadu_si128((const __m128i *)(const void *)room);
}
INLINE vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE vf v_all_f16(uint16_t h)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
INLINE vf v_load_f16_first(const void *p, int64_t n)
{
    return _mm256_cvtph_ps(v_16bit_first(p, n));
}
INLINE vf v_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE vf v_load_bf16_first(const void *p, int64_t n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_16bit_first(p, n)), 16));
}
INLINE __m128i v_to_f16(vf a)
{
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE __m128i v_to_bf16(vf a)
{
    vi b = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    vi r = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    vi nan = _mm256_or_si256(b, _mm256_set1_epi32(0x400000));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
    r = _mm256_packus_epi32(_mm256_srli_epi32(r, 16), _mm256_setzero_si256());
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(r, 0x08));
}
INLINE void v_store_16bit(void *p, __m128i a)
{
    _mm_storeu_si128((__m128i *)p, a);
}
INLINE void v_store_16bit_first(void *p, __m128i a, int64_t n)
{
    uint16_t room[8];
    _mm_storeu_si128((__m128i *)(void *)room, a);
    memcpy(p, room, (size_t)(n < V ? n : V) * sizeof *room);
}
INLINE vf v_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf v_load_nibbles(const void *p, bool high)
{
    __m128i a = _mm_loadl_epi64((const __m128i *)p);
    a = _mm_and_si128(high ? _mm_srli_epi16(a, 4) : a, _mm_set1_epi8(15));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(a));
}
INLINE int v_store_i8(void *p, vf a)
{
    vi i = _mm256_cvtps_epi32(a);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(words, words));
    words = _mm_madd_epi16(words, _mm_set1_epi16(1));
    words = _mm_add_epi32(words, _mm_shuffle_epi32(words, 0x4e));
    return _mm_cvtsi128_si32(words) + _mm_extract_epi32(words, 1);
}
INLINE vf v_trunc(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
INLINE vm v_bits(uint32_t bits)
{
    const vi lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane));
}
INLINE vf v_rounded(vf a)
{
    __asm__("" : "+x"(a));
    return a;
}

#endif

/* The first n lanes, 0 < n; where n is the constant V no mask remains. */
INLINE vf v_load_up_to(const void *p, int64_t n)
{
    return n >= V ? v_load(p) : v_load_first(p, n);
}
INLINE void v_store_up_to(void *p, vf a, int64_t n)
{
    if (n >= V)
        v_store(p, a);
    else
        v_store_first(p, a, n);
}

#endif
