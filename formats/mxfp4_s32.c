/* mxfp4_s32.c: the layout mxfp4.s32 (s32.h): nibbles, which lie in the file as they do here, then e. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_mxfp4 *b = (const struct block_mxfp4 *)block;
    memcpy(to, b->qs, 16);
    memcpy(to + 16, &b->e, 1);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_mxfp4 *b = (struct block_mxfp4 *)block;
    memcpy(b->qs, from, 16);
    memcpy(&b->e, from + 16, 1);
}

S32_LAYOUT(MXFP4, mxfp4, 16, 1);
