/* all_reduce_norm.cu: all_reduce_add_rms_norm_mul and the same quantised: the sum of all ranks' partials, the residual, the
 * norm of a row, its weight and A8 or halves, in one launch. A row belongs to one block, which exchanges it as words and keeps
 * it in registers until it is written, so what the norm adds to the collective is one barrier.
 *
 * Threads and values a thread go by a row's width as in norm.cu, and the scale by the same rule (norm.cuh): fused or not, the
 * bits are the same. */
#include "backends/cuda/link.cuh"
#include "backends/cuda/norm.cuh"

extern "C" {
#include "ops/rms_norm.h"
}

struct summed_norm {
    struct link link;
    const float *x, *addend, *weight;
    struct view sum, normed, product, quantized; /* data NULL: nobody wants it */
    int64_t rows;
    int width;
    float eps, share; /* share: 1 / width where norm.cu multiplies by it, since the rows are few; else 0 */
};

enum { ROOM = WARP * (sizeof(double) + sizeof(float)) };

template <int THREADS, int STEPS>
__device__ static inline float scale_of(const struct summed_norm &p, const float4 (&x)[STEPS], double *room)
{
    float *room_float = (float *)(room + WARP);
    return p.share > 0 ? norm_scale<true, THREADS>(x, p.share, p.eps, room_float, room)
                       : norm_scale<false, THREADS>(x, (float)p.width, p.eps, room_float, room);
}

__device__ static inline char *row_of(const struct view &v, const int64_t i[3])
{
    return v.data ? view_row(v, i[0], i[1], i[2]) : NULL;
}

template <int THREADS, int STEPS>
static __global__ void __launch_bounds__(THREADS) sum_and_norm(const __grid_constant__ struct summed_norm p)
{
    extern __shared__ double room[];
    const struct link &l = p.link;
    const int chunks = p.width / 4;
    float4 x[STEPS], b[STEPS], weight[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) { /* no other node writes it, so it is asked for before this one's turn */
        int c = (int)threadIdx.x + s * THREADS;
        weight[s] = c < chunks ? ((const float4 *)p.weight)[c] : make_float4(0, 0, 0, 0);
    }
    link_enter(l);
    uint32_t turn = link_turn(l);
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const float4 *partial = (const float4 *)(p.x + row * p.width), *addend = (const float4 *)(p.addend + row * p.width);
        int64_t i[3];
        turn = link_next(turn);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = (int)threadIdx.x + s * THREADS;
            x[s] = c < chunks ? partial[c] : make_float4(0, 0, 0, 0);
            b[s] = c < chunks ? addend[c] : make_float4(0, 0, 0, 0);
            if (c < chunks)
                words_send(l, turn, c, x[s]);
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = (int)threadIdx.x + s * THREADS;
            if (c < chunks)
                x[s] = plus(words_sum(l, turn, c, x[s]), b[s]);
        }
        view_split(p.sum, row, i);
        struct norm_results to = {(float4 *)row_of(p.sum, i), (float4 *)row_of(p.normed, i), (float4 *)row_of(p.product, i),
                                  row_of(p.quantized, i), p.quantized.format};
        norm_leave<THREADS>(to, chunks, x, weight, scale_of<THREADS>(p, x, room));
        __syncthreads(); /* the room is the next row's */
    }
    link_leave(l, turn);
}

/* What the parts leave, each where somebody reads it. */
struct left {
    const struct tensor *sum, *normed, *product, *quantized;
};

static struct left left_of(const struct node *n)
{
    const struct tensor *t[4] = {NULL, NULL, NULL, NULL};
    for (int i = 1; i < n->n_parts && i < 5; i++)
        t[i - 1] = node_leaves(n, n->parts[i]->out) ? n->parts[i]->out : NULL;
    return {t[0], t[1], t[2], t[3]};
}

