/* ssm_conv_silu_avx512.c: ssm_conv_silu (ssm_conv.h). */
#include "backends/cpu/ssm_conv.h"

CONV_KERNEL(SSM_CONV_SILU, ssm_conv_silu);
