/* half.h: IEEE binary16 and bfloat16, one value at a time. Rounding is to nearest, ties to even; a NaN stays a NaN. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* By shifting exponent and fraction into place. A denormal gets the exponent of 2^-14 and loses that 2^-14 by a subtraction: a
 * product of denormals would be shorter but traps into microcode (50 ns a value where this takes 0.5). Masks instead of branches,
 * so that loops over it vectorise. The compiler's _Float16 would be shorter still, but clang 14 has it only with AVX512-FP16. */
static inline float f32_from_f16(uint16_t h)
{
    uint32_t a = (uint32_t)(h & 0x7fff) << 13;
    uint32_t special = -(uint32_t)(a >= 0x7c00u << 13), denormal = -(uint32_t)(a < 0x0400u << 13);
    uint32_t normal = a + 0x38000000u + (special & 0x38000000u);
    uint32_t small = bits_from_f32(f32_from_bits(a + 0x38800000u) - 0x1p-14f);
    return f32_from_bits((normal ^ ((normal ^ small) & denormal)) | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t f16_from_f32(float f)
{
    uint32_t bits = bits_from_f32(f), a = bits & 0x7fffffffu, r;
    if (a > 0x7f800000u) /* NaN */
        r = 0x7e00;
    else if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        r = 0x7c00;
    else if (a < 0x38800000u) /* below 2^-14: adding 0.5 rounds at the last place of a denormal, 2^-24 */
        r = bits_from_f32(f32_from_bits(a) + 0.5f) - 0x3f000000u;
    else
        r = (a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13;
    return (uint16_t)(r | (bits >> 16 & 0x8000));
}

static inline float f32_from_bf16(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float f)
{
    uint32_t b = bits_from_f32(f);
    if ((b & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

#endif
