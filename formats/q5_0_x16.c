/* q5_0_x16.c: the layout q5_0.x16 (x16.h). A group-block: 16 scales, 8 masks of 64 bits, 4 vectors of nibbles as in q4_0.x16.
 * Mask v has the fifth bits of values 4 v .. 4 v + 3, in the order of the vector's bytes, so that AVX-512 takes it as it is. */
#include "formats/x16.h"

X16_LAYOUT(Q5_0, q5_0, "q5_0", {0, 2, 2}, {2, 4, X16_NIBBLES}, {6, 16, 4});
