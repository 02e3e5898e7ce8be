/* x16_iq4_nl.h: iq4_nl.x16 (formats/iq4_nl_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_IQ4_NL_H
#define BACKENDS_CPU_X16_IQ4_NL_H

#include "backends/cpu/x16_iq4.h"

VEC_INLINE void x16_iq4_nl_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w,
                                 struct x16_scales *s)
{
    (void)h;
    (void)g;
    s->scale[0] = vec_load_half(block + 2 * lane);
    x16_iq4_codes(block + 32, lane, w);
}

static const struct x16_format x16_iq4_nl = {.block = 32, .bytes = 18, .offset = 128, .top = 241, .group = x16_iq4_nl_group};

#endif
