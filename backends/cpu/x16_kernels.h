/* x16_kernels.h: the mul_mat kernels on x16 layouts as a table, for fused nodes that run several of them. */
#ifndef BACKENDS_CPU_X16_KERNELS_H
#define BACKENDS_CPU_X16_KERNELS_H

#include "backends/backend.h"

enum x16_isa { X16_AVX2, X16_AVX512, N_X16_ISAS };

/* The kernel of this instruction set for weights of this format with an A8 activation; NULL: there is none. */
const struct kernel *x16_kernel(enum x16_isa isa, enum format_id format);
/* The layout of that format's kernels; NULL: none. */
const struct layout *x16_layout_for(enum format_id format);

/* Every matrix product among n's parts has such a kernel, and it fits. */
bool x16_parts_fit(enum x16_isa isa, const struct node *n, struct reason *r);
/* Bytes of scratch that the largest of them wants. */
size_t x16_parts_scratch(const struct node *n);
/* Runs worker x's share of the products among n's parts [first, first + count): no barrier between them, none behind. */
int x16_parts_run(enum x16_isa isa, const struct exec *x, const struct node *n, int first, int count);

/* The rows of a product of m rows that this worker wrote, whole multiples of 32 but for the last. */
void x16_rows_of(const struct worker *w, int64_t m, int64_t *lo, int64_t *hi);

#endif
