/* recurrent.cuh: which tokens are of which sequence, and where its state lies (ops/recurrent.h), on the device. */
#ifndef BACKENDS_CUDA_RECURRENT_CUH
#define BACKENDS_CUDA_RECURRENT_CUH

#include "backends/cuda/view.cuh"

enum { RECURRENT_TOKENS = 8192, STRAYS = -1 };

/* The tokens of sequence `seq` in order (STRAYS: of no sequence of n_seq) into list, in shared memory; how many. The whole
 * block calls it, and may read the list when it returns; between two calls the caller has a barrier. */
__device__ static inline int recurrent_list(const struct view &sequences, int n_seq, int seq, int32_t *list, int *count)
{
    int n_tokens = (int)sequences.ne[0];
    if (threadIdx.x < 32) {
        int n = 0, lane = threadIdx.x;
        for (int first = 0; first < n_tokens; first += 32) {
            int t = first + lane;
            int32_t of = t < n_tokens ? view_index(sequences, t, 0) : -1;
            bool is = t < n_tokens && (seq == STRAYS ? of < 0 || of >= n_seq : of == seq);
            uint32_t which = __ballot_sync(0xffffffffu, is);
            if (is)
                list[n + __popc(which & ((1u << lane) - 1))] = t;
            n += __popc(which);
        }
        if (lane == 0)
            *count = n;
    }
    __syncthreads();
    return *count;
}

/* Slot that a sequence reads (writes 0) or writes (1); -1: none. */
__device__ static inline int64_t recurrent_slot(const struct view &slots, int64_t seq, int writes, int64_t n_slots)
{
    int64_t slot = view_index(slots, writes, seq);
    return slot >= 0 && slot < n_slots ? slot : -1;
}

#endif
