/* attention_tile.h: attention of many queries at once, tokens x heads of one KV head, over a block of positions (the online
 * softmax of Milakov and Gimelshein, arXiv 1805.02867, in tiles as by Dao et al., 2205.14135).
 *
 * TILE_STEP positions at a time: their keys are widened and transposed, so that scores are a plain matrix product of the
 * queries with them, a vector of positions a lane, no sum across lanes; a row's maximum and exponentials; then the weights
 * times the values, another plain product, added to sums that are scaled whenever a maximum grows. Both products are the same
 * small loop: 6 x 4 vectors (6 x 2 with AVX2) in registers, operands in the second-level cache. Bound by arithmetic.
 *
 * Positions that a token may not see have the weight 0. Should such a position hold a value that is not finite, 0 times
 * it would be NaN: then each row takes its own positions alone. */
#ifndef BACKENDS_CPU_ATTENTION_TILE_H
#define BACKENDS_CPU_ATTENTION_TILE_H

#include "backends/cpu/attention_cache.h"

enum {
    TILE_STEP = ATTENTION_STEP, /* positions */
    TILE_ROWS = 96,             /* queries */
    TILE_M = 6,                 /* of the tile in registers: rows, vectors */
    TILE_N = V == 16 ? 4 : 2
};

/* ---- c = a b, or c += a b: a [m][k] row by row, b [k][...], c [m][...], whole vectors */

INLINE void tile_product_of(int m, int n, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int64_t k,
                            float *c, int64_t c_stride, bool add)
{
    vf sums[TILE_M][TILE_N];
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int j = 0; j < n; j++)
        sums[r][j] = add ? v_load(c + r * c_stride + j * V) : v_zero();
    for (int64_t i = 0; i < k; i++) {
        vf x[TILE_N];
        UNROLL
        for (int j = 0; j < n; j++)
            x[j] = v_load(b + i * b_stride + j * V);
        UNROLL
        for (int r = 0; r < m; r++) {
            vf y = v_all(a[r * a_stride + i]);
            UNROLL
            for (int j = 0; j < n; j++)
                sums[r][j] = v_fma(y, x[j], sums[r][j]);
        }
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int j = 0; j < n; j++)
        v_store(c + r * c_stride + j * V, sums[r][j]);
}

INLINE void tile_product_rows(int n, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int64_t k, float *c,
                              int64_t c_stride, int64_t rows, bool add)
{
    int64_t r = 0;
    for (; r + TILE_M <= rows; r += TILE_M)
        tile_product_of(TILE_M, n, a + r * a_stride, a_stride, b, b_stride, k, c + r * c_stride, c_stride, add);
    for (; r + 2 <= rows; r += 2)
        tile_product_of(2, n, a + r * a_stride, a_stride, b, b_stride, k, c + r * c_stride, c_stride, add);
    if (r < rows)
        tile_product_of(1, n, a + r * a_stride, a_stride, b, b_stride, k, c + r * c_stride, c_stride, add);
}

/* `width` columns, a multiple of V. */
static void tile_product(const float *a, int64_t a_stride, const float *b, int64_t b_stride, int64_t k, float *c,
                         int64_t c_stride, int64_t rows, int64_t width, bool add)
{
    int64_t j = 0;
    for (; j + TILE_N * V <= width; j += TILE_N * V)
        tile_product_rows(TILE_N, a, a_stride, b + j, b_stride, k, c + j, c_stride, rows, add);
    for (; j < width; j += V)
        tile_product_rows(1, a, a_stride, b + j, b_stride, k, c + j, c_stride, rows, add);
}

/* ---- keys and values of a step */

/* V rows of V floats become V columns, each a row of `to`. */
INLINE void tile_transpose(vf *r, float *to, int64_t stride)
{
#ifdef __AVX512F__
    vf t[16];
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 within each 128 bits */
        vf a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        vf c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    UNROLL
    for (int j = 0; j < 4; j++) { /* and of the 128 bits */
        vf a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd);
        vf c = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88), d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
        v_store(to + j * stride, _mm512_shuffle_f32x4(a, c, 0x88));
        v_store(to + (4 + j) * stride, _mm512_shuffle_f32x4(b, d, 0x88));
        v_store(to + (8 + j) * stride, _mm512_shuffle_f32x4(a, c, 0xdd));
        v_store(to + (12 + j) * stride, _mm512_shuffle_f32x4(b, d, 0xdd));
    }
#else
    vf t[8];
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        vf a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        vf c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        v_store(to + j * stride, _mm256_permute2f128_ps(t[j], t[4 + j], 0x20));
        v_store(to + (4 + j) * stride, _mm256_permute2f128_ps(t[j], t[4 + j], 0x31));
    }
#endif
}

/* keys[i][c] = value i of row c; columns behind n, up to a whole vector, are zeros. */
INLINE void tile_keys_as(enum format_id format, const char *const *rows, int n, int64_t padded, float *keys)
{
    for (int c = 0; c < n; c += V)
        for (int64_t i = 0; i < padded; i += V) {
            vf r[V];
            UNROLL
            for (int j = 0; j < V; j++)
                r[j] = c + j < n ? cache_load(format, rows[c + j], i) : v_zero();
            tile_transpose(r, keys + i * TILE_STEP + c, TILE_STEP);
        }
}

static void tile_keys(enum format_id format, const char *const *rows, int n, int64_t padded,
                      float *keys){CACHE_AS(format, tile_keys_as, rows, n, padded, keys)}

