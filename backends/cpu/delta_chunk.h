/* delta_chunk.h: the gated delta rule for many tokens of a head: within a chunk of tokens matrix products, and the state moves
 * on once a chunk (the parallel form of Yang, Kautz and Hatamizadeh, arXiv 2412.06464).
 *
 * Let S be the state before the chunk, d_t the decay of token t, D_ts = d_(s+1) ... d_t what is left at t of what s wrote, and
 * G_t = d_1 ... d_t. Unrolled, the state behind token t is G_t S + sum_(s <= t) D_ts k_s delta_s^T, so
 *   delta_t = beta_t (v_t - G_t S k_t) - sum_(s < t) beta_t D_ts (k_s . k_t) delta_s
 *   y_t = scale (G_t S q_t + sum_(s <= t) D_ts (k_s . q_t) delta_s)
 * The first is a lower triangular system, solved from the first token down, a tile of tokens at a time. The paper's UT
 * transform inverts it, so that a GPU need not wait for one row after the other; here rows of other columns fill the wait.
 *
 * Decays are multiplied, never divided or taken as differences of logarithms: D gains a column and a factor with each token. So
 * nothing overflows that the decays themselves do not, and a decay of zero is no NaN.
 *
 * A step costs 4 d^2 operations a token and head, a chunk of n 3 d^2 for the products with S and some 2 n d for what the tokens
 * have with each other. Measured beside other work, 128 tokens, the least of 30 runs, a head and token of 128 x 128 on a core
 * of Emerald Rapids: steps 0.94 us, chunks of 8, 16, 24 and 32 0.82, 0.86, 0.89 and 0.93; where a sequence begins, and the
 * first chunk has no state to multiply with, 0.97 against 0.79. With AVX2 1.74 against 1.64. A longer first chunk lost (of
 * 48 tokens: 0.84). Up to 7 tokens steps are as fast or faster. */
#ifndef BACKENDS_CPU_DELTA_CHUNK_H
#define BACKENDS_CPU_DELTA_CHUNK_H

#include "backends/cpu/delta_step.h"

enum {
    DELTA_FEW = 8,               /* fewer tokens go one by one */
    DELTA_CHUNK = 16,            /* tokens a chunk, a multiple of the tile and the group */
    DELTA_PANEL = DELTA_COLUMNS, /* vectors at a time */
    DELTA_TILE = 4,              /* tokens (or keys) at a time: their sums of DELTA_PANEL vectors fit the registers */
    DELTA_GROUP = 4              /* keys that a token is multiplied with at a time */
};

/* A worker's room for a block of tokens. A token's products are with those of its own chunk. */
struct delta_room {
    float state[DELTA_MAX_KEYS * DELTA_COLUMNS * V]; /* [d_k][columns]: the columns at hand */
    float deltas[DELTA_CHUNK * DELTA_PANEL * V];     /* [tokens of a chunk][columns] */
    float keys[DELTA_BLOCK][DELTA_CHUNK];            /* [t][s]: -beta_t D_ts (k_s . k_t), s < t */
    float queries[DELTA_BLOCK][DELTA_CHUNK];         /* [t][s]: scale D_ts (k_s . q_t), s <= t */
    float decay[DELTA_BLOCK];                        /* G_t */
    float left[DELTA_BLOCK];                         /* D_ts of the chunk's last token */
};

/* The part of a block that is one chunk. */
struct delta_part {
    const struct delta_token *tokens;
    int n;
    bool begins; /* S is zero */
    float (*keys)[DELTA_CHUNK], (*queries)[DELTA_CHUNK];
    float *decay, *left;
};

static inline struct delta_part delta_part_of(const struct delta_head *h, const struct delta_token *tokens, int n_tokens,
                                              int first, struct delta_room *room)
{
    return (struct delta_part){.tokens = tokens + first,
                               .n = n_tokens - first < DELTA_CHUNK ? n_tokens - first : DELTA_CHUNK,
                               .begins = !first && !h->from,
                               .keys = room->keys + first,
                               .queries = room->queries + first,
                               .decay = room->decay + first,
                               .left = room->left + first};
}

/* ---- what the tokens have with each other */

/* Token t's key and query times the keys of DELTA_GROUP tokens from s on; those behind t are t's again. */
INLINE void delta_group(const struct delta_part *c, int t, int s, int64_t d_k)
{
    const float *key = c->tokens[t].k, *query = c->tokens[t].q, *with[DELTA_GROUP];
    vf k[DELTA_GROUP], q[DELTA_GROUP];
    UNROLL
    for (int r = 0; r < DELTA_GROUP; r++) {
        with[r] = c->tokens[s + r < t ? s + r : t].k;
        k[r] = q[r] = v_zero();
    }
    for (int64_t i = 0; i < d_k; i += V) {
        vf key_i = v_load_up_to(key + i, d_k - i), query_i = v_load_up_to(query + i, d_k - i);
        UNROLL
        for (int r = 0; r < DELTA_GROUP; r++) {
            vf x = v_load_up_to(with[r] + i, d_k - i);
            k[r] = v_fma(x, key_i, k[r]);
            q[r] = v_fma(x, query_i, q[r]);
        }
    }
    UNROLL
    for (int r = 0; r < DELTA_GROUP; r++) {
        c->keys[t][s + r] = v_sum(k[r]);
        c->queries[t][s + r] = v_sum(q[r]);
    }
}

