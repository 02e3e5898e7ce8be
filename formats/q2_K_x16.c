/* q2_K_x16.c: the layout q2_K.x16 (x16.h). A group-block: 16 scales, 16 scales of the minima, 4 vectors of sub-scales (a byte a
 * group of 16 values), 16 vectors of 2-bit codes. */
#include "formats/x16.h"

X16_LAYOUT(Q2_K, q2_K, "q2_K", {80, 2, 2}, {82, 2, 2}, {0, 16, 4}, {16, 64, 4});
