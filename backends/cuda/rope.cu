/* rope.cu: the body of rope, kv_write and rope_kv.
 *
 * A warp takes a row, four rows of one token a block. Frequencies are the host's (repeated multiplication in double; a table
 * of at most 2 KB that travels with the launch, so that no power is taken on the device); a block makes its token's sines and
 * cosines from them: the angle and its reduction to [-pi/4, pi/4] in double, as the op's tolerance demands, then two short
 * polynomials in f32. Rows pass through shared memory, which lets one writer serve every format of a cache. Bound by
 * latency: in a decode step each warp does one row. */
#include "backends/cuda/rope.cuh"

#include "backends/cuda/row_store.cuh"

enum { ROPE_PAIRS = 256, ROPE_WARPS = 4, ROPE_KINDS = 3, ROPE_MOST = 2048 };

struct rope_table {
    double frequency[ROPE_PAIRS];
    unsigned char coordinate[ROPE_PAIRS]; /* which of a token's positions a pair takes */
    float magnitude;
    int pairs;
    bool neighbours; /* pairs are (2 i, 2 i + 1), not (i, i + pairs) */
};

struct rope_task {
    struct rope_table table;
    struct view positions, factors, cells;
    struct rope_rows kinds[ROPE_KINDS];
    int row_floats; /* room for a row */
};

/* ---- on the host */

static double yarn_dimension(const struct rope_params *p, double turns)
{
    return p->n_dims * log(p->n_ctx_orig / (turns * 6.28318530717958647693)) / (2 * log((double)p->base));
}

static int pair_coordinate(const struct rope_params *p, int64_t i)
{
    const int32_t *s = p->sections;
    if (p->mode != ROPE_SECTIONS && p->mode != ROPE_SECTIONS_INTERLEAVED)
        return 0;
    int64_t q = i % ((int64_t)s[0] + s[1] + s[2] + s[3]);
    if (p->mode == ROPE_SECTIONS_INTERLEAVED)
        return q < 3 * (int64_t)s[q % 3] ? (int)(q % 3) : 3;
    int c = 0;
    for (; c < 3 && q >= s[c]; c++)
        q -= s[c];
    return c;
}

/* All but the factors, which lie on the device: they divide a frequency, scaled or mixed as it is. */
static void rope_table_fill(struct rope_table *t, const struct rope_params *p)
{
    double ratio = pow((double)p->base, -2.0 / p->n_dims), power[4] = {1, ratio, ratio * ratio, ratio * ratio * ratio};
    double ratio_4 = power[2] * power[2], low = 0, high = 0, magnitude = (double)p->attn_factor;
    if (p->ext_factor != 0) {
        low = fmax(0, floor(yarn_dimension(p, (double)p->beta_fast)));
        high = fmin(p->n_dims - 1, ceil(yarn_dimension(p, (double)p->beta_slow)));
        magnitude *= 1 + 0.1 * log(1 / (double)p->freq_scale);
    }
    t->magnitude = (float)magnitude;
    t->pairs = p->n_dims / 2;
    t->neighbours = p->mode == ROPE_NORM;
    for (int i = 0; i < t->pairs; i++) {
        double full = power[i % 4], scaled = (double)p->freq_scale * full;
        power[i % 4] *= ratio_4;
        if (p->ext_factor != 0) {
            double ramp = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low))), mix = ramp * (double)p->ext_factor;
            scaled = scaled * (1 - mix) + full * mix;
        }
        t->frequency[i] = scaled;
        t->coordinate[i] = (unsigned char)pair_coordinate(p, i);
    }
}

static bool row_fits(const struct tensor *in, struct reason *r)
{
    return (in->ne[0] <= ROPE_MOST && in->ne[1] <= INT32_MAX / 4 && in->ne[2] <= INT32_MAX) ||
           fits_not(r, "%lld heads of %lld values", (long long)in->ne[1], (long long)in->ne[0]);
}

bool rope_fits(const struct node *rope, struct reason *r)
{
    const struct rope_params *p = node_params(rope, struct rope_params);
    if (p->n_dims / 2 > ROPE_PAIRS)
        return fits_not(r, "%d rotated dimensions", p->n_dims);
    return row_fits(rope->src[0], r);
}

