/* attention.cuh: what the attention kernels share: their task, which positions a token attends to, and in which cells those lie. */
#ifndef BACKENDS_CUDA_ATTENTION_CUH
#define BACKENDS_CUDA_ATTENTION_CUH

#include "backends/cuda/view.cuh"

extern "C" {
#include "ops/attention.h"
}

struct attention_task {
    struct view q, k, v, positions, sequences, map, sinks, y;
    float scale, softcap, temperature;
    int window, temperature_period;
    int group;         /* heads that share a KV head */
    int splits, grain; /* of a token; a split's length is a multiple of grain */
    float *stats;      /* [token][head][split][2]: maximum, sum */
    float *values;     /* [token][head][split][d_v] */
};

struct attention_span {
    int low, high; /* positions low to high; high < low: none */
    int sequence;
};

__device__ static inline struct attention_span attention_span_of(const struct attention_task &p, int64_t token)
{
    struct attention_span s = {0, view_index(p.positions, token, 0), view_index(p.sequences, token, 0)};
    if (p.window && s.high >= p.window)
        s.low = s.high - p.window + 1;
    if (s.high < 0 || s.high >= p.map.ne[0] || s.sequence < 0 || s.sequence >= p.map.ne[1]) {
        s.low = 0;
        s.high = s.sequence = -1;
    }
    return s;
}

/* The factor of a query's scores, for the last position that it attends to. */
__device__ static inline float attention_scale(const struct attention_task &p, int position)
{
    float periods = p.temperature != 0 && position > 0 ? (float)(position / p.temperature_period) : 0;
    return p.scale * (1 + p.temperature * logf(1 + periods));
}

/* The cell of a position, or -1. */
__device__ static inline int attention_cell(const struct attention_task &p, int position, int sequence)
{
    int cell = view_index(p.map, position, sequence);
    return cell < p.k.ne[1] ? cell : -1;
}

__device__ static inline float attention_cap(float softcap, float score)
{
    return softcap > 0 ? softcap * tanhf(score / softcap) : score;
}

__device__ static inline float attention_cap(const struct attention_task &p, float score)
{
    return attention_cap(p.softcap, score);
}

__device__ static inline float attention_weight(float score, float max)
{
    return score == -INFINITY ? 0 : expf(score - max);
}

/* ---- on the host */

/* Maxima and sums of so many rows, and up to the next multiple of 16 bytes. */
static inline int64_t attention_stats_floats(int64_t rows)
{
    return (2 * rows + 3) / 4 * 4;
}

static inline struct attention_task attention_task_of(const struct node *n, int splits, int grain, void *shared)
{
    const struct attention_params *of = node_params(n, struct attention_params);
    struct attention_task p = {view_of(n->src[0]), view_of(n->src[1]), view_of(n->src[2]), view_of(n->src[3]), view_of(n->src[4]),
                               view_of(n->src[5]), view_of(n->n_src > 6 ? n->src[6] : NULL), view_of(n->out)};
    p.scale = of->scale;
    p.softcap = of->softcap;
    p.window = of->window;
    p.temperature = of->temperature;
    p.temperature_period = of->temperature_period;
    p.group = (int)(n->src[0]->ne[1] / n->src[1]->ne[2]);
    p.splits = splits;
    p.grain = grain;
    p.stats = (float *)shared;
    p.values = p.stats + attention_stats_floats(n->src[0]->ne[1] * n->src[0]->ne[2] * splits);
    return p;
}

static inline bool attention_sizes_fit(const struct node *n, struct reason *r)
{
    const struct tensor *q = n->src[0], *map = n->src[5];
    for (int i = 1; i <= 2; i++) {
        if (n->src[i]->layout)
            return fits_not(r, "%s is packed as %s", i == 1 ? "K" : "V", n->src[i]->layout->name);
        if (!format_loads(n->src[i]->format))
            return fits_not(r, "%s in %s", i == 1 ? "K" : "V", format_get(n->src[i]->format)->name);
    }
    if (q->ne[1] > 65535 || q->ne[2] > 65535 || map->ne[0] > INT32_MAX / 2 || n->src[1]->ne[1] > INT32_MAX)
        return fits_not(r, "%lld heads, %lld tokens, a context of %lld", (long long)q->ne[1], (long long)q->ne[2], (long long)map->ne[0]);
    return true;
}

#endif
