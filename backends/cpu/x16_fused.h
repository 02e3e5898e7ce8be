/* x16_fused.h: matrix products and what stands around them row by row, in one node: the bodies of mul_mat_group, mul_mat_add,
 * gate_up_glu, gate_up_glu_quantize, mlp and linear on x16 layouts.
 *
 * The products are run by their own kernels (x16_kernels.h), so a fused node has the bits of its parts. Each worker then
 * works on the rows that it has just written, which lie in its cache: no barrier. Only where a product reads what other
 * workers made, in the middle of an mlp, do they meet. */
#ifndef BACKENDS_CPU_X16_FUSED_H
#define BACKENDS_CPU_X16_FUSED_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/x16_kernels.h"
#include "base/cpu.h"
#include "ops/glu.h"

#if defined(__AVX512F__)
#define FUSED_ISA   X16_AVX512
#define FUSED_NEEDS (CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX2 | CPU_FMA | CPU_F16C)
#else
#define FUSED_ISA   X16_AVX2
#define FUSED_NEEDS (CPU_AVX2 | CPU_FMA | CPU_F16C)
#endif

/* Row number t of a tensor whose dimensions 1 to 3 are tokens. */
INLINE float *fused_row(const struct tensor *t, int64_t row)
{
    int64_t i[3];
    tensor_row_index(t, row, i);
    return tensor_row(t, i[0], i[1], i[2]);
}

static inline bool fused_rows_fit(const struct tensor *t, struct reason *r)
{
    return t->nb[0] == sizeof(float) || fits_not(r, "the elements of a row of %.60s do not lie one behind the other", t->name);
}

static inline bool mul_mat_group_fits(const struct node *n, struct reason *r)
{
    return x16_parts_fit(FUSED_ISA, n, r);
}

static inline int mul_mat_group_run(const struct exec *x, const struct node *n)
{
    return x16_parts_run(FUSED_ISA, x, n, 0, n->n_parts);
}

static inline bool mul_mat_add_fits(const struct node *n, struct reason *r)
{
    return x16_parts_fit(FUSED_ISA, n, r) && fused_rows_fit(n->src[2], r) && fused_rows_fit(n->out, r);
}

/* out = product + residual, in the rows that this worker multiplied. */
static inline void fused_add(const struct worker *w, const struct tensor *product, const struct tensor *residual,
                             const struct tensor *out)
{
    int64_t lo, hi;
    x16_rows_of(w, product->ne[0], &lo, &hi);
    for (int64_t t = 0; t < tensor_rows(product) && lo < hi; t++) {
        const float *a = fused_row(product, t), *b = fused_row(residual, t);
        float *y = fused_row(out, t);
        int64_t i = lo;
        for (; i + V <= hi; i += V)
            v_store(y + i, v_load(a + i) + v_load(b + i));
        if (i < hi)
            v_store_first(y + i, v_load_first(a + i, hi - i) + v_load_first(b + i, hi - i), hi - i);
    }
}

static inline int mul_mat_add_run(const struct exec *x, const struct node *n)
{
    int rc = x16_parts_run(FUSED_ISA, x, n, 0, 1);
    fused_add(&x->worker, n->parts[0]->out, n->src[2], n->out);
    return rc;
}

static inline bool gate_up_glu_fits(const struct node *n, struct reason *r)
{
    return x16_parts_fit(FUSED_ISA, n, r) && fused_rows_fit(n->parts[2]->out, r);
}

INLINE void fused_glu(enum unary_kind kind, const float *gate, const float *up, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + V <= n; i += V)
        v_store(y + i, v_unary(kind, v_load(gate + i)) * v_load(up + i));
    if (i < n)
        v_store_first(y + i, v_unary(kind, v_load_first(gate + i, n - i)) * v_load_first(up + i, n - i), n - i);
}

