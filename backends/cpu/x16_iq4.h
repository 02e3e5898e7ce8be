/* x16_iq4.h: what IQ4_NL and IQ4_XS share: nibbles that index a table. */
#ifndef BACKENDS_CPU_X16_IQ4_H
#define BACKENDS_CPU_X16_IQ4_H

#include "backends/cpu/x16.h"

/* The values of formats/iq4.h, around 128. */
static const uint8_t x16_iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

VEC_INLINE void x16_iq4_codes(const uint8_t *payload, int lane, vec_u *w)
{
    x16_nibbles(payload, lane, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vec_lookup(x16_iq4_table, w[j]);
}

#endif
