/* all_reduce_norm.cu: all_reduce_add_rms_norm_mul and the same quantised: the sum of all ranks' partials, the residual, the
 * norm of a row, its weight and A8 or halves, in one launch. A row belongs to one block, which exchanges it as words and keeps
 * it in registers until it is written, so what the norm adds to the collective is one barrier.
 *
 * Threads and values a thread go by a row's width as in norm.cu, and so does the order of the sum of squares: fused or not, the
 * bits are the same. */
#include "backends/cuda/a8.cuh"
#include "backends/cuda/link.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/view.cuh"

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

/* The squares' sum over the block, or over the warp that is all of it. */
template <int THREADS, class T> __device__ static inline T squares_sum(T x, T *room)
{
    return THREADS == WARP ? warp_sum(x) : block_sum(x, room);
}

template <int THREADS, int STEPS>
__device__ static inline float scale_of(const struct summed_norm &p, const float4 (&x)[STEPS], double *room)
{
    float squares = 0;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        squares += (x[s].x * x[s].x + x[s].y * x[s].y) + (x[s].z * x[s].z + x[s].w * x[s].w);
    squares = squares_sum<THREADS>(squares, (float *)(room + WARP));
    if (squares > 1e-30f && squares < 1e38f)
        return 1 / sqrtf(p.share > 0 ? fmaf(squares, p.share, p.eps) : squares / (float)p.width + p.eps);
    double again = 0; /* near an end of f32; the same for all threads of the row */
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        again += ((double)x[s].x * x[s].x + (double)x[s].y * x[s].y) + ((double)x[s].z * x[s].z + (double)x[s].w * x[s].w);
    again = squares_sum<THREADS>(again, room);
    return (float)(1 / sqrt((p.share > 0 ? again * (double)p.share : again / (double)(float)p.width) + (double)p.eps));
}

__device__ static inline char *row_of(const struct view &v, const int64_t i[3])
{
    return v.data ? view_row(v, i[0], i[1], i[2]) : NULL;
}

__device__ static inline void halves_store(int format, char *to, int chunk, float4 y)
{
    ushort4 h = format == FORMAT_F16 ? make_ushort4(f16_of_f32(y.x), f16_of_f32(y.y), f16_of_f32(y.z), f16_of_f32(y.w))
                                     : make_ushort4(bf16_of_f32(y.x), bf16_of_f32(y.y), bf16_of_f32(y.z), bf16_of_f32(y.w));
    ((ushort4 *)to)[chunk] = h;
}

template <int THREADS, int STEPS>
__device__ static inline void row_leave(const struct summed_norm &p, int64_t row, const float4 (&x)[STEPS], float scale)
{
    int64_t i[3];
    view_split(p.sum, row, i);
    char *sum = p.sum.data ? view_row(p.sum, i[0], i[1], i[2]) : NULL, *normed = row_of(p.normed, i),
         *product = row_of(p.product, i), *quantized = row_of(p.quantized, i);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int c = (int)threadIdx.x + s * THREADS;
        bool has = 4 * c < p.width;
        float4 w = has ? ((const float4 *)p.weight)[c] : make_float4(0, 0, 0, 0);
        float4 y = make_float4(x[s].x * scale, x[s].y * scale, x[s].z * scale, x[s].w * scale);
        if (sum && has)
            ((float4 *)sum)[c] = x[s];
        if (normed && has)
            ((float4 *)normed)[c] = y;
        y = make_float4(y.x * w.x, y.y * w.y, y.z * w.z, y.w * w.w);
        if (product && has)
            ((float4 *)product)[c] = y;
        if (quantized && p.quantized.format == FORMAT_A8)
            a8_store_4(has ? (struct block_a8 *)quantized + c / 8 : NULL, y);
        else if (quantized && has)
            halves_store(p.quantized.format, quantized, c, y);
    }
}

template <int THREADS, int STEPS>
static __global__ void __launch_bounds__(THREADS) sum_and_norm(const __grid_constant__ struct summed_norm p)
{
    extern __shared__ double room[];
    const struct link &l = p.link;
    link_enter(l);
    uint32_t turn = link_turn(l);
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const float4 *partial = (const float4 *)(p.x + row * p.width), *addend = (const float4 *)(p.addend + row * p.width);
        float4 x[STEPS], b[STEPS];
        turn = link_next(turn);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = (int)threadIdx.x + s * THREADS;
            bool has = 4 * c < p.width;
            x[s] = has ? partial[c] : make_float4(0, 0, 0, 0);
            b[s] = has ? addend[c] : make_float4(0, 0, 0, 0);
            if (has)
                words_send(l, turn, c, x[s]);
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            int c = (int)threadIdx.x + s * THREADS;
            if (4 * c < p.width)
                x[s] = plus(words_sum(l, turn, c, x[s]), b[s]);
        }
        row_leave<THREADS, STEPS>(p, row, x, scale_of<THREADS, STEPS>(p, x, room));
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

/* Whether norm.cu would take its kernel for a few rows that lie one behind the other. */
static bool few_rows(const struct left *m, const struct tensor *sum)
{
    const struct tensor *all[] = {m->sum, m->normed, m->product, m->quantized};
    if (tensor_rows(sum) > 8 || sum->ne[0] < 512 || (m->quantized && m->quantized->format != FORMAT_A8))
        return false;
    for (const struct tensor *t : all)
        if (t && !tensor_contiguous(t))
            return false;
    return true;
}

static int run(const struct exec *x, const struct node *n)
{
    struct left m = left_of(n);
    const struct tensor *sum = n->parts[1]->out;
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
    p.share = few_rows(&m, sum) ? 1 / (float)p.width : 0;
    if (p.share > 0 && p.width <= 1024)
        return launch<256, 1>(x, p);
    if (p.share > 0 && p.width > 4096 && p.width <= 5120)
        return launch<640, 2>(x, p);
    if (p.width <= 128)
        return launch<32, 1>(x, p);
    if (p.width <= 256)
        return launch<32, 2>(x, p);
    if (p.width <= 512)
        return launch<32, 4>(x, p);
    if (p.width <= 1024)
        return launch<256, 1>(x, p);
    if (p.width <= 2048)
        return launch<512, 1>(x, p);
    if (p.width <= 4096)
        return launch<512, 2>(x, p);
    return launch<1024, 2>(x, p);
}

CUDA_KERNEL(all_reduce_add_rms_norm_mul_words) = {
    .op = OP_ALL_REDUCE_ADD_RMS_NORM_MUL, .variant = "words", .needs = CUDA_SM90, .fits = fits, .run = run};
CUDA_KERNEL(all_reduce_add_rms_norm_mul_quantize_words) = {
    .op = OP_ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE, .variant = "words", .needs = CUDA_SM90, .fits = fits, .run = run};
