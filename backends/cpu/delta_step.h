/* delta_step.h: the gated delta rule for one head, token by token: a state S [d_k][d_v], rows of values one behind the other,
 * that each token decays, reads twice and corrects.
 *
 * With kv = S k and qv = S q taken of the state as it was, a token is
 *   delta = beta (v - decay kv);  S = decay S + k delta^T;  y = scale (decay qv + (q . k) delta),
 * so both sums come from one pass over S, and the correction of one token and the sums of the next from another: two passes for
 * one token, one for each of many. Vectors run over values, so nothing is summed across lanes; a column's sum goes over the
 * keys in order, in whatever way it is cut: a token alone and a few together give the same bits.
 *
 * One token: the rows stream from the old slot to the new one, whole rows where registers allow, and the second pass finds
 * them in the second-level cache. The bound is reading and writing 64 KB a head of 128: 16 heads take a core of Emerald Rapids
 * 81 us, and 54 where both slots are one; stores past the cache take 118, asking for the new slot's lines ahead 97. A few
 * tokens: DELTA_COLUMNS vectors of columns at a time lie compact in the first-level cache (32 KB) while the tokens go by, four
 * operations an element and token: 0.82 us a head and token, where two operations a cycle at 2.7 GHz allow 0.76. Many tokens go
 * in chunks (delta_chunk.h). */
#ifndef BACKENDS_CPU_DELTA_STEP_H
#define BACKENDS_CPU_DELTA_STEP_H

#include "backends/cpu/floats_math.h"

enum {
    DELTA_COLUMNS = V == 16 ? 4 : 2, /* vectors at a time, of several tokens: sums, deltas and rows fit the registers */
    DELTA_WIDE = V == 16 ? 8 : 4,    /* of one token */
    DELTA_MAX_KEYS = 256,
    DELTA_BLOCK = 64 /* tokens a block */
};

/* What one token brings to a head, and where its result goes. */
struct delta_token {
    const float *q, *k, *v;
    float *y;
    float decay, beta, qk; /* qk: q . k, wanted by steps alone */
};

/* One head of one sequence. from and to are its states, rows of d_v floats, row_bytes apart; from NULL: zeros; both may be one.
 */
struct delta_head {
    const char *from;
    char *to;
    size_t row_bytes;
    int64_t d_k, d_v;
    float scale;
};

INLINE float *delta_row(const char *state, const struct delta_head *h, int64_t i)
{
    return (float *)(void *)(uintptr_t)(state + (size_t)i * h->row_bytes);
}

INLINE float delta_dot(const float *a, const float *b, int64_t n)
{
    vf sum = v_zero();
    int64_t i = 0;
    for (; i + V <= n; i += V)
        sum = v_fma(v_load(a + i), v_load(b + i), sum);
    if (i < n)
        sum = v_fma(v_load_first(a + i, n - i), v_load_first(b + i, n - i), sum);
    return v_sum(sum);
}

/* From the sums of a token's vector of columns: its delta; stores the result. */
INLINE vf delta_result(const struct delta_token *t, vf scale, vf kv, vf qv, vf v, float *y, int64_t n)
{
    vf decay = v_all(t->decay), delta = v_all(t->beta) * v_fma(-decay, kv, v);
    v_store_up_to(y, scale * v_fma(v_all(t->qk), delta, decay * qv), n);
    return delta;
}

