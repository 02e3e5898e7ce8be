/* x16_q8_0.h: q8_0.x16 (formats/q8_0_x16.c) unpacked for x16.h: signed codes become unsigned ones around 128. */
#ifndef BACKENDS_CPU_X16_Q8_0_H
#define BACKENDS_CPU_X16_Q8_0_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q8_0_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    (void)h;
    (void)g;
    s->scale[0] = vec_load_half(block + 2 * lane);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vec_load(block + 32 + 64 * j + 4 * lane) ^ vec_bytes(0x80);
}

static const struct x16_format x16_q8_0 = {.block = 32, .bytes = 34, .offset = 128, .top = 255, .group = x16_q8_0_group};

#endif
