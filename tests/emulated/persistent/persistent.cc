/* persistent.cc: the kernel that does a whole decode step (backends/cuda/persistent.cuh), emulated: two layers and an output, all blocks at
 * once. Each phase is held to a plain computation in double from what the kernel had before it, at the beginning of a context and where
 * blocks share a head's positions; the same step gives the same bits; and a block that others wait for in vain ends the
 * step, with the phase. */
#include "backends/cuda/persistent.cuh"
#include "backends/cuda/product.h"

extern "C" {
#include "base/half.h"
#include "base/rng.h"
}

#include <vector>

/* Rows of gate and up are dealt out 32 at a time; one KV head, so that all blocks share its positions. */
enum { BLOCKS = 3, LAYERS = 2, WIDTH = 2048, HEADS = 4, KV_HEADS = 1, HEAD = 64, HIDDEN = 512, WORDS = 100, CONTEXT = 1024 };
typedef std::vector<double> row;

static int failures;
static struct rng rng = rng_seed(20);

static void expect(bool good, const char *what, int position, double is)
{
    if (good)
        return;
    printf("FAULT %s at position %d: %g\n", what, position, is);
    failures++;
}

static float normal(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (float)(rng_u64(&rng) >> 40) / (1 << 24);
    return sum - 6;
}

static float *floats(size_t n)
{
    float *x = (float *)aligned_alloc(256, (n * sizeof(float) + 511) / 256 * 256);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

static float *norm_weight(void)
{
    float *w = floats(WIDTH);
    for (int i = 0; i < WIDTH; i++)
        w[i] = 1 + normal() / 8;
    return w;
}

/* ---- weights */

struct weight {
    struct tensor tensor;
    std::vector<float> values;
};

static struct weight weight_make(enum format_id format, int rows, int k)
{
    const struct format *f = format_get(format);
    const struct layout *layout = product_layout(format);
    struct weight w = {};
    const int64_t ne[MAX_DIMS] = {k, rows, 1, 1};
    tensor_shape(&w.tensor, format, 2, ne);
    std::vector<unsigned char> file(format_row_bytes(f, k) * (size_t)rows);
    std::vector<float> x((size_t)k);
    for (int r = 0; r < rows; r++) {
        for (float &v : x)
            v = normal() / sqrtf((float)k);
        f->pack(x.data(), file.data() + (size_t)r * format_row_bytes(f, k), k);
    }
    w.tensor.kind = TENSOR_WEIGHT;
    w.tensor.layout = layout;
    w.tensor.data = aligned_alloc(256, (layout->bytes(k, rows) + 511) / 256 * 256);
    layout->pack(file.data(), w.tensor.data, k, rows, 0, rows);
    w.values.resize((size_t)rows * (size_t)k);
    f->unpack(file.data(), w.values.data(), (int64_t)rows * k);
    return w;
}

static row product(const struct weight &w, const row &x)
{
    row y((size_t)w.tensor.ne[1]);
    for (size_t r = 0; r < y.size(); r++)
        for (size_t i = 0; i < x.size(); i++)
            y[r] += (double)w.values[r * x.size() + i] * x[i];
    return y;
}

/* ---- the same things, plainly */

static double error(const row &right, const float *y)
{
    double e = 0, all = 0;
    for (size_t i = 0; i < right.size(); i++) {
        e += (right[i] - (double)y[i]) * (right[i] - (double)y[i]);
        all += right[i] * right[i];
    }
    return e == e ? e / all : INFINITY;
}

static row from_a8(const uint8_t *a8, size_t n)
{
    std::vector<float> y(n);
    format_get(FORMAT_A8)->unpack(a8, y.data(), (int64_t)n);
    return row(y.begin(), y.end());
}

static row quantised(const row &x)
{
    std::vector<float> f(x.begin(), x.end());
    std::vector<uint8_t> a8(x.size() / 32 * sizeof(struct block_a8));
    format_get(FORMAT_A8)->pack(f.data(), a8.data(), (int64_t)x.size());
    return from_a8(a8.data(), x.size());
}

static row normed(const float *x, const float *weight)
{
    double squares = 0;
    row y(WIDTH);
    for (int i = 0; i < WIDTH; i++)
        squares += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < WIDTH; i++)
        y[i] = (double)x[i] / sqrt(squares / WIDTH + 1e-5) * (double)weight[i];
    return quantised(y);
}

