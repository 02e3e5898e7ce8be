/* scale.h: params of scale: out = src[0] * scale + bias, elementwise; f32. */
#ifndef OPS_SCALE_H
#define OPS_SCALE_H

struct scale_params {
    float scale, bias;
};

#endif
