/* rows.h: what the kernels over rows of f32 share: rows of any tensor as floats, floats into rows of any format, and a worker's
 * share of rows that may be fewer than the workers.
 *
 * A contiguous f32 row is used where it lies, at any alignment. F16, BF16, the 8-bit activation and Q8_0, Q5_1, Q5_0, Q4_1,
 * Q4_0 (what a KV cache may be) have vector code here, equal to their format's pack and unpack bit for bit (a NaN may differ in
 * its payload); every other format, layout or stride goes through tensor_read_row and the format's own functions, so nothing is
 * refused for its form.
 *
 * A share is cut within rows, at multiples of a grain, so one row of a decode step occupies all threads; what concerns a
 * whole row (a sum of squares) every worker that has a piece of it computes for itself, in the same order: the same bits for
 * any number of threads and no barrier. */
#ifndef BACKENDS_CPU_ROWS_H
#define BACKENDS_CPU_ROWS_H

#include "backends/backend.h"
#include "backends/cpu/floats.h"
#include "formats/blocks.h"
#include "formats/fit.h"

#include <math.h>

/* ---- formats */

INLINE void row_pack_16bit(enum format_id format, const float *src, char *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + V <= n; i += V)
        v_store_16bit(dst + 2 * i, format == FORMAT_F16 ? v_to_f16(v_load(src + i)) : v_to_bf16(v_load(src + i)));
    if (i < n) {
        vf a = v_load_first(src + i, n - i);
        v_store_16bit_first(dst + 2 * i, format == FORMAT_F16 ? v_to_f16(a) : v_to_bf16(a), n - i);
    }
}

INLINE void row_unpack_16bit(enum format_id format, const char *src, float *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + V <= n; i += V)
        v_store(dst + i, format == FORMAT_F16 ? v_load_f16(src + 2 * i) : v_load_bf16(src + 2 * i));
    if (i < n)
        v_store_first(dst + i,
                      format == FORMAT_F16 ? v_load_f16_first(src + 2 * i, n - i) : v_load_bf16_first(src + 2 * i, n - i),
                      n - i);
}

/* The largest |x| of 32; NaN or infinite when any x is. Magnitudes are ordered as integers are, a NaN above infinity. */
INLINE float row_absmax_32(const float *x)
{
#ifdef __AVX512F__
    vi a = _mm512_max_epi32(_mm512_castps_si512(v_abs(v_load(x))), _mm512_castps_si512(v_abs(v_load(x + 16))));
    return f32_from_bits((uint32_t)_mm512_reduce_max_epi32(a));
#else
    vi a = _mm256_max_epi32(_mm256_castps_si256(v_abs(v_load(x))), _mm256_castps_si256(v_abs(v_load(x + 8))));
    vi b = _mm256_max_epi32(_mm256_castps_si256(v_abs(v_load(x + 16))), _mm256_castps_si256(v_abs(v_load(x + 24))));
    a = _mm256_max_epi32(a, b);
    __m128i c = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4e));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0xb1));
    return f32_from_bits((uint32_t)_mm_cvtsi128_si32(c));
#endif
}

/* formats/q8_0.c: codes rounded half away from zero. */
INLINE void row_pack_q8_0(const float *src, void *dst, int64_t n)
{
    struct block_q8_0 *b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = row_absmax_32(src), d = absmax / 127, inverse = fit_inverse(d);
        b->d = fit_finite(absmax) ? fit_half(d) : FIT_NAN;
        UNROLL
        for (int j = 0; j < 32; j += V) {
            vf v = v_min(v_max(v_load(src + j) * v_all(inverse), v_all(-127)), v_all(127)), whole = v_trunc(v);
            vf away = v_select(v_le(v_all(0.5f), v_abs(v - whole)), v_copysign(v_all(1), v), v_zero());
            v_store_i8(b->qs + j, whole + away);
        }
    }
}

/* V values from number i of a row on, i a multiple of V. */
INLINE vf row_load_q8_0(const void *row, int64_t i)
{
    const struct block_q8_0 *b = (const struct block_q8_0 *)row + i / 32;
    return v_load_i8(b->qs + i % 32) * v_all_f16(b->d);
}

INLINE vf row_load_q4_0(const void *row, int64_t i)
{
    const struct block_q4_0 *b = (const struct block_q4_0 *)row + i / 32;
    return (v_load_nibbles(b->qs + i % 16, i % 32 >= 16) - v_all(8)) * v_all_f16(b->d);
}

