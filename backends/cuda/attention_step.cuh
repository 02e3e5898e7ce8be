/* attention_step.cuh: what one token's attention does before it meets the cache: angles, norms and rope of q and k, the write of the new
 * key and value, which cells it reads. */
#ifndef BACKENDS_CUDA_ATTENTION_STEP_CUH
#define BACKENDS_CUDA_ATTENTION_STEP_CUH

#include "backends/cuda/a8.cuh"
#include "backends/cuda/attention_split.cuh"
#include "backends/cuda/attention_step.h"
#include "backends/cuda/rope.cuh"
#include "backends/cuda/row_store.cuh"

/* By so many threads, the first of the block. */
__device__ static inline void attend_angles_make(const struct attend_task &p, float *cosines, float *sines, int threads)
{
    const struct attend_angles &a = p.angles;
    for (int i = threadIdx.x; i < a.pairs; i += threads) {
        double full = exp2(i * a.ratio), frequency = full * a.scale;
        if (a.extension != 0) {
            double mix = (1 - fmin(1.0, fmax(0.0, (i - a.low) / a.span))) * a.extension;
            frequency = frequency * (1 - mix) + full * mix;
        }
        if (a.factors)
            frequency /= (double)a.factors[i];
        float sine, cosine;
        rope_sine_cosine(p.positions[0] * frequency, &sine, &cosine);
        sines[i] = sine * a.magnitude;
        cosines[i] = cosine * a.magnitude;
    }
}

/* A head's row, normed where it has a weight, to shared memory; a warp does it. */
template <int D> __device__ static inline void attend_load(const struct attend_rows &from, int head, float *row)
{
    int lane = threadIdx.x % WARP;
    const float *x = (const float *)(from.rows + head * from.head);
    float y[D / WARP];
#pragma unroll
    for (int j = 0; j < D / WARP; j++)
        y[j] = x[j * WARP + lane];
    if (from.norm) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < D / WARP; j++)
            squares += y[j] * y[j];
        squares = warp_sum(squares);
        float scale = 1 / sqrtf(squares / D + from.eps);
        if (!(squares > 1e-30f && squares < 1e38f)) {
            double again = 0;
#pragma unroll
            for (int j = 0; j < D / WARP; j++)
                again += (double)y[j] * (double)y[j];
            scale = (float)rsqrt(warp_sum(again) / D + (double)from.eps);
        }
#pragma unroll
        for (int j = 0; j < D / WARP; j++)
            y[j] = y[j] * scale * from.norm[j * WARP + lane];
    }
#pragma unroll
    for (int j = 0; j < D / WARP; j++)
        row[j * WARP + lane] = y[j];
    __syncwarp();
}

__device__ static inline void attend_turn(const struct attend_angles &a, const float *cosines, const float *sines, float *row)
{
    for (int i = threadIdx.x % WARP; i < a.pairs; i += WARP) {
        int one = a.neighbours ? 2 * i : i, two = a.neighbours ? 2 * i + 1 : i + a.pairs;
        float x = row[one], y = row[two];
        row[one] = fmaf(x, cosines[i], -(y * sines[i]));
        row[two] = fmaf(x, sines[i], y * cosines[i]);
    }
    __syncwarp();
}

/* The new key, or the new value, into its cell; a warp does it. row: shared memory. */
template <int D>
__device__ static inline void attend_write(const struct attend_task &p, const float *cosines, const float *sines, float *row, int kv_head,
                                           bool value)
{
    attend_load<D>(value ? p.v : p.k, kv_head, row);
    if (!value)
        attend_turn(p.angles, cosines, sines, row);
    int cell = p.cells[0];
    if (cell < 0 || cell >= p.n_cells)
        return;
    int64_t unit = p.format == FORMAT_Q8_0 ? 34 : 2;
    if (value)
        warp_store_row(p.format, p.v_cache + cell * p.v_cell + kv_head * p.v_head, unit, row, D);
    else
        warp_store_row(p.format, p.k_cache + cell * p.k_cell + kv_head * p.k_head, unit, row, D);
}

/* The token's positions: from the last but so many on. */
__device__ static inline struct attention_span attend_span(const struct attend_task &p)
{
    struct attention_span s = {0, p.positions[0], p.sequences[0]};
    if (p.window && s.high >= p.window)
        s.low = s.high - p.window + 1;
    if (s.high < 0 || s.high >= p.n_ctx || s.sequence < 0 || s.sequence >= p.n_seq) {
        s.low = 0;
        s.high = s.sequence = -1;
    }
    return s;
}

/* The cell of position number `lane` of a tile, or -1. */
__device__ static inline int attend_cell(const struct attend_task &p, const struct attention_span &s, int tile)
{
    int lane = threadIdx.x % WARP, at = s.low + tile * SPLIT_TILE + lane;
    if (lane >= SPLIT_TILE || at > s.high)
        return -1;
    int cell = p.map[s.sequence * p.map_sequence + at];
    return cell < p.n_cells ? cell : -1;
}

/* Rows of K and V into the second-level cache. */
template <int D> __device__ static inline void attend_ahead(const struct attend_task &p, int kv_head, int cell)
{
    if (cell < 0)
        return;
    const char *k = p.k_cache + cell * p.k_cell + kv_head * p.k_head, *v = p.v_cache + cell * p.v_cell + kv_head * p.v_head;
    for (int at = 0; at < (p.format == FORMAT_Q8_0 ? D / 32 * 34 : D * 2); at += 128) {
        prefetch_l2(k + at);
        prefetch_l2(v + at);
    }
}

#endif
