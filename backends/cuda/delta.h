/* delta.h: what gated_delta_rule and gated_delta_net share: one body in delta.cu. */
#ifndef BACKENDS_CUDA_DELTA_H
#define BACKENDS_CUDA_DELTA_H

#include "backends/cuda/cuda.h"

bool delta_rule_fits(const struct node *n, struct reason *r);
int delta_rule_run(const struct exec *x, const struct node *n);
bool delta_net_fits(const struct node *n, struct reason *r);
int delta_net_run(const struct exec *x, const struct node *n);

#endif
