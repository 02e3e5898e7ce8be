/* x16_kernels.c: fused matrix products are their parts' own kernels, one after the other in the same worker: several products of one
 * activation need no meeting of the threads in between, and what follows row by row (a residual, a gate) is done by the worker
 * that has the rows in its cache. So a fusion saves barriers and passes over memory and shares every instruction of the
 * products; a second tile body for each fusion would save the loads of a few kilobytes of activation, under 1 %. */
#include "backends/cpu/x16_kernels.h"

#include "formats/layouts.h"
#include "formats/x16.h"

/* Formats whose kernels read A8. */
#define X16_FORMATS(X) \
    X(Q4_0, q4_0)      \
    X(Q4_1, q4_1)      \
    X(Q5_0, q5_0)      \
    X(Q5_1, q5_1)      \
    X(Q8_0, q8_0)      \
    X(Q2_K, q2_K)      \
    X(Q3_K, q3_K)      \
    X(Q4_K, q4_K)      \
    X(Q5_K, q5_K)      \
    X(Q6_K, q6_K)      \
    X(IQ4_NL, iq4_nl)  \
    X(IQ4_XS, iq4_xs)  \
    X(MXFP4, mxfp4)

#define X(ID, id) extern const struct kernel cpu_mul_mat_##id##_avx2, cpu_mul_mat_##id##_avx512;
X16_FORMATS(X)
#undef X

const struct kernel *x16_kernel(enum x16_isa isa, enum format_id format)
{
    switch (format) {
#define X(ID, id)     \
    case FORMAT_##ID: \
        return isa == X16_AVX2 ? &cpu_mul_mat_##id##_avx2 : &cpu_mul_mat_##id##_avx512;
        X16_FORMATS(X)
#undef X
    default:
        return NULL;
    }
}

const struct layout *x16_layout_for(enum format_id format)
{
    const struct kernel *k = x16_kernel(X16_AVX2, format);
    return k ? k->wants.layout : NULL;
}

bool x16_parts_fit(enum x16_isa isa, const struct node *n, struct reason *r)
{
    for (int i = 0; i < n->n_parts; i++) {
        const struct node *part = n->parts[i];
        if (part->op != OP_MUL_MAT)
            continue;
        const struct kernel *k = x16_kernel(isa, part->src[0]->format);
        if (!k)
            return fits_not(r, "%s is %s, which no x16 kernel reads", part->src[0]->name, format_get(part->src[0]->format)->name);
        if (!k->fits(part, r))
            return false;
    }
    return true;
}

size_t x16_parts_scratch(const struct node *n)
{
    size_t most = 0;
    for (int i = 0; i < n->n_parts; i++) {
        const struct kernel *k = n->parts[i]->op == OP_MUL_MAT ? x16_kernel(X16_AVX512, n->parts[i]->src[0]->format) : NULL;
        size_t bytes = k && k->scratch ? k->scratch(n->parts[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

int x16_parts_run(enum x16_isa isa, const struct exec *x, const struct node *n, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (n->parts[i]->op == OP_MUL_MAT) {
            int rc = x16_kernel(isa, n->parts[i]->src[0]->format)->run(x, n->parts[i]);
            if (rc)
                return rc;
        }
    return 0;
}

void x16_rows_of(const struct worker *w, int64_t m, int64_t *lo, int64_t *hi)
{
    worker_range(w, x16_groups(m), X16_GRAIN, lo, hi);
    *lo = *lo * X16_ROWS < m ? *lo * X16_ROWS : m;
    *hi = *hi * X16_ROWS < m ? *hi * X16_ROWS : m;
}
