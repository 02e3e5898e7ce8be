/* gated_delta_net_simt.cu: a Gated DeltaNet layer between its convolution and its output projection, as one launch; the body is in delta.cu. */
#include "backends/cuda/delta.h"

CUDA_KERNEL(gated_delta_net_simt) = {.op = OP_GATED_DELTA_NET, .variant = "simt", .needs = CUDA_SM90, .fits = delta_net_fits, .run = delta_net_run};
