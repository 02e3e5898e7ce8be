/* conv.cu: the body of ssm_conv and ssm_conv_silu: a causal depthwise convolution over the tokens of each sequence, with a state.
 *
 * A thread has a channel; the grid's y cuts a sequence's tokens into chunks that need nothing of each other, since inputs are at
 * hand and outputs do not feed back. The first chunk alone touches the state: it reads the old window, and writes the new one when
 * its channel is done, whose inputs it takes from x again. Sequences go one after the other within a block, so what one leaves
 * another reads in the order of their numbers. Bound by bytes in a prefill, by latency in a decode step. */
#include "backends/cuda/conv.h"

#include "backends/cuda/recurrent.cuh"
#include "backends/cuda/unary.cuh"

enum { CONV_THREADS = 128, CONV_CHUNK = 32, CONV_WIDTH = 16 };

struct conv_task {
    struct view x, weight, state, sequences, slots, y;
    int n_seq, width;
    bool silu_behind;
};

/* Input number t of the sequence; negative: from its state. */
__device__ static inline float conv_input(const struct conv_task &p, const int32_t *tokens, int64_t slot, int64_t c, int t)
{
    if (t >= 0)
        return *view_f32(p.x, c, tokens[t], 0, 0);
    return slot < 0 ? 0 : *view_f32(p.state, c, p.width - 1 + t, slot, 0);
}

/* Tokens [first, end) of one sequence, one channel. */
template <int WIDTH>
__device__ static inline void conv_channel(const struct conv_task &p, const int32_t *tokens, int64_t slot, int64_t c, int first, int end)
{
    float w[WIDTH], window[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        w[j] = j < p.width ? *view_f32(p.weight, p.width - 1 - j, c, 0, 0) : 0; /* w[0] is the newest input's */
        window[j] = j && j < p.width ? conv_input(p, tokens, slot, c, first - j) : 0;
    }
#pragma unroll 4
    for (int t = first; t < end; t++) {
        window[0] = *view_f32(p.x, c, tokens[t], 0, 0);
        float sum = 0;
#pragma unroll
        for (int j = WIDTH; j-- > 0;)
            sum = fmaf(w[j], window[j], sum);
#pragma unroll
        for (int j = WIDTH - 1; j > 0; j--)
            window[j] = window[j - 1];
        *view_f32(p.y, c, tokens[t], 0, 0) = p.silu_behind ? silu(sum) : sum;
    }
}

/* The window that the sequence leaves: its last inputs, of which the old window has some where the step is short. */
template <int WIDTH>
__device__ static inline void conv_leave(const struct conv_task &p, const int32_t *tokens, int n, int64_t from, int64_t to, int64_t c)
{
    float next[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH - 1; j++)
        next[j] = j < p.width - 1 ? conv_input(p, tokens, from, c, n - (p.width - 1) + j) : 0;
#pragma unroll
    for (int j = 0; j < WIDTH - 1; j++)
        if (j < p.width - 1)
            *view_f32(p.state, c, j, to, 0) = next[j];
}

template <int WIDTH> static __global__ void __launch_bounds__(CONV_THREADS) conv_channels(const __grid_constant__ struct conv_task p)
{
    extern __shared__ int32_t list[];
    __shared__ int count;
    int64_t c = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    int first = blockIdx.y * CONV_CHUNK;
    cuda_release();
    cuda_wait();
    for (int seq = STRAYS; seq < p.n_seq; seq++) {
        __syncthreads();
        int n = recurrent_list(p.sequences, p.n_seq, seq, list, &count), end = n < first + CONV_CHUNK ? n : first + CONV_CHUNK;
        if (first >= end || c >= p.y.ne[0])
            continue;
        if (seq == STRAYS) {
            for (int t = first; t < end; t++)
                *view_f32(p.y, c, list[t], 0, 0) = 0;
            continue;
        }
        int64_t from = recurrent_slot(p.slots, seq, 0, p.state.ne[2]), to = recurrent_slot(p.slots, seq, 1, p.state.ne[2]);
        conv_channel<WIDTH>(p, list, from, c, first, end);
        if (first == 0 && to >= 0)
            conv_leave<WIDTH>(p, list, n, from, to, c);
    }
}

bool conv_fits(const struct node *n, struct reason *r)
{
    int64_t width = n->src[1]->ne[0], tokens = n->src[0]->ne[1];
    if (width > CONV_WIDTH)
        return fits_not(r, "a window of %lld", (long long)width);
    if (tokens > RECURRENT_TOKENS)
        return fits_not(r, "%lld tokens", (long long)tokens);
    if (n->n_also)
        return fits_not(r, "%.60s is read by others", n->also[0]->name);
    return true;
}

int conv_run(const struct exec *x, const struct node *n, bool silu_behind)
{
    struct conv_task p = {view_of(n->src[0]), view_of(n->src[1]), view_of(n->src[2]), view_of(n->src[3]), view_of(n->src[4]), view_of(n->out)};
    p.n_seq = (int)n->src[4]->ne[1];
    p.width = (int)n->src[1]->ne[0];
    p.silu_behind = silu_behind;
    int64_t tokens = n->src[0]->ne[1];
    dim3 grid((unsigned)div_up(n->out->ne[0], CONV_THREADS), (unsigned)div_up(tokens, CONV_CHUNK));
    return cuda_launch(x, p.width <= 4 ? conv_channels<4> : conv_channels<CONV_WIDTH>, grid, dim3(CONV_THREADS), (size_t)tokens * sizeof(int32_t), p);
}
