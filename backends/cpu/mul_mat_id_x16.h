/* mul_mat_id_x16.h: the body of mul_mat_id on x16 layouts: each expert's matrix is a stretch of the packed weight, so the kernels of mul_mat
 * run it as a matrix of its own, on the rows of the activation that were sent there.
 *
 * Workers share the rows of every expert, as in mul_mat, so that a decode step with eight experts occupies all of them. One token is read and
 * written where it lies; several are gathered into scratch first and scattered behind it, at most ID_TOKENS at a time: a copy of a row of
 * activation costs 1/m of what is done with it. */
#ifndef BACKENDS_CPU_MUL_MAT_ID_X16_H
#define BACKENDS_CPU_MUL_MAT_ID_X16_H

#include "backends/cpu/expert_lists.h"
#include "backends/cpu/x16_kernels.h"
#include "base/cpu.h"
#include "formats/x16.h"

enum { ID_TOKENS = 64 };

/* A product of expert 0 with `tokens` tokens, as mul_mat sees it. */
struct id_product {
    struct tensor w, x, out;
    struct node node;
};

static inline void id_product_init(struct id_product *p, const struct node *n, int64_t tokens)
{
    p->w = *n->src[0];
    p->x = *n->src[1];
    p->out = *n->out;
    p->w.ne[2] = 1;
    p->x.ne[1] = p->out.ne[1] = tokens;
    p->x.ne[2] = p->out.ne[2] = 1;
    p->node = (struct node){.op = OP_MUL_MAT, .out = &p->out, .src = {&p->w, &p->x}, .n_src = 2};
}

static inline int64_t id_tokens(const struct node *n)
{
    int64_t pairs = n->out->ne[1] * n->out->ne[2];
    return pairs < ID_TOKENS ? pairs : ID_TOKENS;
}

static inline bool id_x16_fits(enum x16_isa isa, const struct node *n, struct reason *r)
{
    struct id_product p;
    const struct kernel *k = x16_kernel(isa, n->src[0]->format);
    if (!k)
        return fits_not(r, "%.60s is %s, which no x16 kernel reads", n->src[0]->name, format_get(n->src[0]->format)->name);
    if (n->src[0]->ne[1] % X16_ROWS)
        return fits_not(r, "an expert has %lld rows, no multiple of %d", (long long)n->src[0]->ne[1], X16_ROWS);
    if (!n->src[0]->layout && !tensor_contiguous(n->src[0]))
        return fits_not(r, "the experts do not lie one behind the other");
    id_product_init(&p, n, 1);
    return k->fits(&p.node, r) && expert_rows_fit(n, r);
}

static inline size_t id_gathered_bytes(const struct node *n)
{
    return (format_row_bytes(format_get(FORMAT_A8), n->src[1]->ne[0]) * (size_t)id_tokens(n) + 63) / 64 * 64;
}

static inline size_t id_results_bytes(const struct node *n)
{
    return (sizeof(float) * (size_t)(n->out->ne[0] * id_tokens(n)) + 63) / 64 * 64;
}

static inline size_t id_x16_scratch(const struct node *n)
{
    struct id_product p;
    const struct kernel *k = x16_kernel(X16_AVX512, n->src[0]->format);
    id_product_init(&p, n, id_tokens(n) ? id_tokens(n) : 1);
    return expert_lists_bytes(n) + id_gathered_bytes(n) + id_results_bytes(n) + (k && k->scratch ? k->scratch(&p.node) : 0);
}

/* Rows [lo, hi) of the products of one expert with the pairs of `list`. */
static inline int id_x16_part(const struct kernel *k, const struct node *n, struct id_product *p, const int32_t *list, int64_t count,
                              int64_t lo, int64_t hi, const float *bias, char *scratch, size_t scratch_size)
{
    size_t row = format_row_bytes(format_get(FORMAT_A8), n->src[1]->ne[0]);
    char *gathered = scratch;
    float *results = (float *)(void *)(scratch + id_gathered_bytes(n));
    size_t taken = id_gathered_bytes(n) + id_results_bytes(n);
    const struct exec inner = {.worker = {.nth = 1, .scratch = scratch + taken, .scratch_size = scratch_size - taken}};
    p->x.ne[1] = p->out.ne[1] = count;
    p->x.nb[1] = row;
    p->out.nb[1] = sizeof(float) * (size_t)(hi - lo);
    p->x.data = count == 1 ? (void *)(uintptr_t)expert_input(n, list[0]) : gathered;
    p->out.data = count == 1 ? expert_output(n, list[0]) + lo : results;
    for (int64_t i = 0; i < count && count > 1; i++)
        memcpy(gathered + (size_t)i * row, expert_input(n, list[i]), row);
    int rc = k->run(&inner, &p->node);
    for (int64_t i = 0; i < count; i++) {
        float *y = expert_output(n, list[i]) + lo;
        const float *from = count == 1 ? y : results + i * (hi - lo);
        for (int64_t j = 0; j < hi - lo && (bias || count > 1); j++)
            y[j] = from[j] + (bias ? bias[lo + j] : 0);
    }
    return rc;
}

static inline int id_x16_run(enum x16_isa isa, const struct exec *x, const struct node *n)
{
    const struct tensor *w = n->src[0];
    const struct kernel *k = x16_kernel(isa, w->format);
    struct expert_lists l = expert_lists_make(n, x->worker.scratch);
    char *scratch = (char *)x->worker.scratch + expert_lists_bytes(n);
    size_t group = w->layout->bytes(w->ne[0], X16_ROWS);
    struct id_product p;
    int64_t lo, hi;
    int rc = 0;
    x16_rows_of(&x->worker, w->ne[1], &lo, &hi);
    if (lo == hi)
        return 0;
    id_product_init(&p, n, 1);
    p.w.ne[1] = p.out.ne[0] = hi - lo;
    for (int32_t e = 0; e < l.n_expert && !rc; e++) {
        p.w.data = (char *)w->data + (size_t)((e * w->ne[1] + lo) / X16_ROWS) * group;
        for (int32_t at = l.start[e]; at < l.start[e + 1] && !rc; at += ID_TOKENS) {
            int64_t count = l.start[e + 1] - at < ID_TOKENS ? l.start[e + 1] - at : ID_TOKENS;
            rc = id_x16_part(k, n, &p, l.order + at, count, lo, hi, expert_bias(n, e), scratch,
                             x->worker.scratch_size - expert_lists_bytes(n));
        }
    }
    for (int32_t at = l.start[l.n_expert]; at < l.start[l.n_expert + 1]; at++)
        memset(expert_output(n, l.order[at]) + lo, 0, sizeof(float) * (size_t)(hi - lo));
    return rc;
}

/* Defines cpu_mul_mat_id_x16_<isa>. */
#define ID_X16_KERNEL(which, isa, cpu_needs)                                                                                   \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        return id_x16_fits(which, n, r);                                                                                       \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        return id_x16_run(which, x, n);                                                                                        \
    }                                                                                                                          \
    const struct kernel cpu_mul_mat_id_x16_##isa = {                                                                           \
        .op = OP_MUL_MAT_ID,                                                                                                   \
        .variant = "x16_" #isa,                                                                                                \
        .needs = cpu_needs,                                                                                                    \
        .wants = {.layout_for = x16_layout_for, .quantized = true, .activation = FORMAT_A8},                                   \
        .fits = fits,                                                                                                          \
        .scratch = id_x16_scratch,                                                                                             \
        .run = run}

#endif
