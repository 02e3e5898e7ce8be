/* q8_0_s32.c: the layout q8_0.s32 (s32.h): the bytes of each block's first 16 values, of its second 16, then d. One stream of
 * 32 bytes a block would make a lane's two loads skip every other 16 bytes. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_q8_0 *b = (const struct block_q8_0 *)block;
    memcpy(to, b->qs, 32);
    memcpy(to + 32, &b->d, 2);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_q8_0 *b = (struct block_q8_0 *)block;
    memcpy(b->qs, from, 32);
    memcpy(&b->d, from + 32, 2);
}

S32_LAYOUT(Q8_0, q8_0, 16, 16, 2);
