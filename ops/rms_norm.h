/* rms_norm.h: params of rms_norm: out = x / sqrt(mean(x^2) + eps) over dimension 0; f32. The weight is a mul behind it. */
#ifndef OPS_RMS_NORM_H
#define OPS_RMS_NORM_H

#include "ops/ops.h"

struct rms_norm_params {
    float eps;
};
extern const struct op_param rms_norm_param_list[];

#endif