/* D and G below 2^-90 are zeros: nothing of them is left in any sum, but times small values they would make denormal ones, of
 * which each operation traps into microcode (about 150 cycles). A head that keeps 1e-7 a token comes there within a chunk. */
INLINE vf delta_kept(vf left)
{
    return v_select(v_lt(left, v_all(0x1p-90f)), v_zero(), left);
}

static inline void delta_products_between(const struct delta_head *h, const struct delta_part *c)
{
    vf decay = v_all(1);
    for (int t = 0; t < c->n; t++) {
        const struct delta_token *token = &c->tokens[t];
        for (int s = 0; s <= t; s += DELTA_GROUP)
            delta_group(c, t, s, h->d_k);
        decay = delta_kept(decay * v_all(token->decay));
        c->decay[t] = v_lane_0(decay);
        for (int s = 0; s < t; s += V)
            v_store_up_to(c->left + s, delta_kept(v_load_up_to(c->left + s, t - s) * v_all(token->decay)), t - s);
        c->left[t] = 1;
        for (int s = 0; s <= t; s += V) {
            int some = t + 1 - s;
            vf left = v_load_up_to(c->left + s, some);
            v_store_up_to(c->keys[t] + s, v_load_up_to(c->keys[t] + s, some) * (left * v_all(-token->beta)), some);
            v_store_up_to(c->queries[t] + s, v_load_up_to(c->queries[t] + s, some) * (left * v_all(h->scale)), some);
        }
    }
}

/* ---- columns: `columns` vectors, n columns of values from j on */

typedef vf delta_sums[DELTA_TILE][DELTA_PANEL];

INLINE void delta_no_sums(delta_sums sums, int columns)
{
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++)
        UNROLL
    for (int c = 0; c < columns; c++)
        sums[r][c] = v_zero();
}

/* sums[r] += rows[r][0 .. n) times the n rows of m. */
INLINE void delta_multiply(delta_sums sums, const float *const *rows, const float *m, int64_t n, int columns)
{
    for (int64_t i = 0; i < n; i++) {
        vf m_i[DELTA_PANEL];
        UNROLL
        for (int c = 0; c < columns; c++)
            m_i[c] = v_load(m + (i * columns + c) * V);
        UNROLL
        for (int r = 0; r < DELTA_TILE; r++) {
            vf x = v_all(rows[r][i]);
            UNROLL
            for (int c = 0; c < columns; c++)
                sums[r][c] = v_fma(x, m_i[c], sums[r][c]);
        }
    }
}

/* Tokens of a tile from t on; one behind the last is the last again, and what comes of it is not used. */
INLINE int delta_row_of(const struct delta_part *p, int t, int r)
{
    return t + r < p->n ? t + r : p->n - 1;
}

/* The deltas of a tile, into their rows of the room. */
INLINE void delta_tile_deltas(const struct delta_head *h, const struct delta_part *p, int t, int64_t j, int64_t n, int columns,
                              struct delta_room *room)
{
    const float *k[DELTA_TILE], *between[DELTA_TILE];
    delta_sums sums;
    delta_no_sums(sums, columns);
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++) {
        k[r] = p->tokens[delta_row_of(p, t, r)].k;
        between[r] = p->keys[delta_row_of(p, t, r)];
    }
    if (!p->begins)
        delta_multiply(sums, k, room->state, h->d_k, columns);
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++) {
        const struct delta_token *token = &p->tokens[delta_row_of(p, t, r)];
        vf decay = v_all(-p->decay[delta_row_of(p, t, r)]), beta = v_all(token->beta);
        UNROLL
        for (int c = 0; c < columns; c++)
            if (n > c * V)
                sums[r][c] = beta * v_fma(decay, sums[r][c], v_load_up_to(token->v + j + c * V, n - c * V));
    }
    delta_multiply(sums, between, room->deltas, t, columns);
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++) {
        UNROLL
        for (int s = 0; s < DELTA_TILE; s++)
            UNROLL
        for (int c = 0; c < columns; c++)
            if (s < r)
                sums[r][c] = v_fma(v_all(between[r][t + s]), sums[s][c], sums[r][c]);
        UNROLL
        for (int c = 0; c < columns; c++)
            v_store(room->deltas + ((t + r) * columns + c) * V, sums[r][c]);
    }
}

