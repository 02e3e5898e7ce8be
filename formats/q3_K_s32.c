/* q3_K_s32.c: the layout q3_K.s32 (s32.h): pairs of bits, third bits, the 12 bytes of scales, then d. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q3_K *b = (const struct block_q3_K *)block;
    uint8_t q[BLOCK_K];
    for (int i = 0; i < BLOCK_K; i++)
        q[i] = (uint8_t)((b->qs[32 * (i / 128) + i % 32] >> i / 32 % 4 * 2 & 3) | (b->hmask[i % 32] >> i / 32 & 1) << 2);
    s32_put_pairs(q, BLOCK_K, 0, to);
    s32_put_bits(q, BLOCK_K, 2, to + 64);
    memcpy(to + 96, b->scales, 12);
    memcpy(to + 108, &b->d, 2);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q3_K *b = (struct block_q3_K *)block;
    uint8_t q[BLOCK_K] = {0};
    s32_get_pairs(from, BLOCK_K, 0, q);
    s32_get_bits(from + 64, BLOCK_K, 2, q);
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 32; j++) {
            const uint8_t *v = q + 128 * h + j;
            b->qs[32 * h + j] = (uint8_t)((v[0] & 3) | (v[32] & 3) << 2 | (v[64] & 3) << 4 | (v[96] & 3) << 6);
        }
    for (int j = 0; j < 32; j++) {
        unsigned high = 0;
        for (int g = 0; g < 8; g++)
            high |= (unsigned)(q[32 * g + j] >> 2) << g;
        b->hmask[j] = (uint8_t)high;
    }
    memcpy(b->scales, from + 96, 12);
    memcpy(&b->d, from + 108, 2);
}

S32_LAYOUT(Q3_K, q3_K, 64, 32, 12, 2);
