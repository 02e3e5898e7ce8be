/* x16_iq4_xs.h: iq4_xs.x16 (formats/iq4_xs_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_IQ4_XS_H
#define BACKENDS_CPU_X16_IQ4_XS_H

#include "backends/cpu/x16_iq4.h"

VEC_INLINE void x16_iq4_xs_head(const uint8_t *block, int lane, struct x16_head *h)
{
    h->d = vec_load_half(block + 2 * lane);
    h->code[0] = vec_load(block + 64 + 4 * lane);
    h->code[1] = vec_load_u16(block + 32 + 2 * lane);
}

VEC_INLINE void x16_iq4_xs_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w,
                                 struct x16_scales *s)
{
    vec_u scale = (h->code[0] >> 4 * g & 15) | (h->code[1] >> 2 * g & 3) << 4;
    s->scale[0] = h->d * vec_float(scale - 32);
    x16_iq4_codes(block + 128 + 256 * g, lane, w);
}

static const struct x16_format x16_iq4_xs = {
    .block = 256, .bytes = 136, .offset = 128, .top = 241, .head = x16_iq4_xs_head, .group = x16_iq4_xs_group};

#endif
