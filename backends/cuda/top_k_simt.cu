/* top_k_simt.cu: the places of the k largest values of a row: a warp a row, k passes over values in shared memory, where those that
 * were taken are marked. A router has a few hundred experts and takes eight: sorting them would take longer. Among equals the lower
 * index comes first, and what is no number comes last, in whatever order the lanes meet. */
#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/top_k.h"
}

enum { TOP_K_MOST = 8192 };

/* a at index i stands before b at index j; a negative index stands behind all. */
__device__ static inline bool before(float a, int i, float b, int j)
{
    if (i < 0 || j < 0)
        return j < 0 && i >= 0;
    if (a > b || (isnan(b) && !isnan(a)))
        return true;
    if (b > a || (isnan(a) && !isnan(b)))
        return false;
    return i < j;
}

static __global__ void __launch_bounds__(32) top_k_rows(struct view x, struct view y, int k)
{
    extern __shared__ float values[];
    int n = (int)x.ne[0], lane = threadIdx.x;
    unsigned char *taken = (unsigned char *)(values + n);
    int64_t at[3];
    cuda_release();
    cuda_wait();
    view_split(y, blockIdx.x, at);
    const char *from = view_row(x, at[0], at[1], at[2]);
    char *to = view_row(y, at[0], at[1], at[2]);
    for (int i = lane; i < n; i += 32) {
        values[i] = *(const float *)(from + i * x.nb[0]);
        taken[i] = 0;
    }
    __syncwarp();
    for (int pass = 0; pass < k; pass++) {
        float best = 0;
        int place = -1;
        for (int i = lane; i < n; i += 32)
            if (!taken[i] && before(values[i], i, best, place)) {
                best = values[i];
                place = i;
            }
        for (int d = 16; d; d /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, best, d);
            int other_place = __shfl_xor_sync(0xffffffffu, place, d);
            if (before(other, other_place, best, place)) {
                best = other;
                place = other_place;
            }
        }
        if (lane == 0) {
            *(int32_t *)(to + pass * y.nb[0]) = place;
            taken[place] = 1;
        }
        __syncwarp();
    }
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0];
    return (x->ne[0] <= TOP_K_MOST && tensor_rows(x) <= INT32_MAX) ||
           fits_not(r, "%lld rows of %lld", (long long)tensor_rows(x), (long long)x->ne[0]);
}

static int run(const struct exec *x, const struct node *n)
{
    const struct tensor *in = n->src[0];
    return cuda_launch(x, top_k_rows, dim3((unsigned)tensor_rows(n->out)), dim3(32), (size_t)in->ne[0] * (sizeof(float) + 1), view_of(in),
                       view_of(n->out), node_params(n, struct top_k_params)->k);
}

CUDA_KERNEL(top_k_simt) = {.op = OP_TOP_K, .variant = "simt", .needs = CUDA_SM90, .fits = fits, .run = run};
