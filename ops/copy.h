/* copy.h: params of copy: src[0] in another format or order. out is contiguous, of the given format and src[0]'s shape.
 * Float formats convert into each other; i32 only into i32. */
#ifndef OPS_COPY_H
#define OPS_COPY_H

#include "formats/formats.h"

struct copy_params {
    int32_t format; /* enum format_id */
};

#endif
