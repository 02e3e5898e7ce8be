/* mul_mat_id_any.h: the body of the expert products that take everything: any weight format in any layout, any strides. Four rows of an
 * expert are unpacked at a time and meet all tokens that were sent there, four at a time (mul_mat_any.h has the tile). Workers share
 * the rows. */
#ifndef BACKENDS_CPU_MUL_MAT_ID_ANY_H
#define BACKENDS_CPU_MUL_MAT_ID_ANY_H

#include "backends/cpu/expert_lists.h"
#include "backends/cpu/mul_mat_any.h"

static inline size_t id_any_step(const struct node *n)
{
    return (size_t)(n->src[0]->ne[0] + 15) / 16 * 16;
}

static inline size_t id_any_scratch(const struct node *n)
{
    return expert_lists_bytes(n) + (ANY_ROWS + ANY_TOKENS) * id_any_step(n) * sizeof(float);
}

/* Rows [row, row + n_rows) of an expert, unpacked, times up to ANY_TOKENS of its pairs. */
VEC_INLINE void id_any_tokens(const struct node *n, const float *const *rows, int64_t row, int n_rows, const int32_t *list, int count,
                              const float *bias, float *room)
{
    const struct tensor *x = n->src[1];
    const float *tokens[ANY_TOKENS];
    float sums[ANY_ROWS][ANY_TOKENS];
    int64_t k = n->src[0]->ne[0], used = n->out->ne[1];
    for (int t = 0; t < count; t++)
        tokens[t] = tensor_read_row(x, x->ne[1] == 1 ? 0 : list[t] % used, list[t] / used, 0, room + (size_t)t * id_any_step(n));
    if (n_rows == ANY_ROWS && count == ANY_TOKENS)
        any_tile(rows, ANY_ROWS, tokens, ANY_TOKENS, k, sums);
    else
        for (int r = 0; r < n_rows; r++)
            for (int t = 0; t < count; t++)
                any_tile(rows + r, 1, tokens + t, 1, k, (float(*)[ANY_TOKENS])(void *)&sums[r][t]);
    for (int t = 0; t < count; t++)
        for (int r = 0; r < n_rows; r++)
            expert_output(n, list[t])[row + r] = sums[r][t] + (bias ? bias[row + r] : 0);
}

VEC_INLINE int id_any_run(const struct exec *x, const struct node *n)
{
    const struct tensor *w = n->src[0];
    struct expert_lists l = expert_lists_make(n, x->worker.scratch);
    float *room = (float *)(void *)((char *)x->worker.scratch + expert_lists_bytes(n));
    const float *rows[ANY_ROWS];
    int64_t lo, hi;
    worker_range(&x->worker, w->ne[1], ANY_ROWS, &lo, &hi);
    for (int32_t e = 0; e < l.n_expert; e++)
        for (int64_t row = lo; row < hi && l.start[e] < l.start[e + 1]; row += ANY_ROWS) {
            int n_rows = hi - row < ANY_ROWS ? (int)(hi - row) : ANY_ROWS;
            for (int r = 0; r < n_rows; r++)
                rows[r] = tensor_read_row(w, row + r, e, 0, room + (size_t)r * id_any_step(n));
            for (int32_t at = l.start[e]; at < l.start[e + 1]; at += ANY_TOKENS) {
                int count = l.start[e + 1] - at < ANY_TOKENS ? l.start[e + 1] - at : ANY_TOKENS;
                id_any_tokens(n, rows, row, n_rows, l.order + at, count, expert_bias(n, e), room + ANY_ROWS * id_any_step(n));
            }
        }
    for (int32_t at = l.start[l.n_expert]; at < l.start[l.n_expert + 1] && lo < hi; at++)
        memset(expert_output(n, l.order[at]) + lo, 0, sizeof(float) * (size_t)(hi - lo));
    return 0;
}

/* Defines cpu_mul_mat_id_any_<isa>. */
#define ID_ANY_KERNEL(isa, cpu_needs)                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        return id_any_run(x, n);                                                                                               \
    }                                                                                                                          \
    const struct kernel cpu_mul_mat_id_any_##isa = {.op = OP_MUL_MAT_ID,                                                       \
                                                    .variant = "any_" #isa,                                                    \
                                                    .needs = cpu_needs,                                                        \
                                                    .wants.any_layout = true,                                                  \
                                                    .fits = expert_rows_fit,                                                   \
                                                    .scratch = id_any_scratch,                                                 \
                                                    .run = run}

#endif
