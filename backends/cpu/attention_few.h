/* attention_few.h: attention of one token: a few queries, the heads of one KV head's group, over a block of positions.
 *
 * Each row of K and V is loaded and widened once for up to FEW_HEADS heads. Scores: a tile of cells x heads of dot products in
 * registers, whose lanes are then summed together (3 instructions a score instead of 8). Values: the weighted sum of up to four
 * vectors of each head stays in registers over the whole block. So a cell costs about two vector instructions for each 16
 * values and head, and with four heads a core reads 8 to 9 bytes a cycle: the rate at which it gets them from memory.
 *
 * Transposing K, as attention_tile.h does, costs 16 shuffles a cell: it pays from about 8 heads on. */
#ifndef BACKENDS_CPU_ATTENTION_FEW_H
#define BACKENDS_CPU_ATTENTION_FEW_H

#include "backends/cpu/attention_cache.h"

enum {
    FEW_HEADS = V == 16 ? 4 : 3, /* at once; more go in turns */
    FEW_MOST = 8                 /* heads for which this way is taken at all */
};

/* out[j] = the sum of a[j]'s lanes, j < n; n is 4, 8 or 16. */
INLINE void few_sums(const vf *a, int n, float *out)
{
    vf quad[4]; /* in each 128 bits: what is left to sum of a[4 q] to a[4 q + 3] */
    UNROLL
    for (int q = 0; q < n / 4; q++) {
        const vf *p = a + 4 * q;
#ifdef __AVX512F__
        vf x = _mm512_unpacklo_ps(p[0], p[1]) + _mm512_unpackhi_ps(p[0], p[1]);
        vf y = _mm512_unpacklo_ps(p[2], p[3]) + _mm512_unpackhi_ps(p[2], p[3]);
        quad[q] = _mm512_shuffle_ps(x, y, 0x44) + _mm512_shuffle_ps(x, y, 0xee);
#else
        vf x = _mm256_unpacklo_ps(p[0], p[1]) + _mm256_unpackhi_ps(p[0], p[1]);
        vf y = _mm256_unpacklo_ps(p[2], p[3]) + _mm256_unpackhi_ps(p[2], p[3]);
        quad[q] = _mm256_shuffle_ps(x, y, 0x44) + _mm256_shuffle_ps(x, y, 0xee);
#endif
    }
#ifdef __AVX512F__
    if (n == 4) {
        __m256 h = _mm256_add_ps(_mm512_castps512_ps256(quad[0]), _mm512_extractf32x8_ps(quad[0], 1));
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
        return;
    }
    vf x = _mm512_shuffle_f32x4(quad[0], quad[1], 0x88) + _mm512_shuffle_f32x4(quad[0], quad[1], 0xdd), y = x;
    if (n == 16)
        y = _mm512_shuffle_f32x4(quad[2], quad[3], 0x88) + _mm512_shuffle_f32x4(quad[2], quad[3], 0xdd);
    x = _mm512_shuffle_f32x4(x, y, 0x88) + _mm512_shuffle_f32x4(x, y, 0xdd);
    if (n == 16)
        v_store(out, x);
    else
        _mm256_storeu_ps(out, _mm512_castps512_ps256(x));
#else
    if (n == 4)
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(quad[0]), _mm256_extractf128_ps(quad[0], 1)));
    UNROLL
    for (int q = 0; q + 1 < n / 4; q += 2)
        _mm256_storeu_ps(out + 4 * q, _mm256_permute2f128_ps(quad[q], quad[q + 1], 0x20) +
                                          _mm256_permute2f128_ps(quad[q], quad[q + 1], 0x31));
#endif
}

/* The same for 16 sums of several heads, which go to the rows of the scores. */
INLINE void few_sums_16(vf (*sums)[16], int heads, float *scores)
{
    const int each = 16 / heads;
    vf all[16];
    float out[16];
    UNROLL
    for (int j = 0; j < 16; j++)
        all[j] = sums[j / each][j % each];
    few_sums(all, 16, out);
    for (int h = 0; h < heads; h++)
        memcpy(scores + h * ATTENTION_BLOCK, out + h * each, sizeof(float) * (size_t)each);
}

/* Adds the products of values i + u .. of the rows and the queries; u is a constant, i a multiple of a block. */
INLINE void few_products(enum format_id format, int heads, int at_once, const char *const *row, int64_t i, int u,
                         const float *queries, int64_t padded, vf (*sums)[16])
{
    vf q[FEW_HEADS];
    UNROLL
    for (int h = 0; h < heads; h++)
        q[h] = v_load(queries + h * padded + i + u);
    UNROLL
    for (int j = 0; j < at_once; j++) {
        vf k = cache_load_at(format, row[j], i, u);
        UNROLL
        for (int h = 0; h < heads; h++)
            sums[h][j] = v_fma(k, q[h], sums[h][j]);
    }
}

