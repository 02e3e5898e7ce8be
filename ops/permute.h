/* permute.h: params of permute: dimension i of src[0] becomes dimension axis[i] of out; nothing moves. */
#ifndef OPS_PERMUTE_H
#define OPS_PERMUTE_H

#include "ops/node.h"

struct permute_params {
    int32_t axis[MAX_DIMS]; /* a permutation of 0 to 3; block formats keep dimension 0 in place */
};

#endif
