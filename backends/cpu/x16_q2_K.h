/* x16_q2_K.h: q2_K.x16 (formats/q2_K_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q2_K_H
#define BACKENDS_CPU_X16_Q2_K_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q2_K_head(const uint8_t *block, int lane, struct x16_head *h)
{
    h->d = vec_load_half(block + 2 * lane);
    h->dmin = -vec_load_half(block + 32 + 2 * lane);
}

VEC_INLINE void x16_q2_K_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    vec_u scales = vec_load(block + 64 + 64 * (g / 2) + 4 * lane) >> 16 * (g % 2);
    s->scale[0] = h->d * vec_float(scales & 15);
    s->min[0] = h->dmin * vec_float(scales >> 4 & 15);
    s->scale[1] = h->d * vec_float(scales >> 8 & 15);
    s->min[1] = h->dmin * vec_float(scales >> 12 & 15);
    const uint8_t *payload = block + 320 + 512 * (g / 4) + 4 * lane;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vec_load(payload + 64 * j) >> 2 * (g % 4) & vec_bytes(3);
}

static const struct x16_format x16_q2_K = {
    .block = 256, .bytes = 84, .top = 3, .halves = true, .mins = true, .head = x16_q2_K_head, .group = x16_q2_K_group};

#endif