static row turned(const float *x, int heads, int position)
{
    row y(x, x + heads * HEAD);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < HEAD / 2; i++) {
            double angle = position * pow(10000, -2.0 * i / HEAD), *one = &y[(size_t)(h * HEAD + 2 * i)], a = one[0], b = one[1];
            one[0] = a * cos(angle) - b * sin(angle);
            one[1] = a * sin(angle) + b * cos(angle);
        }
    return y;
}

/* ---- the model */

struct layer {
    struct weight q, k, v, o, gate, up, down;
    float *norm, *ffn_norm, *xq, *xk, *xv, *mid, *out, *values, *stats;
    uint8_t *glu;
    std::vector<uint16_t> k_cache, v_cache;
};

struct step {
    std::vector<struct layer> layers;
    struct weight output;
    float *x, *norm, *logits;
    std::vector<struct persist_phase> phases;
    struct persist_args args;
    uint32_t counter, failed;
    int32_t position, cell, sequence, map[CONTEXT];
};

static struct persist_matrix matrix_of(const struct weight &w, uint32_t chunk, float *out, const float *add)
{
    const struct s32_matrix s = product_weight(&w.tensor);
    const uint32_t blocks = (uint32_t)(w.tensor.ne[0] / format_get(w.tensor.format)->block);
    const int *bytes = w.tensor.format == FORMAT_Q4_0 ? s32_q4_0::bytes : w.tensor.format == FORMAT_Q4_K ? s32_q4_K::bytes : s32_q6_K::bytes;
    struct persist_matrix m = {};
    for (int i = 0; i < 4; i++) {
        m.stream[i] = s.stream[i];
        m.row_bytes[i] = blocks * (uint32_t)bytes[i];
    }
    m.out = out;
    m.add = add;
    m.rows = (uint32_t)w.tensor.ne[1];
    m.chunk = chunk;
    m.format = w.tensor.format;
    return m;
}

static struct persist_phase phase_of(enum persist_from from, const void *x, int n, uint32_t units, uint32_t unit)
{
    struct persist_phase p = {};
    p.from = from;
    p.x = x;
    p.groups = (uint32_t)n / 32;
    p.share = 1.0f / (float)n;
    p.eps = 1e-5f;
    p.units = units;
    p.unit = unit;
    p.heads = HEADS;
    p.width = HEAD;
    return p;
}

static void layer_phases(struct step *s, struct layer *l, const float *x, bool first)
{
    struct persist_phase p = phase_of(PERSIST_FROM_NORM, x, WIDTH, (HEADS + 2 * KV_HEADS) * HEAD, 1);
    p.norm = l->norm;
    p.n_matrices = 3;
    p.matrix[0] = matrix_of(l->q, 3, l->xq, NULL);
    p.matrix[1] = matrix_of(l->k, 1, l->xk, NULL);
    p.matrix[2] = matrix_of(l->v, 2, l->xv, NULL);
    s->phases.push_back(p);
    p = phase_of(PERSIST_FROM_NONE, NULL, 0, KV_HEADS, 1);
    p.values = l->values;
    p.stats = l->stats;
    p.block_heads = HEADS / KV_HEADS;
    p.same_angles = !first;
    p.most_splits = BLOCKS / KV_HEADS;
    struct attend_task t = {};
    t.q = {(const char *)l->xq, HEAD * sizeof(float), NULL, 0};
    t.k = {(const char *)l->xk, HEAD * sizeof(float), NULL, 0};
    t.v = {(const char *)l->xv, HEAD * sizeof(float), NULL, 0};
    t.k_cache = (char *)l->k_cache.data();
    t.v_cache = (char *)l->v_cache.data();
    t.k_cell = t.v_cell = HEAD * 2;
    t.k_head = t.v_head = CONTEXT * HEAD * 2;
    t.positions = &s->position;
    t.cells = &s->cell;
    t.sequences = &s->sequence;
    t.map = s->map;
    t.map_sequence = t.n_cells = t.n_ctx = CONTEXT;
    t.n_seq = t.parts = 1;
    t.format = FORMAT_F16;
    t.group = HEADS / KV_HEADS;
    t.scale = 0.125f;
    t.angles = {-2.0 / HEAD * log2(10000), 1, 0, 0, 1, 1, NULL, HEAD / 2, true};
    p.attend = t;
    s->phases.push_back(p);
    p = phase_of(PERSIST_FROM_PARTS, NULL, HEADS * HEAD, WIDTH, 1);
    p.values = l->values;
    p.stats = l->stats;
    p.n_matrices = 1;
    p.matrix[0] = matrix_of(l->o, 4, l->mid, x);
    s->phases.push_back(p);
    p = phase_of(PERSIST_FROM_NORM, l->mid, WIDTH, HIDDEN / 32, 32);
    p.norm = l->ffn_norm;
    p.n_matrices = 2;
    p.pair = 1 + UNARY_SILU;
    p.quantized = l->glu;
    p.matrix[0] = matrix_of(l->gate, 4, NULL, NULL);
    p.matrix[1] = matrix_of(l->up, 4, NULL, NULL);
    s->phases.push_back(p);
    p = phase_of(PERSIST_FROM_A8, l->glu, HIDDEN, WIDTH, 1);
    p.n_matrices = 1;
    p.matrix[0] = matrix_of(l->down, 4, l->out, l->mid);
    s->phases.push_back(p);
}

