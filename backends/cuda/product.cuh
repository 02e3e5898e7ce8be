/* product.cuh: what all matrix products of this backend share: a node's matrices and outputs as a launch sees them, what
 * happens to a sum before it is written (a residual, a bias, gate and up), and how rows are dealt out. */
#ifndef BACKENDS_CUDA_PRODUCT_CUH
#define BACKENDS_CUDA_PRODUCT_CUH

#include "backends/cuda/cuda.h"
#include "backends/cuda/product.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/unary.cuh"

enum { PRODUCT_WARPS = 8 };

/* Which matrix row *row of all is in; *row becomes its number there. */
__device__ __forceinline__ int product_matrix(const struct product_args &a, uint32_t *row)
{
    int i = 0;
    while (i + 1 < a.n_matrices && *row >= a.matrix[i].rows)
        *row -= a.matrix[i++].rows;
    return i;
}

/* Of a launch by tiles of `rows` rows: which matrix tile *tile is in; *tile becomes its number there. */
__device__ __forceinline__ int product_tile(const struct product_args &a, uint32_t rows, uint32_t *tile)
{
    int i = 0;
    for (uint32_t tiles; i + 1 < a.n_matrices && *tile >= (tiles = (a.matrix[i].rows + rows - 1) / rows); i++)
        *tile -= tiles;
    return i;
}

static inline uint32_t product_tiles(const struct product_args *a, uint32_t rows)
{
    uint32_t n = 0;
    for (int i = 0; i < a->n_matrices; i++)
        n += (a->matrix[i].rows + rows - 1) / rows;
    return n;
}

/* add: m.add's value there, where it has any. */
__device__ __forceinline__ void product_store(const struct product_matrix &m, uint32_t row, int token, float v, float add)
{
    if (m.alone)
        m.alone[(size_t)token * m.alone_stride + row] = v;
    m.out[(size_t)token * m.out_stride + row] = m.add ? v + add : v;
}

__device__ __forceinline__ void product_store(const struct product_matrix &m, uint32_t row, int token, float v)
{
    product_store(m, row, token, v, m.add ? m.add[(size_t)token * m.add_stride + row] : 0);
}

__device__ __forceinline__ float product_store_pair(const struct product_args &a, uint32_t row, int token, float gate, float up)
{
    if (a.matrix[0].alone)
        a.matrix[0].alone[(size_t)token * a.matrix[0].alone_stride + row] = gate;
    if (a.matrix[1].alone)
        a.matrix[1].alone[(size_t)token * a.matrix[1].alone_stride + row] = up;
    float y = unary_value(a.kind, gate) * up;
    if (a.matrix[0].out)
        a.matrix[0].out[(size_t)token * a.matrix[0].out_stride + row] = y;
    return y;
}

#endif
