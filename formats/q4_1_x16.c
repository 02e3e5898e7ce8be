/* q4_1_x16.c: the layout q4_1.x16 (x16.h). A group-block: 16 scales, 16 minima, then 4 vectors of nibbles as in q4_0.x16. */
#include "formats/x16.h"

X16_LAYOUT(Q4_1, q4_1, "q4_1", {0, 2, 2}, {2, 2, 2}, {4, 16, 4});
