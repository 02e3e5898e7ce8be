/* products.cc: the table of product formats (backends/cuda/product.h) without the 8-bit kernels, which are not emulated: what
 * the host's side asks a format is there, what launches is not. */
#include "backends/cuda/product.h"

extern "C" {
#define X(ID, id)                                                                                                              \
    extern const struct product_format product_##id;                                                                           \
    const struct product_format product_##id = {FORMAT_##ID, &layout_##id##_s32, 32};
S32_FORMATS(X)
#undef X
#define X(ID, id, values)                                                                                                      \
    extern const struct product_format product_##id;                                                                           \
    const struct product_format product_##id = {FORMAT_##ID, NULL, values};
X(F16, f16, 8)
X(BF16, bf16, 8)
X(F32, f32, 4)
#undef X
}
