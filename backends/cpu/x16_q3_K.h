/* x16_q3_K.h: q3_K.x16 (formats/q3_K_x16.c) unpacked for x16.h. */
#ifndef BACKENDS_CPU_X16_Q3_K_H
#define BACKENDS_CPU_X16_Q3_K_H

#include "backends/cpu/x16.h"

VEC_INLINE void x16_q3_K_head(const uint8_t *block, int lane, struct x16_head *h)
{
    h->d = vec_load_half(block + 2 * lane);
}

VEC_INLINE void x16_q3_K_group(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s)
{
    /* Four sub-scales from 4 (g / 2) on, a byte each; this group's are bytes 2 (g % 2) and the next. */
    vec_u low = vec_load(block + 32 + 64 * (g / 2 % 2) + 4 * lane) >> 4 * (g / 4) & vec_bytes(15);
    vec_u high = vec_load(block + 32 + 128 + 4 * lane) >> 2 * (g / 2) & vec_bytes(3);
    vec_u scales = (low | high << 4) >> 16 * (g % 2);
    s->scale[0] = h->d * vec_float((scales & 255) - 32);
    s->scale[1] = h->d * vec_float((scales >> 8 & 255) - 32);
    const uint8_t *payload = block + 736 + 512 * (g / 4) + 4 * lane, *third = block + 224 + 4 * lane;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = (vec_load(payload + 64 * j) >> 2 * (g % 4) & vec_bytes(3)) | (vec_load(third + 64 * j) >> g & vec_bytes(1)) << 2;
}

static const struct x16_format x16_q3_K = {
    .block = 256, .bytes = 110, .offset = 4, .top = 7, .halves = true, .head = x16_q3_K_head, .group = x16_q3_K_group};

#endif
