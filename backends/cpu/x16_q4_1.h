/* x16_q4_1.h: q4_1.x16 (formats/q4_1_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q4_1_H
#define BACKENDS_CPU_X16_Q4_1_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q4_1_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    (void)h;
    (void)g;
    s->scale[0] = vec_load_half(block + 2 * lane);
    s->min[0] = vec_load_half(block + 32 + 2 * lane);
    x16_nibbles(block + 64, lane, w);
}

static const struct x16_format x16_q4_1 = {.block = 32, .bytes = 20, .top = 15, .mins = true, .group = x16_q4_1_group};

#endif