bool rope_write_fits(const struct node *kv_write, struct reason *r)
{
    const struct tensor *cache = kv_write->src[1];
    if (!format_stores(cache->format))
        return fits_not(r, "a cache in %s", format_get(cache->format)->name);
    return row_fits(kv_write->src[0], r);
}

struct rope_rows rope_rows_of(const struct tensor *in, const struct tensor *out, const struct tensor *cache, bool turns)
{
    struct rope_rows rows = {view_of(in), view_of(out), view_of(cache), (int)in->ne[1], turns};
    return rows;
}

/* ---- on the device */

__device__ static inline void rope_table_make(const struct rope_task &p, int token, int64_t n_tokens, float *cosines, float *sines)
{
    for (int i = threadIdx.x; i < p.table.pairs; i += blockDim.x) {
        int32_t position = view_index(p.positions, token + p.table.coordinate[i] * n_tokens, 0);
        double frequency = p.table.frequency[i];
        if (p.factors.data)
            frequency /= (double)*(const float *)(p.factors.data + i * p.factors.nb[0]);
        float sine, cosine;
        rope_sine_cosine(position * frequency, &sine, &cosine);
        sines[i] = sine * p.table.magnitude;
        cosines[i] = cosine * p.table.magnitude;
    }
}

static __global__ void __launch_bounds__(ROPE_WARPS * 32) rope_rows_kernel(const __grid_constant__ struct rope_task p)
{
    extern __shared__ float room[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = blockIdx.x, head = blockIdx.y * ROPE_WARPS + warp, pairs = p.table.pairs;
    float *cosines = room, *sines = cosines + pairs, *row = sines + pairs + warp * p.row_floats;
    cuda_release();
    cuda_wait();
    rope_table_make(p, token, p.kinds[0].in.ne[2], cosines, sines);
    __syncthreads();
    int kind = 0;
    while (kind < ROPE_KINDS && head >= p.kinds[kind].heads)
        head -= p.kinds[kind++].heads;
    if (kind == ROPE_KINDS)
        return;
    const struct rope_rows &k = p.kinds[kind];
    const char *in = view_row(k.in, head, token, 0);
    int n = (int)k.in.ne[0], first_rest = k.turns ? 2 * pairs : 0;
    for (int i = lane; i < first_rest / 2; i += 32) {
        int one = p.table.neighbours ? 2 * i : i, two = p.table.neighbours ? 2 * i + 1 : i + pairs;
        float a = *(const float *)(in + one * k.in.nb[0]), b = *(const float *)(in + two * k.in.nb[0]);
        row[one] = fmaf(a, cosines[i], -(b * sines[i]));
        row[two] = fmaf(a, sines[i], b * cosines[i]);
    }
    for (int i = first_rest + lane; i < n; i += 32)
        row[i] = *(const float *)(in + i * k.in.nb[0]);
    __syncwarp();
    if (k.out.data)
        warp_store_row(FORMAT_F32, view_row(k.out, head, token, 0), k.out.nb[0], row, n);
    int32_t cell = k.cache.data ? view_index(p.cells, token, 0) : -1;
    if (cell >= 0 && cell < k.cache.ne[1])
        warp_store_row(k.cache.format, view_row(k.cache, cell, head, 0), k.cache.nb[0], row, n);
}

int rope_run(const struct exec *x, const struct node *rope, const struct tensor *cells, const struct rope_rows *kinds, int n_kinds)
{
    struct rope_task p = {};
    int heads = 0, widest = 0;
    if (rope) {
        rope_table_fill(&p.table, node_params(rope, struct rope_params));
        p.positions = view_of(rope->src[1]);
        p.factors = view_of(rope->n_src > 2 ? rope->src[2] : NULL);
    }
    p.cells = view_of(cells);
    for (int i = 0; i < n_kinds; i++) {
        p.kinds[i] = kinds[i];
        heads += kinds[i].heads;
        widest = kinds[i].in.ne[0] > widest ? (int)kinds[i].in.ne[0] : widest;
    }
    p.row_floats = widest;
    return cuda_launch(x, rope_rows_kernel, dim3((unsigned)kinds[0].in.ne[2], (unsigned)div_up(heads, ROPE_WARPS)), dim3(ROPE_WARPS * 32),
                       sizeof(float) * (size_t)(2 * p.table.pairs + ROPE_WARPS * widest), p);
}
