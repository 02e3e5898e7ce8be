/* l2_norm.h: params of l2_norm: out = x / sqrt(sum(x^2) + eps) over dimension 0; f32. */
#ifndef OPS_L2_NORM_H
#define OPS_L2_NORM_H

#include "ops/ops.h"

struct l2_norm_params {
    float eps;
};

#endif
