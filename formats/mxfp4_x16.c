/* mxfp4_x16.c: the layout mxfp4.x16 (x16.h). A group-block: 16 exponents, then 4 vectors of nibbles as in q4_0.x16. */
#include "formats/x16.h"

X16_LAYOUT(MXFP4, mxfp4, "mxfp4", {0, 1, 1}, {1, 16, 4});
