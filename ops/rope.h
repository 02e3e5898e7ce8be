/* rope.h: params of rope: rotary position embedding (Su et al., arXiv 2104.09864) with YaRN scaling (Peng et al., 2309.00071).
 *
 * src[0] x [head_dim, n_head, n_tokens] f32; src[1] positions i32 [n_tokens] (ROPE_SECTIONS: [4 * n_tokens], all the
 * first coordinates, then all the second ...); src[2], optional, f32 [n_dims / 2]: a divisor for each frequency.
 * out f32 of x's shape; values from n_dims on are copied.
 *
 * Pair i (0 <= i < n_dims / 2) turns by angle(i) = position * base^(-2i / n_dims) / factor[i], scaled as below, and is
 *   ROPE_NORM: (x[2i], x[2i+1]);  ROPE_NEOX, ROPE_SECTIONS: (x[i], x[i + n_dims/2]).
 * With ext_factor 0: theta = freq_scale * angle. Else YaRN: r = ramp(i) * ext_factor and
 *   theta = freq_scale * angle * (1 - r) + angle * r, magnitude *= 1 + 0.1 ln(1 / freq_scale), where
 *   corr(b) = n_dims ln(n_ctx_orig / (2 pi b)) / (2 ln base), lo = max(0, floor(corr(beta_fast))),
 *   hi = min(n_dims - 1, ceil(corr(beta_slow))), ramp(i) = 1 - clamp((i - lo) / max(0.001, hi - lo), 0, 1).
 * Sections: pair i takes coordinate s where i mod sum(sections) lies in section s; interleaved (qwen35 "imrope"): coordinate
 * by i mod 3, as the file says in ops/rope.c. */
#ifndef OPS_ROPE_H
#define OPS_ROPE_H

#include "ops/ops.h"

enum rope_mode { ROPE_NORM, ROPE_NEOX, ROPE_SECTIONS, ROPE_SECTIONS_INTERLEAVED };

struct rope_params {
    int32_t mode;   /* enum rope_mode */
    int32_t n_dims; /* rotated dimensions: even, <= head_dim */
    float base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    int32_t n_ctx_orig;
    int32_t sections[4];
};
extern const struct op_param rope_param_list[];

#endif
