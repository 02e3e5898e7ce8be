/* link.cuh: how blocks of several ranks exchange values and sum them in rank order (link.h: what they exchange through).
 *
 * Words. Each value goes with the turn's number in one word of 64 bits, straight into the other ranks' ends, and they wait
 * until every word that they want carries the number: one trip, no fence, no flag of its own, for twice the bytes. What a
 * thread sends is what the thread of the same number receives, so a turn needs no barrier either. Nobody reads another's
 * memory.
 *
 * Staged. A rank writes its part into its own end, publishes the turn's number and its size to everybody, waits for theirs, and
 * reads their parts where they lie: a fence and two trips, for as many bytes as there are. A number that does not come with the
 * expected size is another node of another program: an error, not a sum.
 *
 * Either way everybody reads everybody's part and sums by itself, ((x0 + x1) + x2) + ..., each addition rounded to f32: the
 * bits of comm/sum.h. A wait looks at the group's `stop` now and then, and at the clock (wait.cuh); when the time is over it
 * reports which rank did not come and at which node, stops the group, and the kernels run on with whatever there is, to an
 * error of the step. Those that waited meanwhile report where they stood.
 *
 * Where several ranks share a card a kernel of a collective does not let the next kernel begin early (cuda_release): blocks of
 * that one would hold their multiprocessors while they wait, and it is those that the missing rank needs. */
#ifndef BACKENDS_CUDA_LINK_CUH
#define BACKENDS_CUDA_LINK_CUH

#include "backends/cuda/link.h"
#include "backends/cuda/wait.cuh"

/* By all threads, first of all. */
__device__ static inline void link_enter(const struct link &l)
{
    if (!l.crowded)
        cuda_release();
    cuda_wait();
}

__device__ static inline void link_report(const struct link &l, int fault, int rank)
{
    struct link_report *r = &l.status->reports[l.rank];
    r->where = l.where;
    r->rank = (uint32_t)rank;
    link_tell(&r->fault, (uint32_t)fault);
}

/* The first reason stays: once the group has stopped, what is missing is what came of that. */
__device__ static inline void link_fail(const struct link &l, int fault, int rank)
{
    if (link_is_set(&l.status->stop))
        return;
    link_report(l, fault, rank);
    link_stop(&l.status->stop);
}

/* After a look that did not find what `rank` must bring: whether to look again. */
__device__ static inline bool link_waits(const struct link &l, struct wait &w, int rank)
{
    enum wait_state state = wait_ask(w, &l.status->stop, l.limit_ms);
    if (state == WAIT_OVER)
        link_fail(l, LINK_LATE, rank);
    else if (state == WAIT_STOPPED && !link_is_set(&l.status->reports[l.rank].fault))
        link_report(l, LINK_STOPPED, rank);
    return state == WAIT_ON;
}

/* The number behind `turn`: never 0, which is what fresh memory holds, and always in the other slot. */
__device__ static inline uint32_t link_next(uint32_t turn)
{
    return turn == 0xffffffffu ? 2 : turn + 1;
}

__device__ static inline uint32_t link_turn(const struct link &l)
{
    return l.size > 1 ? l.turns[blockIdx.x] : 0;
}

/* By all threads of the block, once its last turn is over. */
__device__ static inline void link_leave(const struct link &l, uint32_t turn)
{
    __syncthreads();
    if (l.size > 1 && threadIdx.x == 0 && threadIdx.y == 0)
        l.turns[blockIdx.x] = turn;
}

/* ---- words: units of four values, two stores of 16 bytes, halves of a channel apart so that neighbours stay neighbours */

__device__ static inline char *link_words_of(const struct link &l, int end, int sender, uint32_t turn)
{
    return l.ends[end] + LINK_FLAGS + LINK_STAGES + ((turn & 1) * (size_t)l.size + (size_t)sender) * LINK_SENDER +
           (size_t)blockIdx.x * LINK_WORD_BYTES;
}

__device__ static inline uint64_t link_word(float x, uint32_t turn)
{
    return (uint64_t)turn << 32 | __float_as_uint(x);
}

