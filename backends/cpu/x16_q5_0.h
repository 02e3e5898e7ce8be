/* x16_q5_0.h: q5_0.x16 (formats/q5_0_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q5_0_H
#define BACKENDS_CPU_X16_Q5_0_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q5_0_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    (void)h;
    (void)g;
    s->scale[0] = vec_load_half(block + 2 * lane);
    x16_nibbles(block + 96, lane, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] |= vec_sixteens(block + 32 + 8 * j, lane);
}

static const struct x16_format x16_q5_0 = {.block = 32, .bytes = 22, .offset = 16, .top = 31, .group = x16_q5_0_group};

#endif