static void step_make(struct step *s)
{
    const enum format_id of[LAYERS] = {FORMAT_Q4_0, FORMAT_Q4_K};
    s->x = norm_weight();
    s->layers.resize(LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &s->layers[(size_t)i];
        l->q = weight_make(of[i], HEADS * HEAD, WIDTH);
        l->k = weight_make(of[i], KV_HEADS * HEAD, WIDTH);
        l->v = weight_make(i ? FORMAT_Q6_K : of[i], KV_HEADS * HEAD, WIDTH);
        l->o = weight_make(FORMAT_Q4_0, WIDTH, HEADS * HEAD);
        l->gate = weight_make(of[i], HIDDEN, WIDTH);
        l->up = weight_make(of[i], HIDDEN, WIDTH);
        l->down = weight_make(FORMAT_Q4_0, WIDTH, HIDDEN);
        l->norm = norm_weight();
        l->ffn_norm = norm_weight();
        l->xq = floats(HEADS * HEAD);
        l->xk = floats(KV_HEADS * HEAD);
        l->xv = floats(KV_HEADS * HEAD);
        l->mid = floats(WIDTH);
        l->out = floats(WIDTH);
        l->values = floats(PERSIST_SPLITS * HEADS * HEAD);
        l->stats = floats(PERSIST_SPLITS * HEADS * 2);
        l->glu = (uint8_t *)floats(HIDDEN);
        for (std::vector<uint16_t> *c : {&l->k_cache, &l->v_cache}) {
            c->resize((size_t)CONTEXT * KV_HEADS * HEAD);
            for (uint16_t &v : *c)
                v = f16_from_f32(normal());
        }
        layer_phases(s, l, i ? s->layers[(size_t)i - 1].out : s->x, i == 0);
    }
    s->output = weight_make(FORMAT_Q6_K, WORDS, WIDTH);
    s->norm = norm_weight();
    s->logits = floats(WORDS);
    struct persist_phase p = phase_of(PERSIST_FROM_NORM, s->layers.back().out, WIDTH, WORDS, 1);
    p.norm = s->norm;
    p.n_matrices = 1;
    p.matrix[0] = matrix_of(s->output, 4, s->logits, NULL);
    s->phases.push_back(p);
    uint32_t chunk = 0;
    for (const struct persist_phase &f : s->phases)
        for (int m = 0; m < f.n_matrices; m++) {
            const uint32_t *b = f.matrix[m].row_bytes;
            chunk = max(chunk, f.matrix[m].chunk * (b[0] + b[1] + b[2] + b[3]));
        }
    s->args = {};
    if (!persist_room_of(&s->args.room, WIDTH / 32, HEADS * HEAD, chunk, 227 * 1024))
        abort();
    s->args.phases = s->phases.data();
    s->args.n_phases = (int)s->phases.size();
    s->args.counter = &s->counter;
    s->args.failed = &s->failed;
    s->args.limit_ns = 20000000000;
    for (int i = 0; i < CONTEXT; i++)
        s->map[i] = (i * 5 + 3) % CONTEXT;
}

static void step_run(struct step *s, int position, unsigned blocks)
{
    const struct persist_args a = s->args;
    s->position = position;
    s->cell = s->map[position];
    s->failed = 0;
    emulated_together();
    emulated_launch([=] { persistent<HEAD, halves<kind_f16>, false>(a); }, dim3(blocks), dim3(PERSIST_THREADS), a.room.bytes, 1);
    emulated_apart();
}