/* values[c] = row c as floats. Whether all are finite. */
INLINE bool tile_values_as(enum format_id format, const char *const *rows, int n, int64_t padded, float *values)
{
    vf sum = v_zero(); /* of zeros: x - x is NaN for what is not finite */
    for (int c = 0; c < n; c++)
        for (int64_t i = 0; i < padded; i += V) {
            vf x = cache_load(format, rows[c], i);
            v_store(values + c * padded + i, x);
            sum = sum + (x - x);
        }
    return !isnan(v_sum(sum));
}

static bool tile_values(enum format_id format, const char *const *rows, int n, int64_t padded, float *values)
{
    CACHE_AS(format, tile_values_as, rows, n, padded, values)
}

/* ---- a block */

struct tile_scratch {
    float *keys, *values, *scores; /* [padded][TILE_STEP], [TILE_STEP][padded], [TILE_ROWS][TILE_STEP] */
};

/* Many queries: row r sees the positions low[r] to high[r]. */
struct tile_queries {
    const float *q; /* [rows][padded], scaled */
    int64_t rows;
    const int32_t *low, *high;
};

/* One row's scores of a step become weights; the row's maximum, sum and values so far follow. n positions in `vectors` vectors.
 */
INLINE void tile_softmax_of(bool masked, float *scores, const int32_t *positions, int32_t low, int32_t high, float softcap,
                            const struct partial *out, int64_t row, int64_t padded)
{
    vf s[TILE_STEP / V], most = v_all(-INFINITY), total = v_zero();
    UNROLL
    for (int j = 0; j < TILE_STEP / V; j++) {
        s[j] = attention_cap(v_load(scores + j * V), softcap);
        if (masked)
            s[j] = v_select(v_within(positions + j * V, low, high), s[j], v_all(-INFINITY));
        most = v_max(most, s[j]);
    }
    float before = out->max[row], largest = v_largest(most), max = largest > before || isnan(largest) ? largest : before;
    if (max == -INFINITY) {
        memset(scores, 0, sizeof *scores * TILE_STEP);
        return;
    }
    UNROLL
    for (int j = 0; j < TILE_STEP / V; j++) {
        s[j] = v_exp(s[j] - v_all(max));
        v_store(scores + j * V, s[j]);
        total = total + s[j];
    }
    float sum = v_sum(total), sum_before = out->sum[row];
    if (max != before && before != -INFINITY) {
        vf keep = v_exp(v_all(before - max));
        float *values = out->values + row * padded;
        for (int64_t i = 0; i < padded; i += V)
            v_store(values + i, v_load(values + i) * keep);
        sum_before *= v_lane_0(keep);
    }
    out->max[row] = max;
    out->sum[row] = sum_before + sum;
}

/* The same for all rows of a step; gaps: not all of its positions are there. */
static void tile_softmax(float *scores, bool gaps, const int32_t *positions, const struct tile_queries *t, float softcap,
                         const struct partial *out, int64_t padded)
{
    for (int64_t r = 0; r < t->rows; r++, scores += TILE_STEP) {
        int32_t low = t->low[r], high = t->high[r];
        bool masked = gaps || low > positions[0] || high < positions[TILE_STEP - 1];
        if (!masked && softcap <= 0)
            tile_softmax_of(false, scores, positions, low, high, 0, out, r, padded);
        else
            tile_softmax_of(true, scores, positions, low, high, softcap, out, r, padded);
    }
}

/* The weighted sums of each row over the positions that it sees and no other. */
static void tile_add_apart(const struct tile_queries *t, const struct tile_scratch *s, const int32_t *positions, int n,
                           const struct partial *out, int64_t padded)
{
    for (int64_t r = 0; r < t->rows; r++)
        for (int c = 0; c < n; c++)
            if (positions[c] >= t->low[r] && positions[c] <= t->high[r])
                tile_product(s->scores + r * TILE_STEP + c, TILE_STEP, s->values + c * padded, padded, 1,
                             out->values + r * padded, padded, 1, padded, true);
}

static void tile_block(const struct tile_queries *t, const struct block *b, const char *const *k_rows,
                       const char *const *v_rows, enum format_id k_format, enum format_id v_format, int64_t k_padded,
                       int64_t v_padded, float softcap, const struct tile_scratch *s, const struct partial *out)
{
    for (int64_t r = 0; r < t->rows; r++) {
        out->max[r] = -INFINITY;
        out->sum[r] = 0;
    }
    memset(out->values, 0, sizeof *out->values * (size_t)(t->rows * v_padded));
    for (int c = 0; c < b->n; c += TILE_STEP) {
        int n = b->n - c < TILE_STEP ? b->n - c : TILE_STEP, width = (n + V - 1) / V * V;
        const int32_t *positions = b->positions + c;
        tile_keys(k_format, k_rows + c, n, k_padded, s->keys);
        bool finite = tile_values(v_format, v_rows + c, n, v_padded, s->values);
        tile_product(t->q, k_padded, s->keys, TILE_STEP, k_padded, s->scores, TILE_STEP, t->rows, width, false);
        bool gaps = false;
        for (int j = 0; j < TILE_STEP; j++)
            gaps |= positions[j] < 0;
        tile_softmax(s->scores, gaps, positions, t, softcap, out, v_padded);
        if (finite)
            tile_product(s->scores, TILE_STEP, s->values, v_padded, n, out->values, v_padded, t->rows, v_padded, true);
        else
            tile_add_apart(t, s, positions, n, out, v_padded);
    }
}

#endif
