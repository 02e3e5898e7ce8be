/* q4_1_s32.c: the layout q4_1.s32 (s32.h): nibbles, which lie in the file as they do here, then d and m. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q4_1 *b = (const struct block_q4_1 *)block;
    memcpy(to, b->qs, 16);
    memcpy(to + 16, block, 4);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q4_1 *b = (struct block_q4_1 *)block;
    memcpy(b->qs, from, 16);
    memcpy(block, from + 16, 4);
}

S32_LAYOUT(Q4_1, q4_1, 16, 4);
