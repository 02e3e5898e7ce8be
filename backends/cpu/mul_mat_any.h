/* mul_mat_any.h: the body of the matrix products that take everything: any weight format in any layout, any strides, batches,
 * any activation. What has no kernel of its own is slower here, but vectorised.
 *
 * Four rows of W are unpacked to f32 in scratch (f32 rows are read where they lie) and meet four tokens at a time; a vector
 * runs along k, and its lanes are added at the end. Unpacking is shared by all tokens of a chunk; activations that are not
 * plain f32 rows are unpacked once a chunk. Workers share the rows of W, or the tokens where W has few rows. An output is one
 * sum in a fixed order, whatever the shares, chunks and tiles are. */
#ifndef BACKENDS_CPU_MUL_MAT_ANY_H
#define BACKENDS_CPU_MUL_MAT_ANY_H

#include "backends/backend.h"
#include "base/cpu.h"

enum {
    ANY_ROWS = 4,
    ANY_TOKENS = 4,
    ANY_CHUNK = 32,           /* tokens that share an unpacked row */
    ANY_CHUNK_BYTES = 1 << 20 /* of f32 tokens, in the second-level cache; fewer tokens when rows are long */
};

/* out[r][t] = w[r] . x[t], for constant numbers of rows and tokens. */
VEC_INLINE void any_tile(const float *const *w, int rows, const float *const *x, int tokens, int64_t k,
                         float (*out)[ANY_TOKENS])
{
    vec_f sums[ANY_ROWS][ANY_TOKENS], a[ANY_ROWS], b;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++)
            sums[r][t] = vec_all_f32(0);
    int64_t whole = k / VEC_ROWS * VEC_ROWS;
    for (int64_t i = 0; i < whole; i += VEC_ROWS) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            a[r] = vec_load_f32(w[r] + i);
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            b = vec_load_f32(x[t] + i);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sums[r][t] = vec_fma(a[r], b, sums[r][t]);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        b = k > whole ? vec_load_part(x[t] + whole, k - whole) : vec_all_f32(0);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            a[r] = k > whole ? vec_load_part(w[r] + whole, k - whole) : vec_all_f32(0);
            out[r][t] = vec_sum(vec_fma(a[r], b, sums[r][t]));
        }
    }
}

static inline int any_chunk(int64_t k)
{
    int64_t fit = ANY_CHUNK_BYTES / (int64_t)sizeof(float) / (k > 0 ? k : 1) / ANY_TOKENS * ANY_TOKENS;
    return fit < ANY_TOKENS ? ANY_TOKENS : fit > ANY_CHUNK ? ANY_CHUNK : (int)fit;
}

static inline size_t any_scratch(const struct node *n)
{
    size_t k = (size_t)(n->src[0]->ne[0] + 15) / 16 * 16;
    return (size_t)(ANY_ROWS + any_chunk(n->src[0]->ne[0])) * k * sizeof(float);
}

/* A batch of n's output, and the share of it that a worker does. */
struct any_part {
    const struct node *node;
    int64_t i2, i3;
    int64_t rows[2], tokens[2];
    float *scratch; /* of any_scratch bytes */
};

VEC_INLINE void any_tokens(const struct any_part *p, const float *const *w, int64_t row, int rows, const float *const *x,
                           int64_t token, int tokens)
{
    const struct tensor *out = p->node->out;
    float sums[ANY_ROWS][ANY_TOKENS];
    int64_t k = p->node->src[0]->ne[0];
    int done = tokens == ANY_TOKENS ? ANY_TOKENS : 1;
    for (int t = 0; t < tokens; t += done) {
        if (rows == ANY_ROWS && done == ANY_TOKENS)
            any_tile(w, ANY_ROWS, x, ANY_TOKENS, k, sums);
        else if (rows == ANY_ROWS)
            any_tile(w, ANY_ROWS, x + t, 1, k, sums);
        else
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < done; i++)
                    any_tile(w + r, 1, x + t + i, 1, k, (float(*)[ANY_TOKENS])(void *)&sums[r][i]);
        for (int i = 0; i < done; i++)
            for (int r = 0; r < rows; r++)
                memcpy((char *)tensor_row(out, token + t + i, p->i2, p->i3) + (size_t)(row + r) * out->nb[0], &sums[r][i],
                       sizeof(float));
    }
}

VEC_INLINE void any_part(const struct any_part *p)
{
    const struct tensor *w = p->node->src[0], *x = p->node->src[1];
    int64_t k = w->ne[0], step = (k + 15) / 16 * 16, w2 = p->i2 / (x->ne[2] / w->ne[2]), w3 = p->i3 / (x->ne[3] / w->ne[3]);
    for (int64_t first = p->tokens[0]; first < p->tokens[1]; first += any_chunk(k)) {
        int count = p->tokens[1] - first < any_chunk(k) ? (int)(p->tokens[1] - first) : any_chunk(k);
        const float *rows[ANY_ROWS], *tokens[ANY_CHUNK];
        for (int t = 0; t < count; t++)
            tokens[t] = tensor_read_row(x, first + t, p->i2, p->i3, p->scratch + (ANY_ROWS + t) * step);
        for (int64_t row = p->rows[0]; row < p->rows[1]; row += ANY_ROWS) {
            int n_rows = p->rows[1] - row < ANY_ROWS ? (int)(p->rows[1] - row) : ANY_ROWS;
            for (int r = 0; r < n_rows; r++)
                rows[r] = tensor_read_row(w, row + r, w2, w3, p->scratch + r * step);
            for (int t = 0; t < count; t += ANY_TOKENS)
                any_tokens(p, rows, row, n_rows, tokens + t, first + t, count - t < ANY_TOKENS ? count - t : ANY_TOKENS);
        }
    }
}

VEC_INLINE void any_mul_mat(const struct node *n, const struct worker *w)
{
    enum { GRAIN = 16 }; /* rows of W: a cache line of the output */
    const struct tensor *out = n->out;
    struct any_part p = {.node = n, .rows = {0, out->ne[0]}, .tokens = {0, out->ne[1]}, .scratch = w->scratch};
    if (out->ne[0] >= (int64_t)GRAIN * w->nth || out->ne[0] >= out->ne[1])
        worker_range(w, out->ne[0], out->ne[0] >= (int64_t)GRAIN * w->nth ? GRAIN : 1, &p.rows[0], &p.rows[1]);
    else
        worker_range(w, out->ne[1], 1, &p.tokens[0], &p.tokens[1]);
    if (p.rows[0] < p.rows[1])
        for (p.i3 = 0; p.i3 < out->ne[3]; p.i3++)
            for (p.i2 = 0; p.i2 < out->ne[2]; p.i2++)
                any_part(&p);
}

/* Defines cpu_mul_mat_any_<isa>. */
#define ANY_KERNEL(isa, cpu_needs)                                                                                             \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        (void)n;                                                                                                               \
        (void)r;                                                                                                               \
        return true; /* whatever the op takes */                                                                               \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        any_mul_mat(n, &x->worker);                                                                                            \
        return 0;                                                                                                              \
    }                                                                                                                          \
    const struct kernel cpu_mul_mat_any_##isa = {.op = OP_MUL_MAT,                                                             \
                                                 .variant = "any_" #isa,                                                       \
                                                 .needs = cpu_needs,                                                           \
                                                 .wants.any_layout = true,                                                     \
                                                 .fits = fits,                                                                 \
                                                 .scratch = any_scratch,                                                       \
                                                 .run = run}

#endif
