/* gated_delta_rule_avx512.c: gated_delta_rule (delta.h). */
#include "backends/cpu/delta.h"

DELTA_KERNEL(GATED_DELTA_RULE, gated_delta_rule, rule_fits, rule_scratch, rule_run);
