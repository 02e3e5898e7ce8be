/* quantize.h: params of quantize: out = src[0] (f32) packed row by row into another format, for kernels that read quantised
 * activations. Its reference is the format's own pack. */
#ifndef OPS_QUANTIZE_H
#define OPS_QUANTIZE_H

#include "formats/formats.h"

struct quantize_params {
    int32_t format; /* enum format_id; one that has a pack */
};

#endif
