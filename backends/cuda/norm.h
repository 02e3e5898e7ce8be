/* norm.h: what l2_norm, rms_norm and the nodes that rms_norm fuses into share: one body in norm.cu, which reads from a node's
 * parts which steps it has and which values it must leave. */
#ifndef BACKENDS_CUDA_NORM_H
#define BACKENDS_CUDA_NORM_H

#include "backends/cuda/cuda.h"

bool norm_fits(const struct node *n, struct reason *r);
int norm_run(const struct exec *x, const struct node *n);

#endif
