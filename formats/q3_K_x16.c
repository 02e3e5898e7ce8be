/* q3_K_x16.c: the layout q3_K.x16 (x16.h). A group-block: 16 scales, 3 vectors of sub-scales, 8 vectors of upper bits, 16
 * vectors of 2-bit codes. */
#include "formats/x16.h"

X16_LAYOUT(Q3_K, q3_K, "q3_K", {108, 2, 2}, {96, 12, 4}, {0, 32, 4}, {32, 64, 4});
