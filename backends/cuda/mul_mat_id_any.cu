/* mul_mat_id_any.cu: products with experts for every format in file order and any strides: a warp an output, lanes along k,
 * unpacking value by value. What is slow here belongs in an s32 layout. */
#include "backends/cuda/experts.cuh"
#include "backends/cuda/unpack.cuh"

struct id_any_args {
    const uint8_t *w, *x, *ids, *bias;
    uint8_t *out;
    struct unpack_row w_row, x_row;
    size_t w_nb[4], x_nb[4], ids_nb[2], bias_nb[2], out_nb[4];
    int64_t k, rows;
    int n_expert, used, x_rows; /* rows of X a token: 1 or `used` */
};

static __global__ void __launch_bounds__(32 * PRODUCT_WARPS) mul_mat_id_any(const __grid_constant__ struct id_any_args a)
{
    int64_t row = (int64_t)blockIdx.x * PRODUCT_WARPS + (threadIdx.x >> 5);
    size_t j = blockIdx.y % (unsigned)a.used, t = blockIdx.y / (unsigned)a.used;
    cuda_release();
    cuda_wait();
    if (row >= a.rows)
        return;
    int expert = *(const int32_t *)(a.ids + j * a.ids_nb[0] + t * a.ids_nb[1]);
    float sum = 0;
    if (expert >= 0 && expert < a.n_expert) {
        const uint8_t *w = a.w + (size_t)expert * a.w_nb[2] + (size_t)row * a.w_nb[1];
        const uint8_t *x = a.x + (a.x_rows == 1 ? 0 : j) * a.x_nb[1] + t * a.x_nb[2];
        for (int64_t i = threadIdx.x & 31; i < a.k; i += 32)
            sum += unpack_at(a.w_row, w, i) * unpack_at(a.x_row, x, i);
        sum = warp_sum(sum);
        if (a.bias)
            sum += *(const float *)(a.bias + (size_t)row * a.bias_nb[0] + (size_t)expert * a.bias_nb[1]);
    }
    if ((threadIdx.x & 31) == 0)
        *(float *)(a.out + (size_t)row * a.out_nb[0] + j * a.out_nb[1] + t * a.out_nb[2]) = sum;
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *bias = n->n_src > 3 ? n->src[3] : NULL;
    if (n->out->ne[1] * n->out->ne[2] > 65535)
        return fits_not(r, "more pairs of a token and an expert than a grid has rows");
    for (int i = 0; i < MAX_DIMS; i++)
        if (n->out->nb[i] % sizeof(float) || n->src[2]->nb[i] % sizeof(float) || (bias && bias->nb[i] % sizeof(float)))
            return fits_not(r, "an element lies at an odd place");
    return true;
}

int experts_any(const struct exec *x, const struct node *n)
{
    const struct tensor *w = n->src[0], *act = n->src[1], *ids = n->src[2], *bias = n->n_src > 3 ? n->src[3] : NULL,
                        *out = n->out;
    struct id_any_args a = {};
    a.w = (const uint8_t *)w->data;
    a.x = (const uint8_t *)act->data;
    a.ids = (const uint8_t *)ids->data;
    a.bias = bias ? (const uint8_t *)bias->data : NULL;
    a.out = (uint8_t *)out->data;
    a.w_row = unpack_row_of(w->format, w->nb[0]);
    a.x_row = unpack_row_of(act->format, act->nb[0]);
    for (int i = 0; i < MAX_DIMS; i++) {
        a.w_nb[i] = w->nb[i];
        a.x_nb[i] = act->nb[i];
        a.out_nb[i] = out->nb[i];
    }
    for (int i = 0; i < 2; i++) {
        a.ids_nb[i] = ids->nb[i];
        a.bias_nb[i] = bias ? bias->nb[i] : 0;
    }
    a.k = w->ne[0];
    a.rows = w->ne[1];
    a.n_expert = (int)w->ne[2];
    a.used = (int)ids->ne[0];
    a.x_rows = (int)act->ne[1];
    return cuda_launch(x, mul_mat_id_any,
                       dim3((unsigned)((a.rows + PRODUCT_WARPS - 1) / PRODUCT_WARPS), (unsigned)(out->ne[1] * out->ne[2])),
                       dim3(32 * PRODUCT_WARPS), 0, a);
}

static int run(const struct exec *x, const struct node *n)
{
    return experts_any(x, n);
}

CUDA_KERNEL(mul_mat_id_any) = {.op = OP_MUL_MAT_ID, .variant = "any", .needs = CUDA_SM90, .fits = fits, .run = run};