/* One loop a kind, so that the choice is not made for each vector. */
static inline void fused_glu_of(enum unary_kind kind, const float *gate, const float *up, float *y, int64_t n)
{
    switch (kind) {
#define X(NAME, name)                                                                                                          \
    case UNARY_##NAME:                                                                                                         \
        fused_glu(UNARY_##NAME, gate, up, y, n);                                                                               \
        break;
        UNARY_KINDS(X)
#undef X
    case N_UNARY:
        break;
    }
}

/* parts[2] is the glu; a fourth part quantises it. Shares are multiples of 32 rows, so a worker packs whole blocks of its own.
 */
static inline int gate_up_glu_run(const struct exec *x, const struct node *n)
{
    const struct node *glu = n->parts[2];
    const struct tensor *gate = glu->src[0], *up = glu->src[1], *quantized = n->n_parts > 3 ? n->parts[3]->out : NULL;
    enum unary_kind kind = (enum unary_kind)node_params(n, struct glu_params)->kind;
    int64_t lo, hi;
    int rc = x16_parts_run(FUSED_ISA, x, n, 0, 2);
    x16_rows_of(&x->worker, gate->ne[0], &lo, &hi);
    for (int64_t t = 0; t < tensor_rows(gate) && lo < hi; t++) {
        float *y = fused_row(glu->out, t);
        fused_glu_of(kind, fused_row(gate, t) + lo, fused_row(up, t) + lo, y + lo, hi - lo);
        if (quantized)
            row_pack_a8(y + lo, (char *)fused_row(quantized, t) + (size_t)lo / 32 * format_get(FORMAT_A8)->bytes, hi - lo);
    }
    return rc;
}

static inline bool gate_up_glu_quantize_fits(const struct node *n, struct reason *r)
{
    const struct tensor *quantized = n->parts[3]->out;
    if (quantized->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", quantized->name, format_get(quantized->format)->name);
    return gate_up_glu_fits(n, r);
}

static inline int gate_up_glu_quantize_run(const struct exec *x, const struct node *n)
{
    return gate_up_glu_run(x, n);
}

/* parts: those of gate_up_glu_quantize, the product that reads its result, and the add of a residual where there is one. */
static inline bool mlp_fits(const struct node *n, struct reason *r)
{
    return gate_up_glu_quantize_fits(n, r) && (n->n_src < 5 || (fused_rows_fit(n->src[4], r) && fused_rows_fit(n->out, r)));
}

static inline int mlp_run(const struct exec *x, const struct node *n)
{
    int first = gate_up_glu_run(x, n);
    worker_barrier(&x->worker);
    int second = x16_parts_run(FUSED_ISA, x, n, 4, 1);
    if (n->n_src == 5)
        fused_add(&x->worker, n->parts[4]->out, n->src[4], n->out);
    return first ? first : second;
}

/* parts: quantize, the product of its result, and the add of a residual where there is one. */
static inline bool linear_fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[1], *quantized = n->parts[0]->out;
    if (quantized->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", quantized->name, format_get(quantized->format)->name);
    return fused_rows_fit(x, r) && x16_parts_fit(FUSED_ISA, n, r) &&
           (n->n_src < 3 || (fused_rows_fit(n->src[2], r) && fused_rows_fit(n->out, r)));
}

static inline size_t linear_row_bytes(const struct node *n)
{
    return (format_row_bytes(format_get(FORMAT_A8), n->src[1]->ne[0]) + 63) / 64 * 64;
}

static inline size_t linear_scratch(const struct node *n)
{
    return linear_row_bytes(n) + x16_parts_scratch(n);
}

/* One token: each worker quantises the whole row for itself, into its own cache, and the threads need not meet before the product.
 * More tokens are shared. */
static inline int linear_run(const struct exec *x, const struct node *n)
{
    const struct tensor *from = n->src[1];
    struct tensor quantized = *n->parts[0]->out;
    struct node product = *n->parts[1];
    struct exec inner = *x;
    int64_t lo = 0, hi = tensor_rows(from), width = from->ne[0];
    if (hi == 1) {
        quantized.data = x->worker.scratch;
        inner.worker.scratch = (char *)x->worker.scratch + linear_row_bytes(n);
        inner.worker.scratch_size -= linear_row_bytes(n);
    } else {
        worker_range(&x->worker, hi, 1, &lo, &hi);
    }
    for (int64_t t = lo; t < hi; t++)
        row_pack_a8(fused_row(from, t), fused_row(&quantized, t), width);
    if (tensor_rows(from) > 1)
        worker_barrier(&x->worker);
    product.src[1] = &quantized;
    int rc = x16_kernel(FUSED_ISA, product.src[0]->format)->run(&inner, &product);
    if (n->n_src == 3)
        fused_add(&x->worker, product.out, n->src[2], n->out);
    return rc;
}

/* Defines cpu_<name>_x16_<isa>; FUSED_KERNEL: its activation is quantised by a node before it. */
#define FUSED_KERNEL__(ID, name, isa, quantized_input, scratch_fn)                                                                                          \
    const struct kernel cpu_##name##_x16_##isa = {                                                                             \
        .op = OP_##ID,                                                                                                         \
        .variant = "x16_" #isa,                                                                                                \
        .needs = FUSED_NEEDS,                                                                                                  \
        .wants = {.layout_for = x16_layout_for, .quantized = quantized_input, .activation = FORMAT_A8},  \
        .fits = name##_fits,                                                                                                   \
        .scratch = scratch_fn,  \
        .run = name##_run}
#define FUSED_KERNEL_(ID, name, isa, quantized_input, scratch_fn) FUSED_KERNEL__(ID, name, isa, quantized_input, scratch_fn)
#define FUSED_KERNEL(ID, name)       FUSED_KERNEL_(ID, name, FLOATS_ISA, true, x16_parts_scratch)
#define FUSED_KERNEL_FROM_F32(ID, name, scratch_fn) FUSED_KERNEL_(ID, name, FLOATS_ISA, false, scratch_fn)

#endif
