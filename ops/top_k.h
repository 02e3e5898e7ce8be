/* top_k.h: params of top_k: the places of the k largest values of each row.
 * src[0] f32 [n, n_rows ...]; out i32 [k, n_rows ...]: indices, the largest value first, among equals the lower index first. A value
 * that is no number comes behind all others. */
#ifndef OPS_TOP_K_H
#define OPS_TOP_K_H

#include <stdint.h>

struct top_k_params {
    int32_t k; /* 1 to n */
};

#endif
