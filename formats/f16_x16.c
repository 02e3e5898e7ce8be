/* f16_x16.c: the layout f16.x16 (x16.h): value by value, 16 rows side by side. */
#include "formats/x16.h"

X16_LAYOUT(F16, f16, "f16", {0, 2, 2});
