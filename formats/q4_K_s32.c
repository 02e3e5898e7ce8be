/* q4_K_s32.c: the layout q4_K.s32 (s32.h): nibbles, of which the file pairs those of two groups, then scales and minima,
 * then d and dmin. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q4_K *b = (const struct block_q4_K *)block;
    uint8_t q[BLOCK_K];
    for (int c = 0; c < 4; c++)
        for (int j = 0; j < 32; j++) {
            q[64 * c + j] = b->qs[32 * c + j] & 15;
            q[64 * c + 32 + j] = b->qs[32 * c + j] >> 4;
        }
    s32_put_nibbles(q, BLOCK_K, to);
    s32_put_scales(b->scales, to + 128);
    memcpy(to + 140, block, 4);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q4_K *b = (struct block_q4_K *)block;
    uint8_t q[BLOCK_K] = {0};
    s32_get_nibbles(from, BLOCK_K, q);
    for (int c = 0; c < 4; c++)
        for (int j = 0; j < 32; j++)
            b->qs[32 * c + j] = (uint8_t)(q[64 * c + j] | q[64 * c + 32 + j] << 4);
    s32_get_scales(from + 128, b->scales);
    memcpy(block, from + 140, 4);
}

S32_LAYOUT(Q4_K, q4_K, 128, 12, 4);