/* scores[h][cell] of `heads` heads for n cells; scores of the last cell may follow, up to a multiple of 16. */
INLINE void few_scores_of(enum format_id format, int heads, const char *const *rows, int n, const float *queries,
                          int64_t padded, float *scores)
{
    const int at_once = V == 16 ? (heads == 1 ? 16 : heads < 4 ? 8 : 4) : (heads == 1 ? 8 : 4);
    const int turn = format == FORMAT_Q8_0 || format == FORMAT_Q4_0 ? 32 : V; /* a block's scale is widened once */
    for (int c = 0; c < n; c += at_once) {
        const char *row[16];
        vf sums[FEW_HEADS][16];
        UNROLL
        for (int j = 0; j < at_once; j++)
            row[j] = rows[c + j < n ? c + j : n - 1];
        UNROLL
        for (int h = 0; h < heads; h++)
            UNROLL
        for (int j = 0; j < at_once; j++)
            sums[h][j] = v_zero();
        for (int64_t i = 0; i < padded; i += turn)
            UNROLL
        for (int u = 0; u < turn; u += V)
            few_products(format, heads, at_once, row, i, u, queries, padded, sums);
        if (heads * at_once == 16) {
            few_sums_16(sums, heads, scores + c);
            continue;
        }
        UNROLL
        for (int h = 0; h < heads; h++)
            few_sums(sums[h], at_once, scores + h * ATTENTION_BLOCK + c);
    }
}

/* values[h][i ..] = sum over cells of weights[h][cell] row[cell][i ..], `vectors` vectors. */
INLINE void few_values_of(enum format_id format, int heads, int vectors, const char *const *rows, int n, const float *weights,
                          int64_t i, float *values, int64_t padded)
{
    vf sums[FEW_HEADS][4];
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int j = 0; j < vectors; j++)
        sums[h][j] = v_zero();
    for (int c = 0; c < n; c++) {
        vf x[4];
        UNROLL
        for (int j = 0; j < vectors; j++)
            x[j] = vectors == 4 ? cache_load_at(format, rows[c], i, j * V) : cache_load(format, rows[c], i);
        UNROLL
        for (int h = 0; h < heads; h++) {
            vf w = v_all(weights[h * ATTENTION_BLOCK + c]);
            UNROLL
            for (int j = 0; j < vectors; j++)
                sums[h][j] = v_fma(x[j], w, sums[h][j]);
        }
    }
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int j = 0; j < vectors; j++)
        v_store(values + h * padded + i + j * V, sums[h][j]);
}

/* From here on `heads` and `format` become the constants that the loops above are built for. */
INLINE void few_scores_as(enum format_id format, int heads, const char *const *rows, int n, const float *queries,
                          int64_t padded, float *scores)
{
    if (heads == 1)
        few_scores_of(format, 1, rows, n, queries, padded, scores);
    else if (heads == 2)
        few_scores_of(format, 2, rows, n, queries, padded, scores);
    else if (heads == 3)
        few_scores_of(format, 3, rows, n, queries, padded, scores);
    else
        few_scores_of(format, FEW_HEADS, rows, n, queries, padded, scores);
}

INLINE void few_values_slice(enum format_id format, int heads, int vectors, const char *const *rows, int n,
                             const float *weights, int64_t i, float *values, int64_t padded)
{
    if (heads == 1)
        few_values_of(format, 1, vectors, rows, n, weights, i, values, padded);
    else if (heads == 2)
        few_values_of(format, 2, vectors, rows, n, weights, i, values, padded);
    else if (heads == 3)
        few_values_of(format, 3, vectors, rows, n, weights, i, values, padded);
    else
        few_values_of(format, FEW_HEADS, vectors, rows, n, weights, i, values, padded);
}

INLINE void few_values_as(enum format_id format, int heads, const char *const *rows, int n, const float *weights, float *values,
                          int64_t padded)
{
    int64_t i = 0;
    for (; i + 4 * V <= padded; i += 4 * V)
        few_values_slice(format, heads, 4, rows, n, weights, i, values, padded);
    for (; i < padded; i += V)
        few_values_slice(format, heads, 1, rows, n, weights, i, values, padded);
}

static void few_scores(enum format_id format, int heads, const char *const *rows, int n, const float *queries, int64_t padded,
                       float *scores)
{
    CACHE_AS(format, few_scores_as, heads, rows, n, queries, padded, scores)
}

static void few_values(enum format_id format, int heads, const char *const *rows, int n, const float *weights, float *values,
                       int64_t padded)
{
    CACHE_AS(format, few_values_as, heads, rows, n, weights, values, padded)
}

/* Scores become weights; their maximum and sum. */
static inline void few_softmax(float *scores, int n, float softcap, float *max, float *sum)
{
    vf most = v_all(-INFINITY), total = v_zero();
    for (int c = 0; c < n; c += V) {
        vf s = attention_cap(v_load(scores + c), softcap);
        if (c + V > n)
            s = v_select(v_first(n - c), s, v_all(-INFINITY));
        v_store(scores + c, s);
        most = v_max(most, s);
    }
    *max = v_largest(most);
    for (int c = 0; c < n; c += V) {
        vf w = v_exp(v_load(scores + c) - v_all(*max));
        v_store(scores + c, w);
        total = total + w;
    }
    *sum = v_sum(total);
}

/* The result of `heads` queries over n > 0 cells. scores: [FEW_HEADS][ATTENTION_BLOCK] floats of scratch. */
static inline void few_block(enum format_id k_format, enum format_id v_format, const char *const *k_rows,
                             const char *const *v_rows, int n, int heads, const float *queries, int64_t k_padded,
                             int64_t v_padded, float softcap, float *scores, const struct partial *out)
{
    for (int h = 0; h < heads; h += FEW_HEADS) {
        int some = heads - h < FEW_HEADS ? heads - h : FEW_HEADS;
        few_scores(k_format, some, k_rows, n, queries + h * k_padded, k_padded, scores);
        for (int j = 0; j < some; j++)
            few_softmax(scores + j * ATTENTION_BLOCK, n, softcap, &out->max[h + j], &out->sum[h + j]);
        few_values(v_format, some, v_rows, n, scores, out->values + h * v_padded, v_padded);
    }
}

#endif