/* One token, `columns` whole vectors from column j on. */
INLINE void delta_one(const struct delta_head *h, const struct delta_token *t, int64_t j, int columns)
{
    vf kv[DELTA_WIDE], qv[DELTA_WIDE], decay = v_all(t->decay), zero = v_zero();
    UNROLL
    for (int c = 0; c < columns; c++)
        kv[c] = qv[c] = zero;
    for (int64_t i = 0; i < h->d_k && h->from; i++) {
        const float *row = delta_row(h->from, h, i) + j;
        vf k = v_all(t->k[i]), q = v_all(t->q[i]);
        UNROLL
        for (int c = 0; c < columns; c++) {
            vf s = v_load(row + c * V);
            kv[c] = v_fma(s, k, kv[c]);
            qv[c] = v_fma(s, q, qv[c]);
        }
    }
    UNROLL
    for (int c = 0; c < columns; c++)
        kv[c] = delta_result(t, v_all(h->scale), kv[c], qv[c], v_load(t->v + j + c * V), t->y + j + c * V, V);
    for (int64_t i = 0; i < h->d_k; i++) {
        const float *row = h->from ? delta_row(h->from, h, i) + j : NULL;
        float *next = delta_row(h->to, h, i) + j;
        vf k = v_all(t->k[i]);
        UNROLL
        for (int c = 0; c < columns; c++) {
            vf s = row ? v_load(row + c * V) : zero;
            v_store(next + c * V, v_fma(k, kv[c], decay * s));
        }
    }
}

/* n columns of the state from j on, as `columns` vectors, into room: [d_k][columns * V] floats. */
INLINE void delta_load(const struct delta_head *h, int64_t j, int64_t n, int columns, float *room)
{
    for (int64_t i = 0; i < h->d_k; i++)
        UNROLL
    for (int c = 0; c < columns; c++) {
        vf s = v_zero();
        if (h->from && n > c * V)
            s = v_load_up_to(delta_row(h->from, h, i) + j + c * V, n - c * V);
        v_store(room + (i * columns + c) * V, s);
    }
}

/* Several tokens, up to `columns` vectors: n columns from j on. room: [d_k][columns * V] floats. The first token finds
 * what the last block left: no delta. */
INLINE void delta_many(const struct delta_head *h, const struct delta_token *tokens, int n_tokens, int64_t j, int64_t n,
                       int columns, float *room)
{
    const int width = columns * V;
    vf delta[DELTA_COLUMNS], scale = v_all(h->scale);
    UNROLL
    for (int c = 0; c < columns; c++)
        delta[c] = v_zero();
    delta_load(h, j, n, columns, room);
    for (int t = 0; t < n_tokens; t++) {
        const float *k = tokens[t].k, *q = tokens[t].q, *before = t ? tokens[t - 1].k : NULL;
        vf kv[DELTA_COLUMNS], qv[DELTA_COLUMNS], decay = v_all(t ? tokens[t - 1].decay : 1);
        UNROLL
        for (int c = 0; c < columns; c++)
            kv[c] = qv[c] = v_zero();
        for (int64_t i = 0; i < h->d_k; i++) {
            float *row = room + i * width;
            vf k_i = v_all(k[i]), q_i = v_all(q[i]), before_i = v_all(before ? before[i] : 0);
            UNROLL
            for (int c = 0; c < columns; c++) {
                vf s = v_load(row + c * V);
                if (before) {
                    s = v_fma(before_i, delta[c], decay * s);
                    v_store(row + c * V, s);
                }
                kv[c] = v_fma(s, k_i, kv[c]);
                qv[c] = v_fma(s, q_i, qv[c]);
            }
        }
        UNROLL
        for (int c = 0; c < columns; c++)
            if (n > c * V)
                delta[c] = delta_result(&tokens[t], scale, kv[c], qv[c], v_load_up_to(tokens[t].v + j + c * V, n - c * V),
                                        tokens[t].y + j + c * V, n - c * V);
    }
    const struct delta_token *last = &tokens[n_tokens - 1];
    for (int64_t i = 0; i < h->d_k; i++)
        UNROLL
    for (int c = 0; c < columns; c++)
        if (n > c * V)
            v_store_up_to(delta_row(h->to, h, i) + j + c * V,
                          v_fma(v_all(last->k[i]), delta[c], v_all(last->decay) * v_load(room + i * width + c * V)), n - c * V);
}

#endif
