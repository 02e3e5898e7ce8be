/* all_gather_staged.cu: the rows of which every rank has a part. How wide another rank's part is only that rank knows, and its
 * flag says it. All ranks take as many turns, as many as the widest part there could be would need, since who has nothing left
 * to bring still meets the others. */
#include "backends/cuda/link.cuh"
#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/all_gather.h"
}

enum { THREADS = 512 };

struct gathering {
    struct link link;
    const float *x;
    float *y;
    int64_t rows, part, total; /* part: values a row that this rank has */
    bool vectors;              /* its values can be read four at a time */
};

/* Values [i, i + 4) of this rank's part; zeros behind the end. */
__device__ static inline float4 part_unit(const struct gathering &p, int64_t i, int64_t end)
{
    if (p.vectors)
        return *(const float4 *)(p.x + i);
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = i + k < end ? p.x[i + k] : 0;
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Values [i, i + 4) of a part that ends at `end`, in rows of `width`, to where they belong: from `at` on in rows of y. One
 * division of 32 bits a unit: those of 64 are some hundred instructions, and there were two a value. */
__device__ static inline void unit_leave(const struct gathering &p, int64_t i, int64_t end, int64_t width, int64_t at, float4 x)
{
    float v[4] = {x.x, x.y, x.z, x.w};
    uint32_t row = (uint32_t)i / (uint32_t)width, column = (uint32_t)i - row * (uint32_t)width;
    float *to = p.y + (int64_t)row * p.total + at;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (i + k < end)
            to[column] = v[k];
        if (++column == (uint32_t)width) {
            column = 0;
            to += p.total;
        }
    }
}

static __global__ void __launch_bounds__(THREADS) gather(const __grid_constant__ struct gathering p)
{
    extern __shared__ uint32_t sizes[];
    const struct link &l = p.link;
    link_enter(l);
    uint32_t turn = link_turn(l);
    int64_t most = p.total * p.rows;
    for (int64_t first = (int64_t)blockIdx.x * LINK_STAGED; first < most; first += (int64_t)gridDim.x * LINK_STAGED) {
        int64_t mine = p.part * p.rows, end = first + LINK_STAGED < mine ? first + LINK_STAGED : mine, at = 0;
        turn = link_next(turn);
        for (int64_t i = first + 4 * threadIdx.x; i < end && l.size > 1; i += 4 * THREADS)
            staged_put(l, turn, (int)((i - first) / 4), part_unit(p, i, end));
        if (l.size > 1)
            staged_meet(l, turn, (uint32_t)p.part, sizes);
        for (int r = 0; r < l.size; r++) {
            int64_t width = r == l.rank ? p.part : (int64_t)sizes[r], its = width * p.rows;
            if (at + width > p.total)
                break;
            its = first + LINK_STAGED < its ? first + LINK_STAGED : its;
            for (int64_t i = first + 4 * threadIdx.x; i < its; i += 4 * THREADS)
                unit_leave(p, i, its, width, at,
                           r == l.rank ? part_unit(p, i, its) : staged_get(l, turn, (int)((i - first) / 4), r));
            at += width;
        }
        if (l.size > 1 && at != p.total && threadIdx.x == 0)
            link_fail(l, LINK_UNEVEN, l.rank ? 0 : 1);
        for (int64_t i = first + threadIdx.x; i < first + LINK_STAGED && i < most && l.size == 1; i += THREADS)
            if ((uint32_t)i % (uint32_t)p.total >= p.part) /* alone: its part at the front, zeros behind */
                p.y[i] = 0;
        __syncthreads(); /* the sizes are the next turn's */
    }
    link_leave(l, turn);
}

static bool fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0];
    if (x->format != FORMAT_F32 || !tensor_contiguous(x) || !tensor_contiguous(n->out))
        return fits_not(r, "%s is not f32 without gaps", tensor_contiguous(x) ? n->out->name : x->name);
    if (tensor_elements(n->out) > INT32_MAX)
        return fits_not(r, "%lld values: they are counted in 32 bits", (long long)tensor_elements(n->out));
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    struct gathering p = {};
    p.link = link_of(x, n);
    p.x = (const float *)n->src[0]->data;
    p.y = (float *)n->out->data;
    p.part = n->src[0]->ne[0];
    p.total = n->out->ne[0];
    p.rows = tensor_rows(n->out);
    p.vectors = p.part * p.rows % 4 == 0 && (uintptr_t)p.x % sizeof(float4) == 0;
    unsigned blocks = link_grid(&p.link, div_up(p.total * p.rows, LINK_STAGED), LINK_CHANNELS);
    return cuda_launch(x, gather, dim3(blocks), dim3(THREADS), LINK_RANKS * sizeof(uint32_t), p);
}

CUDA_KERNEL(all_gather_staged) = {.op = OP_ALL_GATHER, .variant = "staged", .needs = CUDA_SM90, .fits = fits, .run = run};
