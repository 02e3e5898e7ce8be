/* all_reduce.cu: all_reduce, and the collectives that differ from it in what is summed and what is added behind:
 * all_reduce_add (a residual) and all_reduce_get_rows (only the rows whose ids are given are exchanged at all).
 *
 * One body, which asks for values of the partial as the output wants them, four at a time, and two ways to exchange: words for
 * what fits a turn of them, staged for anything. A decode step's 20 KB are three blocks of 512 threads, one unit a thread: it
 * is the latency of two launches, a store and a load. Grids are small on purpose: where ranks share a card, those who wait must
 * leave it to those who are waited for. */
#include "backends/cuda/link.cuh"
#include "backends/cuda/view.cuh"

enum { THREADS = 512, GRAIN = 4 * THREADS }; /* values that are worth a block */

struct reduction {
    struct link link;
    const float *x, *addend; /* addend NULL: nothing is added */
    float *y;
    const uint8_t *ids; /* NULL: y is all of x */
    size_t ids_step;
    int64_t n, width, rows; /* of y: values, values a row; of x: rows */
    bool vectors;           /* units lie at multiples of 16 bytes, and within a row */
};

/* Where value i of y, which ids say the rows of, lies in x; NULL: nowhere. */
__device__ static inline const float *listed_at(const struct reduction &p, int64_t i)
{
    uint32_t row = (uint32_t)i / (uint32_t)p.width; /* of 64 bits it would take most of the time of a unit */
    int64_t id = *(const int32_t *)(p.ids + (size_t)row * p.ids_step);
    return id >= 0 && id < p.rows ? p.x + (id - row) * p.width + i : NULL;
}

__device__ static inline float partial_at(const struct reduction &p, int64_t i)
{
    const float *at = p.ids ? listed_at(p, i) : p.x + i;
    return at ? *at : 0;
}

/* Values [i, i + 4) of this rank's partial; zeros behind the end. */
__device__ static inline float4 partial_unit(const struct reduction &p, int64_t i)
{
    if (p.vectors && !p.ids)
        return ((const float4 *)p.x)[i / 4];
    if (p.vectors) {
        const float *at = listed_at(p, i);
        return at ? *(const float4 *)at : make_float4(0, 0, 0, 0);
    }
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = i + k < p.n ? partial_at(p, i + k) : 0;
    return make_float4(v[0], v[1], v[2], v[3]);
}

__device__ static inline void leave_unit(const struct reduction &p, int64_t i, float4 sum)
{
    if (p.vectors) {
        if (p.addend)
            sum = plus(sum, ((const float4 *)p.addend)[i / 4]);
        ((float4 *)p.y)[i / 4] = sum;
        return;
    }
    float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + k < p.n)
            p.y[i + k] = p.addend ? v[k] + p.addend[i + k] : v[k];
}

struct words {
    enum { UNITS = LINK_WORDS / 4, CHANNELS = LINK_WORD_CHANNELS };
    /* Units [at, at + n) of the output. */
    static __device__ void turn(const struct reduction &p, uint32_t turn, int64_t at, int n)
    {
        for (int u = (int)threadIdx.x; u < n; u += THREADS)
            words_send(p.link, turn, u, partial_unit(p, 4 * (at + u)));
        for (int u = (int)threadIdx.x; u < n; u += THREADS)
            leave_unit(p, 4 * (at + u), words_sum(p.link, turn, u, partial_unit(p, 4 * (at + u))));
    }
};

struct staged {
    enum { UNITS = LINK_STAGED / 4, CHANNELS = LINK_CHANNELS };
    enum { BATCH = 4 }; /* loads of a thread in flight: one from another card takes a microsecond and more */