static bool lies_plain(const struct tensor *t, struct reason *r)
{
    if (!t)
        return true;
    if (t->format != FORMAT_F32)
        return fits_not(r, "%s is %s, not f32", t->name, format_get(t->format)->name);
    bool aligned = view_aligned(t, sizeof(float4)) && t->offset % sizeof(float4) == 0;
    return aligned || fits_not(r, "%s does not lie in whole vectors", t->name);
}

static bool fits(const struct node *n, struct reason *r)
{
    struct left m = left_of(n);
    const struct tensor *sum = n->parts[1]->out, *weight = n->src[2], *x = n->src[0], *addend = n->src[1];
    int64_t width = sum->ne[0];
    if (width % 4 || width > LINK_WORDS)
        return fits_not(r, "rows of %lld: multiples of 4 up to %d are exchanged as words", (long long)width, LINK_WORDS);
    if (weight->ne[0] != width || tensor_rows(weight) != 1)
        return fits_not(r, "a weight of %lld along rows of %lld", (long long)weight->ne[0], (long long)width);
    if (tensor_elements(addend) != tensor_elements(sum))
        return fits_not(r, "%s repeats", addend->name);
    if (node_leaves(n, n->parts[0]->out))
        return fits_not(r, "%s is read elsewhere too", n->parts[0]->out->name);
    if (!tensor_contiguous(x) || !tensor_contiguous(addend))
        return fits_not(r, "%s has gaps", tensor_contiguous(x) ? addend->name : x->name);
    if (m.quantized &&
        (!view_aligned(m.quantized, 8) ||
         (m.quantized->format != FORMAT_A8 && m.quantized->format != FORMAT_F16 && m.quantized->format != FORMAT_BF16)))
        return fits_not(r, "a result in %s", format_get(m.quantized->format)->name);
    return lies_plain(x, r) && lies_plain(addend, r) && lies_plain(weight, r) && lies_plain(m.sum, r) &&
           lies_plain(m.normed, r) && lies_plain(m.product, r);
}

template <int THREADS, int STEPS> static int launch(const struct exec *x, const struct summed_norm &p)
{
    unsigned blocks = p.rows < LINK_WORD_CHANNELS ? (unsigned)p.rows : (unsigned)LINK_WORD_CHANNELS;
    return cuda_launch(x, sum_and_norm<THREADS, STEPS>, dim3(blocks), dim3(THREADS), ROOM, p);
}

static int run(const struct exec *x, const struct node *n)
{
    struct left m = left_of(n);
    const struct tensor *sum = n->parts[1]->out, *all[] = {m.sum, m.normed, m.product, m.quantized};
    struct summed_norm p = {};
    p.link = link_of(x, n);
    p.x = (const float *)n->src[0]->data;
    p.addend = (const float *)n->src[1]->data;
    p.weight = (const float *)n->src[2]->data;
    p.sum = view_of(sum);
    p.sum.data = m.sum ? (char *)m.sum->data : NULL;
    p.normed = view_of(m.normed);
    p.product = view_of(m.product);
    p.quantized = view_of(m.quantized);
    p.rows = tensor_rows(sum);
    p.width = (int)sum->ne[0];
    p.eps = node_params(n, struct rms_norm_params)->eps;
    bool few = norm_few_rows(p.rows, p.width, m.quantized, all, sizeof all / sizeof *all); /* as norm.cu asks of its own */
    p.share = few ? 1 / (float)p.width : 0;
    auto start = [&]<int THREADS, int STEPS>() { return launch<THREADS, STEPS>(x, p); };
    return few ? norm_by_width<true, LINK_WORDS>(p.width, start) : norm_by_width<false, LINK_WORDS>(p.width, start);
}

CUDA_KERNEL(all_reduce_add_rms_norm_mul_words) = {
    .op = OP_ALL_REDUCE_ADD_RMS_NORM_MUL, .variant = "words", .needs = CUDA_SM90, .fits = fits, .run = run};
CUDA_KERNEL(all_reduce_add_rms_norm_mul_quantize_words) = {
    .op = OP_ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE, .variant = "words", .needs = CUDA_SM90, .fits = fits, .run = run};
