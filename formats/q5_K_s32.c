/* q5_K_s32.c: the layout q5_K.s32 (s32.h): nibbles, fifth bits, scales and minima, then d and dmin. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q5_K *b = (const struct block_q5_K *)block;
    uint8_t q[BLOCK_K];
    for (int c = 0; c < 4; c++)
        for (int j = 0; j < 32; j++) {
            q[64 * c + j] = (uint8_t)((b->qs[32 * c + j] & 15) | (b->qh[j] >> 2 * c & 1) << 4);
            q[64 * c + 32 + j] = (uint8_t)(b->qs[32 * c + j] >> 4 | (b->qh[j] >> (2 * c + 1) & 1) << 4);
        }
    s32_put_nibbles(q, BLOCK_K, to);
    s32_put_bits(q, BLOCK_K, 4, to + 128);
    s32_put_scales(b->scales, to + 160);
    memcpy(to + 172, block, 4);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q5_K *b = (struct block_q5_K *)block;
    uint8_t q[BLOCK_K] = {0};
    s32_get_nibbles(from, BLOCK_K, q);
    s32_get_bits(from + 128, BLOCK_K, 4, q);
    for (int j = 0; j < 32; j++) {
        unsigned high = 0;
        for (int g = 0; g < 8; g++)
            high |= (unsigned)(q[32 * g + j] >> 4) << g;
        b->qh[j] = (uint8_t)high;
        for (int c = 0; c < 4; c++)
            b->qs[32 * c + j] = (uint8_t)((q[64 * c + j] & 15) | (q[64 * c + 32 + j] & 15) << 4);
    }
    s32_get_scales(from + 160, b->scales);
    memcpy(block, from + 172, 4);
}

S32_LAYOUT(Q5_K, q5_K, 128, 32, 12, 4);
