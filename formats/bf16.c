/* bf16.c: bfloat16, the upper half of an f32: its whole range with 8 bits of precision. Packing rounds to nearest, ties to
 * even, and keeps a NaN a NaN (which plain rounding could carry into infinity). */
#include "base/half.h"
#include "formats/formats.h"

struct __attribute__((packed)) unaligned {
    uint16_t bits;
};

static void unpack(const void *restrict src, float *restrict dst, int64_t n)
{
    const struct unaligned *restrict s = src;
    for (int64_t i = 0; i < n; i++)
        dst[i] = f32_from_bf16(s[i].bits);
}

static void pack(const float *restrict src, void *restrict dst, int64_t n)
{
    struct unaligned *restrict d = dst;
    for (int64_t i = 0; i < n; i++)
        d[i].bits = bf16_from_f32(src[i]);
}

const struct format format_bf16 = {.name = "BF16", .gguf_type = 30, .block = 1, .bytes = 2, .unpack = unpack, .pack = pack};
