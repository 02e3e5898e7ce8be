/* bf16_x16.c: the layout bf16.x16 (x16.h): value by value, 16 rows side by side. */
#include "formats/x16.h"

X16_LAYOUT(BF16, bf16, "bf16", {0, 2, 2});