/* ---- held to it */

static row attended(const struct step *s, const struct layer *l, const row &q)
{
    row y(HEADS * HEAD);
    for (size_t h = 0; h < HEADS; h++) {
        double total = 0;
        for (int i = 0; i <= s->position; i++) {
            const uint16_t *k = &l->k_cache[(size_t)s->map[i] * HEAD], *v = &l->v_cache[(size_t)s->map[i] * HEAD];
            double score = 0;
            for (size_t j = 0; j < HEAD; j++)
                score += q[h * HEAD + j] * (double)f32_from_f16(k[j]);
            double weight = exp(score / 8);
            total += weight;
            for (size_t j = 0; j < HEAD; j++)
                y[h * HEAD + j] += weight * (double)f32_from_f16(v[j]);
        }
        for (size_t j = 0; j < HEAD; j++)
            y[h * HEAD + j] /= total;
    }
    return y;
}

static void layer_check(const struct step *s, const struct layer *l, const float *x)
{
    const int at = s->position;
    const row in = normed(x, l->norm);
    expect(error(product(l->q, in), l->xq) < 1e-4, "q", at, error(product(l->q, in), l->xq));
    expect(error(product(l->k, in), l->xk) < 1e-4, "k", at, error(product(l->k, in), l->xk));
    expect(error(product(l->v, in), l->xv) < 1e-4, "v", at, error(product(l->v, in), l->xv));
    const row q = turned(l->xq, HEADS, at), k = turned(l->xk, KV_HEADS, at);
    float cached[2][HEAD];
    for (size_t j = 0; j < HEAD; j++) {
        cached[0][j] = f32_from_f16(l->k_cache[(size_t)s->cell * HEAD + j]);
        cached[1][j] = f32_from_f16(l->v_cache[(size_t)s->cell * HEAD + j]);
    }
    expect(error(k, cached[0]) < 1e-6, "the new key", at, error(k, cached[0]));
    expect(error(row(l->xv, l->xv + HEAD), cached[1]) < 1e-6, "the new value", at, error(row(l->xv, l->xv + HEAD), cached[1]));
    row mid = product(l->o, quantised(attended(s, l, q)));
    for (size_t i = 0; i < WIDTH; i++)
        mid[i] += (double)x[i];
    expect(error(mid, l->mid) < 1e-6, "attention, o", at, error(mid, l->mid));
    const row second = normed(l->mid, l->ffn_norm), gate = product(l->gate, second), up = product(l->up, second);
    row glu(HIDDEN);
    for (size_t i = 0; i < HIDDEN; i++)
        glu[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    const row is = from_a8(l->glu, HIDDEN);
    const std::vector<float> is_f32(is.begin(), is.end());
    expect(error(glu, is_f32.data()) < 1e-3, "gate and up", at, error(glu, is_f32.data()));
    row out = product(l->down, is);
    for (size_t i = 0; i < WIDTH; i++)
        out[i] += (double)l->mid[i];
    expect(error(out, l->out) < 1e-8, "down", at, error(out, l->out));
}

int main(void)
{
    static struct step s;
    step_make(&s);
    for (int position : {0, 21, 700}) {
        step_run(&s, position, BLOCKS);
        expect(!s.failed && !s.counter, "ends", position, s.failed);
        for (size_t i = 0; i < LAYERS; i++)
            layer_check(&s, &s.layers[i], i ? s.layers[i - 1].out : s.x);
        const row logits = product(s.output, normed(s.layers.back().out, s.norm));
        expect(error(logits, s.logits) < 1e-4, "output", position, error(logits, s.logits));
    }
    const std::vector<float> before(s.logits, s.logits + WORDS);
    step_run(&s, 700, BLOCKS);
    expect(!memcmp(before.data(), s.logits, WORDS * sizeof(float)), "the same bits", 700, 0);
    s.counter = (uint32_t)-1000; /* as if so many others were still to come */
    s.args.limit_ns = 50000000;
    step_run(&s, 3, BLOCKS);
    expect(s.failed >= 2, "a wait in vain ends", 3, s.failed); /* whichever block was the last to say so */
    printf("persistent: %d faults\n", failures);
    return failures != 0;
}
