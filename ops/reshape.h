/* reshape.h: params of reshape: the same contiguous elements under another shape. src[0] must be contiguous. */
#ifndef OPS_RESHAPE_H
#define OPS_RESHAPE_H

#include "ops/node.h"

struct reshape_params {
    int64_t ne[MAX_DIMS]; /* 0 stands for 1; the product equals src[0]'s elements */
};

#endif
