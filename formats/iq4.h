/* iq4.h: the sixteen values of IQ4_NL and IQ4_XS: denser towards zero, where normally distributed weights are (the table is
 * part of the file format, ggml's kvalues_iq4nl). */
#ifndef FORMATS_IQ4_H
#define FORMATS_IQ4_H

#include "formats/fit.h"

static const float iq4_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* 16 bytes of nibbles, low ones first: w = s table[q]. The products are made once a block: looking them up is then all that is
 * left (0.43 ns a value; table lookups do not vectorise on SSE2). */
static inline void iq4_unpack(const uint8_t *restrict qs, float s, float *restrict dst)
{
    float product[16];
    for (int i = 0; i < 16; i++)
        product[i] = s * iq4_table[i];
    for (int j = 0; j < 16; j++) {
        dst[j] = product[qs[j] & 15];
        dst[j + 16] = product[qs[j] >> 4];
    }
}

/* The index of the table's value nearest to v; of the lower one midway. */
static inline int iq4_index(float v)
{
    int i = 0;
    for (int k = 0; k < 15; k++)
        i += v > 0.5f * (iq4_table[k] + iq4_table[k + 1]);
    return i;
}

/* The table's values nearest to x * inverse: a sum of the steps that x is past. */
FIT_INLINE void iq4_codes(const float *x, int n, float inverse, float *q)
{
    for (int i = 0; i < n; i += 4) {
        fit_f32x4 v = fit_load(x + i) * inverse, c = {-127, -127, -127, -127};
        for (int k = 0; k < 15; k++) {
            float step = iq4_table[k + 1] - iq4_table[k], middle = iq4_table[k] + 0.5f * step;
            c += fit_select(v > middle, (fit_f32x4){step, step, step, step}, (fit_f32x4){0});
        }
        *(fit_f32x4 *)(q + i) = c;
    }
}

/* Where a group's value of largest magnitude is tried: near both ends of the table and a little past them. */
static const float iq4_starts[] = {-140, -134, -128, -122, -116, -110, -104, 96, 102, 108, 113, 119, 125};
enum { IQ4_N_STARTS = sizeof iq4_starts / sizeof *iq4_starts };

#endif