/* A code times a half-precision scale is exact, so that it does not matter whether the sum behind it is contracted. */
INLINE vf row_load_q4_1(const void *row, int64_t i)
{
    const struct block_q4_1 *b = (const struct block_q4_1 *)row + i / 32;
    return v_load_nibbles(b->qs + i % 16, i % 32 >= 16) * v_all_f16(b->d) + v_all_f16(b->m);
}

/* Five-bit codes. */
INLINE vf row_load_five(const uint8_t *qh, const uint8_t *qs, int64_t i)
{
    uint32_t high;
    memcpy(&high, qh, sizeof high);
    vf low = v_load_nibbles(qs + i % 16, i % 32 >= 16);
    return v_select(v_bits(high >> i % 32 & ((1u << V) - 1)), low + v_all(16), low);
}

INLINE vf row_load_q5_0(const void *row, int64_t i)
{
    const struct block_q5_0 *b = (const struct block_q5_0 *)row + i / 32;
    return (row_load_five(b->qh, b->qs, i) - v_all(16)) * v_all_f16(b->d);
}

INLINE vf row_load_q5_1(const void *row, int64_t i)
{
    const struct block_q5_1 *b = (const struct block_q5_1 *)row + i / 32;
    return row_load_five(b->qh, b->qs, i) * v_all_f16(b->d) + v_all_f16(b->m);
}

/* formats/q4_0.c to q5_1.c: 32 values to codes 0 to `most`: (x - offset) inverse + half, cut. NaN becomes 0. */
INLINE void row_codes(const float *src, float offset, float inverse, float half, float most, uint8_t *q)
{
    UNROLL
    for (int j = 0; j < 32; j += V) {
        vf v = v_rounded((v_load(src + j) - v_all(offset)) * v_all(inverse)) + v_all(half);
        v_store_i8(q + j, v_trunc(v_min(v_max(v, v_all(0)), v_all(most))));
    }
}

INLINE void row_store_nibbles(const uint8_t *q, uint8_t *qs)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i a = _mm_and_si128(_mm_loadu_si128((const __m128i *)(const void *)q), low);
    __m128i b = _mm_and_si128(_mm_loadu_si128((const __m128i *)(const void *)(q + 16)), low);
    _mm_storeu_si128((__m128i *)(void *)qs, _mm_or_si128(a, _mm_slli_epi16(b, 4)));
}

INLINE void row_store_fifth_bits(const uint8_t *q, uint8_t *qh)
{
    __m256i a = _mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)(const void *)q), 3); /* bit 4 to where movemask looks */
    uint32_t bits = (uint32_t)_mm256_movemask_epi8(a);
    memcpy(qh, &bits, sizeof bits);
}

/* Scale and codes of 32 values around the middle one of 2 `half` codes. */
INLINE uint16_t row_pack_around(const float *src, float half, uint8_t *q)
{
    float absmax = row_absmax_32(src), d = fit_signed_max(src, 32, absmax) / -half;
    row_codes(src, 0, fit_inverse(d), half + 0.5f, 2 * half - 1, q);
    return fit_finite(absmax) ? fit_half(d) : FIT_NAN;
}

/* Scale, minimum and codes 0 to `most` of 32 values. */
INLINE uint16_t row_pack_above(const float *src, float most, uint16_t *m, uint8_t *q)
{
    float min, max;
    fit_range(src, 32, &min, &max);
    float d = (max - min) / most;
    row_codes(src, min, fit_inverse(d), 0.5f, most, q);
    *m = fit_half(min);
    return fit_finite(row_absmax_32(src)) ? fit_half(d) : FIT_NAN;
}

static inline void row_pack_q4_0(const float *src, void *dst, int64_t n)
{
    struct block_q4_0 *b = dst;
    uint8_t q[32];
    for (; n > 0; n -= 32, b++, src += 32) {
        b->d = row_pack_around(src, 8, q);
        row_store_nibbles(q, b->qs);
    }
}

static inline void row_pack_q5_0(const float *src, void *dst, int64_t n)
{
    struct block_q5_0 *b = dst;
    uint8_t q[32];
    for (; n > 0; n -= 32, b++, src += 32) {
        b->d = row_pack_around(src, 16, q);
        row_store_fifth_bits(q, b->qh);
        row_store_nibbles(q, b->qs);
    }
}

