/* x16_float.h: the body of mul_mat on f16.x16 and bf16.x16: weights widened to f32 in registers, activations f32 as they are.
 *
 * Two vectors of rows times up to VEC_COLUMNS tokens, all sums in registers over the whole of k, one after the other in the
 * order of k: so an output has the same bits alone and among others. Decode is bound by bytes, prefill by f32 multiply-adds.
 * The bf16 dot product of AVX512-BF16 lost: it does twice the products an instruction at half the rate, and rounds the
 * activation. */
#ifndef BACKENDS_CPU_X16_FLOAT_H
#define BACKENDS_CPU_X16_FLOAT_H

#include "backends/cpu/x16.h"

typedef vec_f x16_widen(const void *p);

/* Rows of both slots times `tokens` (a constant) tokens. */
VEC_INLINE void x16_float_tile(x16_widen *widen, const struct x16_slots *slots, int n_slots, int64_t k, const float *const *x,
                               int tokens, float *const *y, int64_t m)
{
    vec_f sums[VEC_COLUMNS][2];
    const uint8_t *from[2] = {slots->group[0] + 2 * slots->lane[0], slots->group[1] + 2 * slots->lane[1]};
#pragma GCC unroll 12
    for (int t = 0; t < tokens; t++)
        sums[t][0] = sums[t][1] = vec_all_f32(0);
    for (int64_t i = 0; i < k; i++) {
        vec_f w[2];
#pragma GCC unroll 2
        for (int s = 0; s < n_slots; s++) {
            w[s] = widen(from[s] + 2 * X16_ROWS * i);
            if (VEC_HALVES == 1 || s == 0)
                __builtin_prefetch(from[s] + 2 * X16_ROWS * i + X16_AHEAD);
        }
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) {
            vec_f value = vec_all_f32(x[t][i]);
#pragma GCC unroll 2
            for (int s = 0; s < n_slots; s++)
                sums[t][s] = vec_fma(w[s], value, sums[t][s]);
        }
    }
#pragma GCC unroll 12
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
        for (int s = 0; s < n_slots; s++)
            x16_write_rows(y[t], slots->row[s], m, sums[t][s]);
}

VEC_INLINE void x16_float_tokens(x16_widen *widen, const struct x16_slots *slots, int n_slots, const struct node *n,
                                 int64_t first, int tokens)
{
    const float *x[VEC_COLUMNS];
    float *y[VEC_COLUMNS];
    for (int t = 0; t < tokens; t++) {
        x[t] = x16_token(n->src[1], first + t);
        y[t] = x16_token(n->out, first + t);
    }
    x16_float_tile(widen, slots, n_slots, n->src[0]->ne[0], x, tokens, y, n->out->ne[0]);
}

VEC_INLINE void x16_float_mul_mat(x16_widen *widen, const struct node *n, const struct worker *w)
{
    const struct tensor *weight = n->src[0];
    int64_t lo, hi, n_tokens = tensor_rows(n->out);
    worker_range(w, x16_groups(weight->ne[1]), 1, &lo, &hi);
    for (int64_t i = 0; i < x16_items(hi - lo); i++) {
        struct x16_slots slots;
        int n_slots = x16_item(i, lo, hi, weight->data, (size_t)weight->ne[0] * 2 * X16_ROWS, &slots);
        int64_t t = 0;
        if (n_slots == 2) {
            for (; t + VEC_COLUMNS <= n_tokens; t += VEC_COLUMNS)
                x16_float_tokens(widen, &slots, 2, n, t, VEC_COLUMNS);
            for (; t + 3 <= n_tokens; t += 3)
                x16_float_tokens(widen, &slots, 2, n, t, 3);
            for (; t < n_tokens; t++)
                x16_float_tokens(widen, &slots, 2, n, t, 1);
        } else {
            for (; t + 6 <= n_tokens; t += 6)
                x16_float_tokens(widen, &slots, 1, n, t, 6);
            for (; t < n_tokens; t++)
                x16_float_tokens(widen, &slots, 1, n, t, 1);
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
                                                      .run = run}

#endif
