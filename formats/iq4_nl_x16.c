/* iq4_nl_x16.c: the layout iq4_nl.x16 (x16.h). As q4_0.x16; the nibbles are indices into a table. */
#include "formats/x16.h"

X16_LAYOUT(IQ4_NL, iq4_nl, "iq4_nl", {0, 2, 2}, {2, 16, 4});
