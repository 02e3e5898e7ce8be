/* products.cc: the table of product formats (backends/cuda/product.h) without the 8-bit kernels of many tokens, which have
 * tensor cores' own instructions: in their place products one value after the other, for what is built on them
 * (product_fine.cu). */
#include "backends/cuda/product.h"

template <class F> static int tiles(const struct exec *, const struct product_args *a)
{
    for (int i = 0; i < a->n_matrices; i++) {
        const struct product_matrix &m = a->matrix[i];
        for (uint32_t row = 0; row < m.rows; row++) {
            for (int t = 0; t < a->tokens; t++) {
                const struct block_a8 *x = (const struct block_a8 *)(a->x + (size_t)t * a->x_stride);
                double sum = 0;
                for (uint32_t g = 0; g < a->groups; g++) {
                    float w[32];
                    uint32_t u = row * a->groups + g;
                    s32_values<F>(F::load(m.weight, u), u, w);
                    for (int v = 0; v < 32; v++)
                        sum += (double)w[v] * (double)*(const float *)&x[g] * x[g].qs[v];
                }
                if (m.alone)
                    m.alone[(size_t)t * m.alone_stride + row] = (float)sum;
                m.out[(size_t)t * m.out_stride + row] = (float)sum + (m.add ? m.add[(size_t)t * m.add_stride + row] : 0);
            }
        }
    }
    return 0;
}

extern "C" {
#define X(ID, id)                                                                                                              \
    extern const struct product_format product_##id;                                                                           \
    const struct product_format product_##id = {FORMAT_##ID, &layout_##id##_s32, 32, NULL, tiles<s32_##id>};
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
