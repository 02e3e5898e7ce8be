/* iq4_xs_s32.c: the layout iq4_xs.s32 (s32.h): nibbles, which lie in the file as they do here, then the 8 bytes of d and
 * scales. */
#include "formats/s32.h"

#include <string.h>

static void split(const uint8_t *block, uint8_t *to)
{
    memcpy(to, block + 8, 128);
    memcpy(to + 128, block, 8);
}

static void join(const uint8_t *from, uint8_t *block)
{
    memcpy(block + 8, from, 128);
    memcpy(block, from + 128, 8);
}

S32_LAYOUT(IQ4_XS, iq4_xs, 128, 8);
