/* q8_0_x16.c: the layout q8_0.x16 (x16.h). A group-block: 16 scales, then 8 vectors of codes; dword v of a row holds values 4 v
 * .. 4 v + 3. */
#include "formats/x16.h"

X16_LAYOUT(Q8_0, q8_0, "q8_0", {0, 2, 2}, {2, 32, 4});
