/* q5_1_x16.c: the layout q5_1.x16 (x16.h). A group-block: 16 scales, 16 minima, then fifth bits and nibbles as in q5_0.x16. */
#include "formats/x16.h"

X16_LAYOUT(Q5_1, q5_1, "q5_1", {0, 2, 2}, {2, 2, 2}, {4, 4, X16_NIBBLES}, {8, 16, 4});
