/* softmax.h: params of softmax: out = exp(s x - max) / sum over dimension 0; f32. src[1], optional: an f32 mask that is added
 * to s x and broadcasts over dimensions 1 to 3 (-inf: masked; a row with nothing left is all zeros). */
#ifndef OPS_SOFTMAX_H
#define OPS_SOFTMAX_H

struct softmax_params {
    float scale;
};

#endif
