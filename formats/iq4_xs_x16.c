/* iq4_xs_x16.c: the layout iq4_xs.x16 (x16.h). A group-block: 16 scales, 16 words of the upper and 16 dwords of the lower bits
 * of the sub-scales, then for each 32 values 4 vectors of nibbles as in q4_0.x16. */
#include "formats/x16.h"

X16_LAYOUT(IQ4_XS, iq4_xs, "iq4_xs", {0, 2, 2}, {2, 2, 2}, {4, 4, 4}, {8, 128, 4});
