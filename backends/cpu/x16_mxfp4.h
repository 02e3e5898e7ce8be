/* x16_mxfp4.h: mxfp4.x16 (formats/mxfp4_x16.c) unpacked for x16.h. Scales run up to 2^127, where 1.5 * 2^23 times the scale
 * would overflow: they are read 2^24 smaller, and the activation's scale is made that much larger. */
#ifndef BACKENDS_CPU_X16_MXFP4_H
#define BACKENDS_CPU_X16_MXFP4_H

#include "backends/cpu/x16.h"

/* Twice the FP4 numbers, around 12. */
static const uint8_t x16_mxfp4_table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

VEC_INLINE void x16_mxfp4_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    (void)h;
    (void)g;
    vec_u e = vec_load_u8(block + lane);
    vec_u normal = (e - 25) << 23, denormal = vec_all(0x00400000) >> ((25 - e) & 31), is_normal = (vec_u)(e > 25);
    s->scale[0] = (vec_f)((normal & is_normal) | (denormal & ~is_normal));
    x16_nibbles(block + 16, lane, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vec_lookup(x16_mxfp4_table, w[j]);
}

static const struct x16_format x16_mxfp4 = {
    .block = 32, .bytes = 17, .offset = 12, .top = 24, .gain = 0x1p24f, .group = x16_mxfp4_group};

#endif
