/* q4_0_x16.c: the layout q4_0.x16 (x16.h). A group-block: 16 scales, then 4 vectors of nibbles; dword v of a row holds values 4
 * v .. 4 v + 3 low and 16 values further high. */
#include "formats/x16.h"

X16_LAYOUT(Q4_0, q4_0, "q4_0", {0, 2, 2}, {2, 16, 4});