/* The results of a tile whose deltas are there. */
INLINE void delta_tile_results(const struct delta_head *h, const struct delta_part *p, int t, int64_t j, int64_t n, int columns,
                               const struct delta_room *room)
{
    const float *q[DELTA_TILE], *between[DELTA_TILE];
    delta_sums sums;
    delta_no_sums(sums, columns);
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++) {
        q[r] = p->tokens[delta_row_of(p, t, r)].q;
        between[r] = p->queries[delta_row_of(p, t, r)];
    }
    if (!p->begins) {
        delta_multiply(sums, q, room->state, h->d_k, columns);
        UNROLL
        for (int r = 0; r < DELTA_TILE; r++)
            UNROLL
        for (int c = 0; c < columns; c++)
            sums[r][c] = sums[r][c] * v_all(h->scale * p->decay[delta_row_of(p, t, r)]);
    }
    delta_multiply(sums, between, room->deltas, t, columns);
    UNROLL
    for (int r = 0; r < DELTA_TILE; r++) {
        UNROLL
        for (int s = 0; s < DELTA_TILE; s++)
            UNROLL
        for (int c = 0; c < columns; c++)
            if (s <= r)
                sums[r][c] = v_fma(v_all(between[r][t + s]), v_load(room->deltas + ((t + s) * columns + c) * V), sums[r][c]);
        UNROLL
        for (int c = 0; c < columns; c++)
            if (t + r < p->n && n > c * V)
                v_store_up_to(p->tokens[t + r].y + j + c * V, sums[r][c], n - c * V);
    }
}

/* Rows [i, i + keys) of the state behind the chunk; the deltas are times what is left of them. */
INLINE void delta_move(const struct delta_part *p, int64_t i, int keys, int columns, struct delta_room *room)
{
    float *state = room->state + i * columns * V;
    vf decay = v_all(p->decay[p->n - 1]);
    delta_sums sums;
    UNROLL
    for (int r = 0; r < keys; r++)
        UNROLL
    for (int c = 0; c < columns; c++)
        sums[r][c] = decay * v_load(state + (r * columns + c) * V);
    for (int s = 0; s < p->n; s++) {
        const float *k = p->tokens[s].k + i;
        vf delta[DELTA_PANEL];
        UNROLL
        for (int c = 0; c < columns; c++)
            delta[c] = v_load(room->deltas + (s * columns + c) * V);
        UNROLL
        for (int r = 0; r < keys; r++)
            UNROLL
        for (int c = 0; c < columns; c++)
            sums[r][c] = v_fma(v_all(k[r]), delta[c], sums[r][c]);
    }
    UNROLL
    for (int r = 0; r < keys; r++)
        UNROLL
    for (int c = 0; c < columns; c++)
        v_store(state + (r * columns + c) * V, sums[r][c]);
}

INLINE void delta_columns(const struct delta_head *h, const struct delta_token *tokens, int n_tokens, int64_t j, int64_t n,
                          int columns, struct delta_room *room)
{
    delta_load(h, j, n, columns, room->state);
    struct delta_part p;
    for (int first = 0; first < n_tokens; first += p.n) {
        p = delta_part_of(h, tokens, n_tokens, first, room);
        for (int t = 0; t < p.n; t += DELTA_TILE) {
            delta_tile_deltas(h, &p, t, j, n, columns, room);
            delta_tile_results(h, &p, t, j, n, columns, room);
        }
        for (int s = 0; s < p.n; s++)
            UNROLL
        for (int c = 0; c < columns; c++) {
            float *delta = room->deltas + (s * columns + c) * V;
            v_store(delta, v_load(delta) * v_all(p.left[s]));
        }
        int64_t i = 0;
        for (; i + DELTA_TILE <= h->d_k; i += DELTA_TILE)
            delta_move(&p, i, DELTA_TILE, columns, room);
        for (; i < h->d_k; i++)
            delta_move(&p, i, 1, columns, room);
    }
    for (int64_t i = 0; i < h->d_k; i++)
        UNROLL
    for (int c = 0; c < columns; c++)
        if (n > c * V)
            v_store_up_to(delta_row(h->to, h, i) + j + c * V, v_load(room->state + (i * columns + c) * V), n - c * V);
}

/* A block of tokens, in chunks. */
static inline void delta_chunks(const struct delta_head *h, const struct delta_token *tokens, int n_tokens,
                                struct delta_room *room)
{
    struct delta_part p;
    for (int first = 0; first < n_tokens; first += p.n) {
        p = delta_part_of(h, tokens, n_tokens, first, room);
        delta_products_between(h, &p);
    }
    int64_t j = 0;
    for (; j + DELTA_PANEL * V <= h->d_v; j += DELTA_PANEL * V)
        delta_columns(h, tokens, n_tokens, j, DELTA_PANEL * V, DELTA_PANEL, room);
    for (; j < h->d_v; j += V)
        delta_columns(h, tokens, n_tokens, j, h->d_v - j < V ? h->d_v - j : V, 1, room);
}

#endif
