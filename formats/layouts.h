/* layouts.h: every packed layout by name: layout_q4_0_x16 and so on, one a row of layouts.def. */
#ifndef FORMATS_LAYOUTS_H
#define FORMATS_LAYOUTS_H

#include "formats/formats.h"

#define LAYOUT(name) extern const struct layout layout_##name;
#include "formats/layouts.def"
#undef LAYOUT

#endif
