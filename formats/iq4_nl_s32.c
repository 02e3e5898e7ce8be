/* iq4_nl_s32.c: the layout iq4_nl.s32 (s32.h): nibbles, which lie in the file as they do here, then d. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    const struct block_iq4_nl *b = (const struct block_iq4_nl *)block;
    memcpy(to, b->qs, 16);
    memcpy(to + 16, &b->d, 2);
}

static void join(const uint8_t *from, uint8_t *block)
{
    struct block_iq4_nl *b = (struct block_iq4_nl *)block;
    memcpy(b->qs, from, 16);
    memcpy(&b->d, from + 16, 2);
}

S32_LAYOUT(IQ4_NL, iq4_nl, 16, 2);
