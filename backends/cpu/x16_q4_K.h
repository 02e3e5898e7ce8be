/* x16_q4_K.h: q4_K.x16 (formats/q4_K_x16.c) unpacked for x16.h; the head and the scales are Q5_K's too. */
#ifndef BACKENDS_CPU_X16_Q4_K_H
#define BACKENDS_CPU_X16_Q4_K_H

#include "backends/cpu/x16.h"

/* Sub-scales of groups 0 to 3 and 4 to 7 (a byte each), then sub-minima (formats/kquant.h has the 12 bytes). */
VEC_INLINE void x16_q4_K_head(const uint8_t *block, int lane, struct x16_head *h)
{
    vec_u a = vec_load(block + 64 + 4 * lane), b = vec_load(block + 128 + 4 * lane), c = vec_load(block + 192 + 4 * lane);
    h->d = vec_load_half(block + 2 * lane);
    h->dmin = -vec_load_half(block + 32 + 2 * lane);
    h->code[0] = a & vec_bytes(63);
    h->code[1] = (c & vec_bytes(15)) | (a >> 2 & vec_bytes(48));
    h->code[2] = b & vec_bytes(63);
    h->code[3] = (c >> 4 & vec_bytes(15)) | (b >> 2 & vec_bytes(48));
}

VEC_INLINE void x16_q4_K_scales(const struct x16_head *h, int g, struct x16_scales *s)
{
    s->scale[0] = h->d * vec_float(h->code[g / 4] >> 8 * (g % 4) & 255);
    s->min[0] = h->dmin * vec_float(h->code[2 + g / 4] >> 8 * (g % 4) & 255);
}

VEC_INLINE void x16_q4_K_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    x16_q4_K_scales(h, g, s);
    const uint8_t *payload = block + 256 + 512 * (g / 2) + 4 * lane;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vec_load(payload + 64 * j) >> 4 * (g % 2) & vec_bytes(15);
}

static const struct x16_format x16_q4_K = {
    .block = 256, .bytes = 144, .top = 15, .mins = true, .head = x16_q4_K_head, .group = x16_q4_K_group};

#endif
