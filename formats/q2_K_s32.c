/* q2_K_s32.c: the layout q2_K.s32 (s32.h): pairs of bits, the 16 bytes of scales and minima, then d and dmin. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q2_K *b = (const struct block_q2_K *)block;
    uint8_t q[BLOCK_K];
    for (int i = 0; i < BLOCK_K; i++)
        q[i] = b->qs[32 * (i / 128) + i % 32] >> i / 32 % 4 * 2 & 3;
    s32_put_pairs(q, BLOCK_K, 0, to);
    memcpy(to + 64, b->scales, 16);
    memcpy(to + 80, &b->d, 2);
    memcpy(to + 82, &b->dmin, 2);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q2_K *b = (struct block_q2_K *)block;
    uint8_t q[BLOCK_K] = {0};
    s32_get_pairs(from, BLOCK_K, 0, q);
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 32; j++) {
            const uint8_t *v = q + 128 * h + j;
            b->qs[32 * h + j] = (uint8_t)(v[0] | v[32] << 2 | v[64] << 4 | v[96] << 6);
        }
    memcpy(b->scales, from + 64, 16);
    memcpy(&b->d, from + 80, 2);
    memcpy(&b->dmin, from + 82, 2);
}

S32_LAYOUT(Q2_K, q2_K, 64, 16, 4);