static inline void row_pack_q4_1(const float *src, void *dst, int64_t n)
{
    struct block_q4_1 *b = dst;
    uint16_t m;
    uint8_t q[32];
    for (; n > 0; n -= 32, b++, src += 32) {
        b->d = row_pack_above(src, 15, &m, q);
        b->m = m;
        row_store_nibbles(q, b->qs);
    }
}

static inline void row_pack_q5_1(const float *src, void *dst, int64_t n)
{
    struct block_q5_1 *b = dst;
    uint16_t m;
    uint8_t q[32];
    for (; n > 0; n -= 32, b++, src += 32) {
        b->d = row_pack_above(src, 31, &m, q);
        b->m = m;
        row_store_fifth_bits(q, b->qh);
        row_store_nibbles(q, b->qs);
    }
}

/* formats/a8.c: codes rounded half to even. */
INLINE void row_pack_a8(const float *src, void *dst, int64_t n)
{
    struct block_a8 *b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float absmax = row_absmax_32(src), d = absmax / 127;
        bool finite = fit_finite(absmax), zero = !finite || d < A8_SMALLEST;
        d = d < A8_LARGEST ? d : A8_LARGEST;
        vf inverse = v_all(zero ? 0 : 1 / d);
        int sum[2] = {0};
        UNROLL
        for (int j = 0; j < 32; j += V) {
            vf v = v_min(v_max(v_load(src + j) * inverse, v_all(-127)), v_all(127));
            sum[j / 16] += v_store_i8(b->qs + j, v);
        }
        if (!finite) { /* a product of 0 and infinity is no number: the codes are to be zeros all the same */
            memset(b->qs, 0, sizeof b->qs);
            sum[0] = sum[1] = 0;
        }
        b->d = !finite ? NAN : zero ? 0 : d;
        b->sum[0] = (int16_t)sum[0];
        b->sum[1] = (int16_t)sum[1];
    }
}

/* n values (whole blocks) into a contiguous row of any format that has a pack. */
static inline void row_pack(enum format_id format, const float *src, void *dst, int64_t n)
{
    switch (format) {
    case FORMAT_F32:
        memcpy(dst, src, sizeof *src * (size_t)n);
        break;
    case FORMAT_F16:
        row_pack_16bit(FORMAT_F16, src, dst, n);
        break;
    case FORMAT_BF16:
        row_pack_16bit(FORMAT_BF16, src, dst, n);
        break;
    case FORMAT_Q8_0:
        row_pack_q8_0(src, dst, n);
        break;
    case FORMAT_A8:
        row_pack_a8(src, dst, n);
        break;
    case FORMAT_Q5_1:
        row_pack_q5_1(src, dst, n);
        break;
    case FORMAT_Q5_0:
        row_pack_q5_0(src, dst, n);
        break;
    case FORMAT_Q4_1:
        row_pack_q4_1(src, dst, n);
        break;
    case FORMAT_Q4_0:
        row_pack_q4_0(src, dst, n);
        break;
    default:
        format_get(format)->pack(src, dst, n);
    }
}

/* n values (whole blocks) of a contiguous row of any float format. */
static inline void row_unpack(enum format_id format, const void *src, float *dst, int64_t n)
{
    switch (format) {
    case FORMAT_F32:
        memcpy(dst, src, sizeof *dst * (size_t)n);
        break;
    case FORMAT_F16:
        row_unpack_16bit(FORMAT_F16, src, dst, n);
        break;
    case FORMAT_BF16:
        row_unpack_16bit(FORMAT_BF16, src, dst, n);
        break;
    case FORMAT_Q8_0:
        for (int64_t i = 0; i < n; i += V)
            v_store(dst + i, row_load_q8_0(src, i));
        break;
    case FORMAT_Q5_1:
        for (int64_t i = 0; i < n; i += V)
            v_store(dst + i, row_load_q5_1(src, i));
        break;
    case FORMAT_Q5_0:
        for (int64_t i = 0; i < n; i += V)
            v_store(dst + i, row_load_q5_0(src, i));
        break;
    case FORMAT_Q4_1:
        for (int64_t i = 0; i < n; i += V)
            v_store(dst + i, row_load_q4_1(src, i));
        break;
    case FORMAT_Q4_0:
        for (int64_t i = 0; i < n; i += V)
            v_store(dst + i, row_load_q4_0(src, i));
        break;
    default:
        format_get(format)->unpack(src, dst, n);
    }
}

