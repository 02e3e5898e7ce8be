/* f32.c: IEEE binary32, as it is in memory. The format that all others unpack to and pack from; there is nothing to convert. */
#include "formats/formats.h"

#include <string.h>

static void unpack(const void *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void pack(const float *src, void *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *src);
}

const struct format format_f32 = {.name = "F32", .gguf_type = 0, .block = 1, .bytes = 4, .unpack = unpack, .pack = pack};
