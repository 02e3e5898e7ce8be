/* x16_float.h: the body of mul_mat on f16.x16 and bf16.x16: weights widened to f32 in registers, activations f32 as they are.
 *
 * Two vectors of rows times up to VEC_COLUMNS tokens, all sums in registers over the whole of k, one after the other in the
 * order of k: so an output has the same bits alone and among others. Decode is bound by bytes, prefill by f32 multiply-adds.
 * Tokens' values are first laid side by side, so that they are one stream. The bf16 dot product of AVX512-BF16 lost: it issues
 * at a quarter of the rate (44 GMAC/s a core at best where multiply-adds do 87), and rounds the activation. */
#ifndef BACKENDS_CPU_X16_FLOAT_H
#define BACKENDS_CPU_X16_FLOAT_H

#include "backends/cpu/x16.h"

typedef vec_f x16_widen(const void *p);

/* Rows of both slots times `tokens` (a constant) tokens, whose values lie side by side: x[i][token]. */
VEC_INLINE void x16_float_tile(x16_widen *widen, const struct x16_slots *slots, int n_slots, const struct node *n,
                               const float *x, int64_t first, int tokens)
{
    const int64_t k = n->src[0]->ne[0];
    vec_f sums[VEC_COLUMNS][2];
    const uint8_t *from[2] = {slots->group[0] + 2 * slots->lane[0], slots->group[1] + 2 * slots->lane[1]};
#pragma GCC unroll 12
    for (int t = 0; t < tokens; t++)
        sums[t][0] = sums[t][1] = vec_all_f32(0);
    for (int64_t i = 0; i < k; i++, x += tokens) {
        vec_f w[2];
#pragma GCC unroll 2
        for (int s = 0; s < n_slots; s++) {
            w[s] = widen(from[s] + 2 * X16_ROWS * i);
            if (VEC_HALVES == 1 || s == 0)
                __builtin_prefetch(from[s] + 2 * X16_ROWS * i + X16_AHEAD);
        }
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) {
            vec_f value = vec_all_f32(x[t]);
#pragma GCC unroll 2
            for (int s = 0; s < n_slots; s++)
                sums[t][s] = vec_fma(w[s], value, sums[t][s]);
        }
    }
#pragma GCC unroll 12
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
        for (int s = 0; s < n_slots; s++)
            x16_write_rows(x16_token(n->out, first + t), slots->row[s], n->out->ne[0], sums[t][s]);
}

/* Tokens go in panels of VEC_COLUMNS, then of 3, then one by one. */
static inline int x16_float_panel(int64_t tokens_left)
{
    return tokens_left >= VEC_COLUMNS ? VEC_COLUMNS : tokens_left >= 3 ? 3 : 1;
}

/* Tokens at a time: as many as leave half of a second-level cache of 2 MB free. */
static inline int64_t x16_float_chunk(const struct node *n)
{
    int64_t fit = (1 << 20) / (int64_t)sizeof(float) / n->src[0]->ne[0] / VEC_COLUMNS * VEC_COLUMNS;
    fit = fit < VEC_COLUMNS ? VEC_COLUMNS : fit;
    return fit < tensor_rows(n->out) ? fit : tensor_rows(n->out);
}

static inline size_t x16_float_scratch(const struct node *n)
{
    return (size_t)x16_float_chunk(n) * (size_t)n->src[0]->ne[0] * sizeof(float);
}

/* Tokens [first, first + tokens) panel by panel into x. */
static inline void x16_float_prepare(const struct node *n, int64_t first, int64_t tokens, float *x)
{
    const int64_t k = n->src[0]->ne[0];
    for (int64_t done = 0; done < tokens;) {
        int panel = x16_float_panel(tokens - done);
        const float *from[VEC_COLUMNS];
        for (int t = 0; t < panel; t++)
            from[t] = x16_token(n->src[1], first + done + t);
        for (int64_t i = 0; i < k; i++, x += panel)
            for (int t = 0; t < panel; t++)
                memcpy(&x[t], &from[t][i], sizeof *x);
        done += panel;
    }
}

VEC_INLINE void x16_float_mul_mat(x16_widen *widen, const struct node *n, const struct worker *w)
{
    const struct tensor *weight = n->src[0];
    const int64_t k = weight->ne[0];
    float *x = w->scratch;
    int64_t lo, hi, n_tokens = tensor_rows(n->out);
    worker_range(w, x16_groups(weight->ne[1]), X16_GRAIN, &lo, &hi);
    for (int64_t first = 0; first < n_tokens && lo < hi; first += x16_float_chunk(n)) {
        int64_t tokens = n_tokens - first < x16_float_chunk(n) ? n_tokens - first : x16_float_chunk(n);
        x16_float_prepare(n, first, tokens, x);
        for (int64_t i = 0; i < x16_items(hi - lo); i++) {
            struct x16_slots slots;
            int n_slots = x16_item(i, lo, hi, weight->data, (size_t)k * 2 * X16_ROWS, &slots);
            for (int64_t done = 0; done < tokens;) {
                int panel = x16_float_panel(tokens - done);
                if (n_slots == 2 && panel == VEC_COLUMNS)
                    x16_float_tile(widen, &slots, 2, n, x + done * k, first + done, VEC_COLUMNS);
                else if (n_slots == 2 && panel == 3)
                    x16_float_tile(widen, &slots, 2, n, x + done * k, first + done, 3);
                else if (n_slots == 2)
                    x16_float_tile(widen, &slots, 2, n, x + done * k, first + done, 1);
                else if (panel == VEC_COLUMNS)
                    x16_float_tile(widen, &slots, 1, n, x + done * k, first + done, VEC_COLUMNS);
                else if (panel == 3)
                    x16_float_tile(widen, &slots, 1, n, x + done * k, first + done, 3);
                else
                    x16_float_tile(widen, &slots, 1, n, x + done * k, first + done, 1);
                done += panel;
            }
        }
    }
}

/* Defines cpu_mul_mat_<name>_<isa>, which widens with `widen`. */
#define X16_FLOAT_KERNEL(name, isa, cpu_needs, widen)                                                                          \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        return x16_fits(&layout_##name##_x16, FORMAT_F32, n, r);                                                               \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        x16_float_mul_mat(widen, n, &x->worker);                                                                               \
        return 0;                                                                                                              \
    }                                                                                                                          \
    const struct kernel cpu_mul_mat_##name##_##isa = {.op = OP_MUL_MAT,                                                        \
                                                      .variant = #name "_" #isa,                                               \
                                                      .needs = cpu_needs,                                                      \
                                                      .wants = {.layout = &layout_##name##_x16},                               \
                                                      .fits = fits,                                                            \
                                                      .scratch = x16_float_scratch,                                            \
                                                      .run = run}

#endif
