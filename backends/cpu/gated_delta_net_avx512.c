/* gated_delta_net_avx512.c: gated_delta_net (delta_net.h). */
#include "backends/cpu/delta_net.h"

DELTA_KERNEL(GATED_DELTA_NET, gated_delta_net, net_fits, net_scratch, net_run);
