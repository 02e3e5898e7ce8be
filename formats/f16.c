/* f16.c: IEEE binary16. Half the bytes of f32 with 11 bits of precision, and a range that ends at 65504: what is larger becomes
 * infinite, as IEEE rounds it. The loops stay free of branches so that the compiler vectorises them without F16C. */
#include "base/half.h"
#include "formats/formats.h"

struct __attribute__((packed)) unaligned {
    uint16_t bits;
};

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct unaligned *restrict s = src;
    for (int64_t i = 0; i < n; i++)
        dst[i] = f32_from_f16(s[i].bits);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct unaligned *restrict d = dst;
    for (int64_t i = 0; i < n; i++)
        d[i].bits = f16_from_f32(src[i]);
}

const struct format format_f16 = {.name = "F16", .gguf_type = 1, .block = 1, .bytes = 2, .unpack = unpack, .pack = pack};
