/* route_weights.h: params of route_weights: how much each expert that a token was sent to counts.
 * src[0] logits f32 [n_expert, n_tokens]; src[1] selected i32 [k, n_tokens]; out f32 [k, n_tokens]:
 *   ROUTE_SOFTMAX: softmax(logits)[selected]; ROUTE_SOFTMAX_SELECTED: softmax(logits[selected]);
 *   ROUTE_SIGMOID: sigmoid(logits[selected]);
 * with normalise divided by their sum over k (at least 2^-14, the smallest normal half, as llama.cpp bounds it), and times scale.
 * An index outside of the row counts nothing: its weight is 0. */
#ifndef OPS_ROUTE_WEIGHTS_H
#define OPS_ROUTE_WEIGHTS_H

#include <stdint.h>

enum route_mode { ROUTE_SOFTMAX, ROUTE_SOFTMAX_SELECTED, ROUTE_SIGMOID };

struct route_weights_params {
    int32_t mode; /* enum route_mode */
    int32_t normalise;
    float scale;
};

#endif
