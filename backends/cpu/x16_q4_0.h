/* x16_q4_0.h: q4_0.x16 (formats/q4_0_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q4_0_H
#define BACKENDS_CPU_X16_Q4_0_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q4_0_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    (void)h;
    (void)g;
    s->scale[0] = vec_load_half(block + 2 * lane);
    x16_nibbles(block + 32, lane, w);
}

static const struct x16_format x16_q4_0 = {.block = 32, .bytes = 18, .offset = 8, .top = 15, .group = x16_q4_0_group};

#endif
