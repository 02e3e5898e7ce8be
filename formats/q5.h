/* q5.h: the fifth bit of Q5_0 and Q5_1: 32 bits behind each other, bit j for value j. SSE2 has no shift by a different count in
 * each lane, so the bit is tested against a table of masks: that vectorises, shifting does not. */
#ifndef FORMATS_Q5_H
#define FORMATS_Q5_H

#include <stdint.h>

#define Q5_MASK4(j) 1u << (j), 1u << ((j) + 1), 1u << ((j) + 2), 1u << ((j) + 3)
static const uint32_t q5_mask[32] = {Q5_MASK4(0),  Q5_MASK4(4),  Q5_MASK4(8),  Q5_MASK4(12),
                                     Q5_MASK4(16), Q5_MASK4(20), Q5_MASK4(24), Q5_MASK4(28)};
#undef Q5_MASK4

static inline uint32_t q5_high(const uint8_t *qh)
{
    return (uint32_t)qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
}

/* Codes 0 to 31 into nibbles and high bits. */
static inline void q5_store(const uint8_t *restrict q, uint8_t *restrict qh, uint8_t *restrict qs)
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
    for (int i = 0; i < 4; i++) {
        unsigned bits = 0;
        for (int j = 0; j < 8; j++)
            bits |= (unsigned)(q[8 * i + j] >> 4) << j;
        qh[i] = (uint8_t)bits;
    }
}

#endif
