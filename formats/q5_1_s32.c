/* q5_1_s32.c: the layout q5_1.s32 (s32.h): nibbles, fifth bits, then d and m. */
#include "formats/q5.h"
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q5_1 *b = (const struct block_q5_1 *)block;
    uint32_t high = q5_high(b->qh);
    uint8_t bit[32];
    for (int j = 0; j < 32; j++)
        bit[j] = (high & q5_mask[j]) != 0;
    memcpy(to, b->qs, 16);
    s32_put_bits(bit, 32, 0, to + 16);
    memcpy(to + 20, block, 4);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q5_1 *b = (struct block_q5_1 *)block;
    uint8_t q[32] = {0};
    s32_get_nibbles(from, 32, q);
    s32_get_bits(from + 16, 32, 4, q);
    q5_store(q, b->qh, b->qs);
    memcpy(block, from + 20, 4);
}

S32_LAYOUT(Q5_1, q5_1, 16, 4, 4);
