/* x16_q6_K.h: q6_K.x16 (formats/q6_K_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q6_K_H
#define BACKENDS_CPU_X16_Q6_K_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q6_K_head(const uint8_t *block, int lane, struct x16_head *h)
{
    h->d = vec_load_half(block + 2 * lane);
}

VEC_INLINE void x16_q6_K_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    /* Signed sub-scales 2 g and 2 g + 1: shifted to the top of the lane, then down with their sign. */
    vec_u scales = vec_load(block + 32 + 64 * (g / 2) + 4 * lane) >> 16 * (g % 2);
    s->scale[0] = h->d * vec_float((vec_u)((vec_i)(scales << 24) >> 24));
    s->scale[1] = h->d * vec_float((vec_u)((vec_i)(scales << 16) >> 24));
    const uint8_t *low = block + 288 + 1024 * (g / 4) + 512 * (g % 2) + 4 * lane,
                  *high = block + 2336 + 512 * (g / 4) + 4 * lane;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = (vec_load(low + 64 * j) >> 4 * (g / 2 % 2) & vec_bytes(15)) |
               (vec_load(high + 64 * j) >> 2 * (g % 4) & vec_bytes(3)) << 4;
}

static const struct x16_format x16_q6_K = {
    .block = 256, .bytes = 210, .offset = 32, .top = 63, .halves = true, .head = x16_q6_K_head, .group = x16_q6_K_group};

#endif
