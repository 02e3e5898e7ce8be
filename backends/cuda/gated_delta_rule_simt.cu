/* gated_delta_rule_simt.cu: the gated delta rule, keys of up to 256; the body is in delta.cu. */
#include "backends/cuda/delta.h"

CUDA_KERNEL(gated_delta_rule_simt) = {.op = OP_GATED_DELTA_RULE, .variant = "simt", .needs = CUDA_SM90, .fits = delta_rule_fits, .run = delta_rule_run};
