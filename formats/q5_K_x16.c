/* q5_K_x16.c: the layout q5_K.x16 (x16.h). A group-block: as q4_K.x16, with 8 vectors of fifth bits (bit g for group g) before
 * the nibbles. */
#include "formats/x16.h"

X16_LAYOUT(Q5_K, q5_K, "q5_K", {0, 2, 2}, {2, 2, 2}, {4, 12, 4}, {16, 32, 4}, {48, 128, 4});
