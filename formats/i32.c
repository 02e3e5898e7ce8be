/* i32.c: 32-bit signed integers: token ids, positions and maps. Not a weight format, so neither unpack nor pack: a copy of
 * i32 into a float format is refused instead of rounding ids above 2^24. */
#include "formats/formats.h"

const struct format format_i32 = {.name = "I32", .gguf_type = 26, .block = 1, .bytes = 4};