/* ---- rows of a tensor */

/* A tensor as rows of floats. */
struct rows {
    const struct tensor *t;
    float *room;    /* of a row that cannot be read in place */
    bool in_place;  /* contiguous f32 rows */
    bool one_block; /* all rows lie one behind the other */
};

static inline bool rows_in_place(const struct tensor *t)
{
    return t->format == FORMAT_F32 && tensor_rows_contiguous(t);
}

/* Bytes of the room that rows_of needs: a multiple of 64. */
static inline size_t rows_room(const struct tensor *t)
{
    return rows_in_place(t) ? 0 : (sizeof(float) * (size_t)t->ne[0] + 63) / 64 * 64;
}

/* Takes its room from *scratch and moves that behind it. */
static inline struct rows rows_of(const struct tensor *t, char **scratch)
{
    struct rows r = {
        .t = t, .room = (float *)(void *)*scratch, .in_place = rows_in_place(t), .one_block = tensor_contiguous(t)};
    *scratch += rows_room(t);
    return r;
}

/* A tensor that is only written. */
static inline struct rows rows_to(const struct tensor *t)
{
    return (struct rows){.t = t, .in_place = rows_in_place(t), .one_block = tensor_contiguous(t)};
}

static inline void *row_address(const struct rows *r, int64_t row)
{
    int64_t i[3];
    if (r->one_block)
        return (char *)r->t->data + (size_t)row * format_row_bytes(format_get(r->t->format), r->t->ne[0]);
    tensor_row_index(r->t, row, i);
    return tensor_row(r->t, i[0], i[1], i[2]);
}

/* Row (i1, i2, i3). Not always aligned: for loads and stores of floats.h only. */
static inline const float *row_read_at(const struct rows *r, const int64_t i[3])
{
    const struct tensor *t = r->t;
    if (r->in_place)
        return tensor_row(t, i[0], i[1], i[2]);
    if (!tensor_rows_contiguous(t))
        return tensor_read_row(t, i[0], i[1], i[2], r->room);
    row_unpack(t->format, tensor_row(t, i[0], i[1], i[2]), r->room, t->ne[0]);
    return r->room;
}

static inline const float *row_read(const struct rows *r, int64_t row)
{
    int64_t i[3];
    if (r->in_place)
        return row_address(r, row);
    tensor_row_index(r->t, row, i);
    return row_read_at(r, i);
}

/* The row that number `row` of `whole` meets when r's tensor repeats to that shape. */
static inline const float *row_read_repeated(const struct rows *r, const struct tensor *whole, int64_t row)
{
    int64_t i[3];
    if (tensor_rows(r->t) == 1)
        row = 0;
    else if (tensor_rows(r->t) != tensor_rows(whole)) {
        tensor_row_index(whole, row, i);
        for (int j = 0; j < 3; j++)
            i[j] %= r->t->ne[j + 1];
        return row_read_at(r, i);
    }
    return row_read(r, row);
}

/* Writes row (i1, i2, i3) of any format and strides. */
static inline void row_write(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, const float *src)
{
    if (tensor_rows_contiguous(t))
        row_pack(t->format, src, tensor_row(t, i1, i2, i3), t->ne[0]);
    else
        tensor_write_row(t, i1, i2, i3, src);
}

/* ---- shares */

/* What is left of a worker's share of rows of n elements. */
struct share {
    int64_t unit, end, per_row, grain, n;
};

/* Elements [lo, hi) of a row. */
struct piece {
    int64_t row, lo, hi;
};

static inline struct share share_of(const struct worker *w, int64_t n_rows, int64_t n, int64_t grain)
{
    struct share s = {.per_row = (n + grain - 1) / grain, .grain = grain, .n = n};
    worker_range(w, n_rows * s.per_row, 1, &s.unit, &s.end);
    return s;
}

static inline bool share_next(struct share *s, struct piece *p)
{
    if (s->unit >= s->end)
        return false;
    int64_t first = s->unit % s->per_row, last = first + s->end - s->unit;
    last = last < s->per_row ? last : s->per_row;
    *p = (struct piece){s->unit / s->per_row, first * s->grain, last * s->grain < s->n ? last * s->grain : s->n};
    s->unit += last - first;
    return true;
}

#endif