/* Unit u of this turn, to all others. */
__device__ static inline void words_send(const struct link &l, uint32_t turn, int u, float4 x)
{
    for (int d = 1; d < l.size; d++) {
        int r = l.rank + d < l.size ? l.rank + d : l.rank + d - l.size;
        char *to = link_words_of(l, r, l.rank, turn) + (size_t)u * 16;
        link_store(to, link_word(x.x, turn), link_word(x.y, turn));
        link_store(to + LINK_WORD_BYTES / 2, link_word(x.z, turn), link_word(x.w, turn));
    }
}

__device__ static inline float4 words_get(const struct link &l, uint32_t turn, int u, int sender)
{
    const char *from = link_words_of(l, l.rank, sender, turn) + (size_t)u * 16;
    struct wait w = {};
    uint64_t x[4];
    do {
        link_load(from, x[0], x[1]);
        link_load(from + LINK_WORD_BYTES / 2, x[2], x[3]);
    } while ((x[0] >> 32 != turn || x[1] >> 32 != turn || x[2] >> 32 != turn || x[3] >> 32 != turn) &&
             link_waits(l, w, sender));
    return make_float4(__uint_as_float((uint32_t)x[0]), __uint_as_float((uint32_t)x[1]), __uint_as_float((uint32_t)x[2]),
                       __uint_as_float((uint32_t)x[3]));
}

__device__ static inline float4 plus(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* The sum of all ranks' unit u; mine: what this rank has sent. */
__device__ static inline float4 words_sum(const struct link &l, uint32_t turn, int u, float4 mine)
{
    float4 sum = mine;
    for (int r = 0; r < l.size; r++) {
        float4 x = r == l.rank ? mine : words_get(l, turn, u, r);
        sum = r ? plus(sum, x) : x;
    }
    return sum;
}

/* ---- staged: units of four values */

__device__ static inline char *link_stage_of(const struct link &l, int end, uint32_t turn)
{
    return l.ends[end] + LINK_FLAGS + ((turn & 1) * (size_t)LINK_CHANNELS + blockIdx.x) * LINK_STAGE_BYTES;
}

__device__ static inline uint64_t *link_flag_of(const struct link &l, int end, int sender, uint32_t turn)
{
    return (uint64_t *)l.ends[end] + ((turn & 1) * LINK_CHANNELS + blockIdx.x) * LINK_RANKS + sender;
}

__device__ static inline void staged_put(const struct link &l, uint32_t turn, int u, float4 x)
{
    link_store(link_stage_of(l, l.rank, turn) + (size_t)u * 16, (uint64_t)__float_as_uint(x.y) << 32 | __float_as_uint(x.x),
               (uint64_t)__float_as_uint(x.w) << 32 | __float_as_uint(x.z));
}

__device__ static inline float4 staged_get(const struct link &l, uint32_t turn, int u, int sender)
{
    uint64_t a, b;
    link_load(link_stage_of(l, sender, turn) + (size_t)u * 16, a, b);
    return make_float4(__uint_as_float((uint32_t)a), __uint_as_float((uint32_t)(a >> 32)), __uint_as_float((uint32_t)b),
                       __uint_as_float((uint32_t)(b >> 32)));
}

/* Between the puts and the gets of a turn, by all threads of the block, which has one dimension and LINK_RANKS threads or more:
 * all ranks have put theirs. `size` is what this rank says of its part; sizes: what all say, one a rank, in shared memory;
 * NULL: they must say the same. */
__device__ static inline void staged_meet(const struct link &l, uint32_t turn, uint32_t size, uint32_t *sizes)
{
    int r = (int)threadIdx.x;
    __syncthreads();
    if (r < l.size) {
        uint64_t mine = (uint64_t)turn << 32 | size, its = mine;
        struct wait w = {};
        if (r != l.rank) {
            link_publish(link_flag_of(l, r, l.rank, turn), mine);
            do
                its = link_look(link_flag_of(l, l.rank, r, turn));
            while (its >> 32 != turn && link_waits(l, w, r));
        }
        if (sizes)
            sizes[r] = (uint32_t)its;
        else if (its >> 32 == turn && its != mine)
            link_fail(l, LINK_UNEVEN, r);
    }
    __syncthreads();
}

#endif
