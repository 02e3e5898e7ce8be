/* ssm_conv_avx2.c: ssm_conv (ssm_conv.h). */
#include "backends/cpu/ssm_conv.h"

CONV_KERNEL(SSM_CONV, ssm_conv);
