/* q4_K_x16.c: the layout q4_K.x16 (x16.h). A group-block: 16 scales, 16 scales of the minima, 3 vectors of sub-scales and
 * sub-minima, 32 vectors of nibbles; 8 vectors hold one group of 32 values low and the next one high. */
#include "formats/x16.h"

X16_LAYOUT(Q4_K, q4_K, "q4_K", {0, 2, 2}, {2, 2, 2}, {4, 12, 4}, {16, 128, 4});
