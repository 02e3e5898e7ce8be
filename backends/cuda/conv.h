/* conv.h: what ssm_conv and ssm_conv_silu share: one body in conv.cu. */
#ifndef BACKENDS_CUDA_CONV_H
#define BACKENDS_CUDA_CONV_H

#include "backends/cuda/cuda.h"

bool conv_fits(const struct node *n, struct reason *r);
int conv_run(const struct exec *x, const struct node *n, bool silu_behind);

#endif
