/* view.h: params of view: a window of src[0]'s memory.
 *   out = tensor of src[0]'s format, shape ne, strides nb, whose first byte is `offset` bytes behind src[0]'s.
 * nb[0] must be the format's block bytes or, for a format with block 1, any multiple of it. The window must lie within
 * src[0]'s span. */
#ifndef OPS_VIEW_H
#define OPS_VIEW_H

#include "ops/node.h"

struct view_params {
    int32_t ne[MAX_DIMS];  /* 0 stands for 1 */
    uint64_t nb[MAX_DIMS]; /* bytes; nb[0] 0: contiguous */
    uint64_t offset;
};
_Static_assert(sizeof(struct view_params) <= PARAMS_SIZE, "params of view");

#endif
