/* all_gather.h: params of all_gather: the ranks' parts of rows one behind the other. */
#ifndef OPS_ALL_GATHER_H
#define OPS_ALL_GATHER_H

#include "ops/ops.h"

struct all_gather_params {
    int32_t total; /* ne[0] of the whole */
};

#endif
