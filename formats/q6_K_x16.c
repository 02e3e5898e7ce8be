/* q6_K_x16.c: the layout q6_K.x16 (x16.h). A group-block: 16 scales, 4 vectors of sub-scales (a byte a group of 16 values), 32
 * vectors of lower nibbles, 16 vectors of upper bit pairs. */
#include "formats/x16.h"

X16_LAYOUT(Q6_K, q6_K, "q6_K", {208, 2, 2}, {192, 16, 4}, {0, 128, 4}, {128, 64, 4});