    /* What the thread's BATCH units from u on are of this rank; zeros behind the last of n. */
    static __device__ __forceinline__ void mine(const struct reduction &p, int64_t at, int n, int u, float4 (&x)[BATCH])
    {
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            x[b] = u + b * THREADS < n ? partial_unit(p, 4 * (at + u + b * THREADS)) : make_float4(0, 0, 0, 0);
    }
    static __device__ void turn(const struct reduction &p, uint32_t turn, int64_t at, int n)
    {
        const struct link &l = p.link;
        float4 own[BATCH], sum[BATCH], x[BATCH];
        for (int u = (int)threadIdx.x; u < n && l.size > 1; u += BATCH * THREADS) {
            mine(p, at, n, u, own);
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (u + b * THREADS < n)
                    staged_put(l, turn, u + b * THREADS, own[b]);
        }
        if (l.size > 1)
            staged_meet(l, turn, (uint32_t)n, NULL);
        for (int u = (int)threadIdx.x; u < n; u += BATCH * THREADS) {
            mine(p, at, n, u, own);
            for (int r = 0; r < l.size; r++) {
#pragma unroll
                for (int b = 0; b < BATCH; b++)
                    x[b] = r == l.rank || u + b * THREADS >= n ? own[b] : staged_get(l, turn, u + b * THREADS, r);
#pragma unroll
                for (int b = 0; b < BATCH; b++)
                    sum[b] = r ? plus(sum[b], x[b]) : x[b];
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (u + b * THREADS < n)
                    leave_unit(p, 4 * (at + u + b * THREADS), sum[b]);
        }
    }
};

template <class Way> static __global__ void __launch_bounds__(THREADS) reduce(const __grid_constant__ struct reduction p)
{
    link_enter(p.link);
    uint32_t turn = link_turn(p.link);
    int64_t units = (p.n + 3) / 4, each = (units + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
    int64_t end = first + each < units ? first + each : units;
    for (int64_t at = first; at < end; at += Way::UNITS) {
        turn = link_next(turn);
        Way::turn(p, turn, at, (int)(end - at < Way::UNITS ? end - at : (int64_t)Way::UNITS));
    }
    link_leave(p.link, turn);
}

static bool plain(const struct tensor *t, struct reason *r)
{
    if (t->format != FORMAT_F32)
        return fits_not(r, "%s is %s, not f32", t->name, format_get(t->format)->name);
    return tensor_contiguous(t) || fits_not(r, "%s has gaps", t->name);
}

static bool fits(const struct node *n, struct reason *r)
{
    if (n->n_parts && node_leaves(n, n->parts[0]->out))
        return fits_not(r, "%s is read elsewhere too", n->parts[0]->out->name);
    if (n->op == OP_ALL_REDUCE_GET_ROWS && tensor_elements(n->out) > INT32_MAX)
        return fits_not(r, "%lld values of rows: they are counted in 32 bits", (long long)tensor_elements(n->out));
    return plain(n->src[0], r) && plain(n->out, r) && (n->op != OP_ALL_REDUCE_ADD || plain(n->src[1], r));
}

static bool fits_words(const struct node *n, struct reason *r)
{
    int64_t most = (int64_t)LINK_WORD_CHANNELS * LINK_WORDS, values = tensor_elements(n->out);
    if (values > most)
        return fits_not(r, "%lld values; at most %lld go as words", (long long)values, (long long)most);
    return fits(n, r);
}

template <class Way> static int run(const struct exec *x, const struct node *n)
{
    const struct tensor *partial = n->src[0], *rows = n->op == OP_ALL_REDUCE_GET_ROWS ? n->src[1] : NULL;
    struct reduction p = {};
    p.link = link_of(x, n);
    p.x = (const float *)partial->data;
    p.addend = n->op == OP_ALL_REDUCE_ADD ? (const float *)n->src[1]->data : NULL;
    p.y = (float *)n->out->data;
    p.ids = rows ? (const uint8_t *)rows->data : NULL;
    p.ids_step = rows ? rows->nb[0] : 0;
    p.n = tensor_elements(n->out);
    p.width = n->out->ne[0];
    p.rows = p.width ? tensor_elements(partial) / p.width : 0;
    p.vectors =
        (rows ? p.width : p.n) % 4 == 0 && ((uintptr_t)p.x | (uintptr_t)p.addend | (uintptr_t)p.y) % sizeof(float4) == 0;
    return cuda_launch(x, reduce<Way>, dim3(link_grid(&p.link, div_up(p.n, GRAIN), Way::CHANNELS)), dim3(THREADS), 0, p);
}

#define COLLECTIVE(OP, name)                                                                                                   \
    CUDA_KERNEL(name##_staged) = {.op = OP_##OP, .variant = "staged", .needs = CUDA_SM90, .fits = fits, .run = run<staged>};   \
    CUDA_KERNEL(name##_words) = {.op = OP_##OP, .variant = "words", .needs = CUDA_SM90, .fits = fits_words, .run = run<words>}

COLLECTIVE(ALL_REDUCE, all_reduce);
COLLECTIVE(ALL_REDUCE_ADD, all_reduce_add);
COLLECTIVE(ALL_REDUCE_GET_ROWS, all_reduce_get_rows);
