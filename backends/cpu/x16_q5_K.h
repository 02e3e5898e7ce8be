/* x16_q5_K.h: q5_K.x16 (formats/q5_K_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q5_K_H
#define BACKENDS_CPU_X16_Q5_K_H

#include "backends/cpu/x16_q4_K.h"

VEC_INLINE void x16_q5_K_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    x16_q4_K_scales(h, g, s);
    const uint8_t *payload = block + 768 + 512 * (g / 2) + 4 * lane, *fifth = block + 256 + 4 * lane;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = (vec_load(payload + 64 * j) >> 4 * (g % 2) & vec_bytes(15)) | (vec_load(fifth + 64 * j) >> g & vec_bytes(1))
                                                                                 << 4;
}

static const struct x16_format x16_q5_K = {
    .block = 256, .bytes = 176, .top = 31, .mins = true, .head = x16_q4_K_head, .group = x16_q5_K_group};

#endif
