/* q6_K_s32.c: the layout q6_K.s32 (s32.h): nibbles, pairs of high bits, the 16 scales, then d. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q6_K *b = (const struct block_q6_K *)block;
    uint8_t q[BLOCK_K];
    for (int i = 0; i < BLOCK_K; i++) {
        int half = i / 128, low = b->ql[64 * half + i % 64] >> i / 64 % 2 * 4 & 15;
        q[i] = (uint8_t)(low | (b->qh[32 * half + i % 32] >> i / 32 % 4 * 2 & 3) << 4);
    }
    s32_put_nibbles(q, BLOCK_K, to);
    s32_put_pairs(q, BLOCK_K, 4, to + 128);
    memcpy(to + 192, b->scales, 16);
    memcpy(to + 208, &b->d, 2);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q6_K *b = (struct block_q6_K *)block;
    uint8_t q[BLOCK_K] = {0};
    s32_get_nibbles(from, BLOCK_K, q);
    s32_get_pairs(from + 128, BLOCK_K, 4, q);
    for (int h = 0; h < 2; h++) {
        const uint8_t *v = q + 128 * h;
        for (int j = 0; j < 64; j++)
            b->ql[64 * h + j] = (uint8_t)((v[j] & 15) | (v[j + 64] & 15) << 4);
        for (int j = 0; j < 32; j++)
            b->qh[32 * h + j] = (uint8_t)(v[j] >> 4 | v[j + 32] >> 4 << 2 | v[j + 64] >> 4 << 4 | v[j + 96] >> 4 << 6);
    }
    memcpy(b->scales, from + 192, 16);
    memcpy(&b->d, from + 208, 2);
}

S32_LAYOUT(Q6_K, q6_K, 128, 64, 16, 2);
