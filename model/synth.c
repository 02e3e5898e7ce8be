/* synth.c: models of random weights in real shapes: the table of shapes, what each family's files contain, and the weights.
 *
 * Adding a shape of a known family is one row; a family is its own keys and the tensors of a layer.
 *
 * Weights are normal with variance 1 / n_in, which keeps activations and logits near unit size through any number of layers,
 * and norm weights are near 1. Fresh normal numbers, packed, take 58 ns a value: 100 s a gigabyte of Q4_K; so a pool of
 * packed runs of 256 values is made once for each (format, n_in), and tensors are filled with runs drawn from it. What speed
 * depends on (formats, shapes, scales that vary) is as in real files. A tensor's bytes depend on the seed and its place alone.
 */
#include "model/synth.h"

#include "base/rng.h"
#include "model/gguf.h"
#include "model/mix.h"
#include "model/synth_vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct synth;

struct family {
    const char *arch;
    void (*keys)(struct synth *s);
    void (*layer)(struct synth *s, int i);
};

struct shape {
    const char *name;
    const struct family *family;
    int32_t layers, width, ffn, heads, kv_heads, head_dim, vocab, ctx;
    float rope_base, eps;
    float rope_factor; /* Llama 3's long-context factor, as the tensor rope_freqs; 0: none */
    int32_t window;    /* 0: none */
    bool tied;
    const char *pre; /* pre-tokenizer; the vocabulary itself is synthetic */
    bool add_bos;
    struct {
        int32_t taps, dim, n_v, n_k; /* of the convolution; of a head; heads of V and of K */
        int32_t interval, rope_dims, sections[4]; /* attention over all positions each n-th layer; its rope */
    } delta;
};

static const struct family llama, gemma3, qwen35;

static const struct shape shapes[] = {
    /* name, family, layers, width, ffn, heads, kv, dim, vocab, ctx, rope base, eps, factor, window, tied, pre, bos */
    {"smollm2-135m", &llama, 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000, 1e-5f, 0, 0, true, "smollm", false},
    {"llama3.2-1b", &llama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000, 1e-5f, 32, 0, true, "llama-bpe", true},
    {"llama3.1-8b", &llama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000, 1e-5f, 8, 0, false, "llama-bpe", true},
    {"gemma3-270m", &gemma3, 18, 640, 2048, 4, 1, 256, 262144, 32768, 1000000, 1e-6f, 0, 512, true, "gpt-2", true},
    {"gemma3-1b", &gemma3, 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1000000, 1e-6f, 0, 512, true, "gpt-2", true},
    {"qwen3.5-0.8b", &qwen35, 24, 1024, 3584, 8, 2, 256, 248320, 262144, 1e7f, 1e-6f, 0, 0, true, "qwen35", false,
     {4, 128, 16, 16, 4, 64, {11, 11, 10, 0}}},
    {"qwen3.6-27b", &qwen35, 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7f, 1e-6f, 0, 0, false, "qwen35", false,
     {4, 128, 48, 16, 4, 64, {11, 11, 10, 0}}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

enum kind { MATRIX, NORM, ROPE_FREQS, TAPS, DECAY, TIME_STEP };

struct item { /* a tensor to come */
    enum kind kind;
    enum format_id format;
    int64_t n, n_in;
};

enum { RUN = 256, POOL_RUNS = 1024, N_POOLS = 64, BUFFER = 1 << 20 };

struct pool_of_runs {
    enum format_id format;
    int64_t n_in;
    uint8_t *data;
};

struct synth {
    struct arena arena;
    struct gguf_writer *w;
    struct shape shape; /* with the overrides */
    const struct mix *mix;
    uint64_t seed;
    struct item *items;
    int n_items, cap;
    float *normal; /* POOL_RUNS * RUN standard normal numbers */
    struct pool_of_runs pools[N_POOLS];
    int n_pools;
    uint8_t *buffer;
    struct hone_error *e;
};

/* Keys and tensors of the families. */

static void key_u32(struct synth *s, const char *key, int64_t v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", s->shape.family->arch, key);
    gguf_write_u32(s->w, name, (uint32_t)v);
}

static void key_f32(struct synth *s, const char *key, float v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", s->shape.family->arch, key);
    gguf_write_f32(s->w, name, v);
}

/* Declares a tensor of this name as it is; n_out 0: one dimension. */
static void tensor_named(struct synth *s, const char *full, enum kind kind, int64_t n_in, int64_t n_out)
{
    int64_t ne[2] = {n_in, n_out};
    int n_dims = n_out ? 2 : 1;
    struct mix_model m = {s->shape.layers, s->shape.heads / s->shape.kv_heads, s->shape.tied};
    int f = mix_format(s->mix, &m, full, n_dims, ne, NULL);
    if (s->n_items == s->cap) {
        err_set(s->e, HONE_EFAULT, "more tensors than %d", s->cap);
        return;
    }
    struct item *t = &s->items[s->n_items++];
    *t = (struct item){kind, f < 0 ? FORMAT_F32 : (enum format_id)f, n_in * (n_out ? n_out : 1), n_in};
    gguf_write_tensor(s->w, full, t->format, n_dims, ne);
}

/* Declares a tensor "blk.<layer>.<name>.weight", or without the layer when it is negative. */
static void tensor(struct synth *s, int layer, const char *name, enum kind kind, int64_t n_in, int64_t n_out)
{
    char full[96];
    if (layer < 0)
        snprintf(full, sizeof full, "%s.weight", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    tensor_named(s, full, kind, n_in, n_out);
}

static void attention_tensors(struct synth *s, int i)
{
    const struct shape *p = &s->shape;
    tensor(s, i, "attn_norm", NORM, p->width, 0);
    tensor(s, i, "attn_q", MATRIX, p->width, (int64_t)p->heads * p->head_dim);
    tensor(s, i, "attn_k", MATRIX, p->width, (int64_t)p->kv_heads * p->head_dim);
    tensor(s, i, "attn_v", MATRIX, p->width, (int64_t)p->kv_heads * p->head_dim);
    tensor(s, i, "attn_output", MATRIX, (int64_t)p->heads * p->head_dim, p->width);
}

static void ffn_tensors(struct synth *s, int i)
{
    const struct shape *p = &s->shape;
    tensor(s, i, "ffn_norm", NORM, p->width, 0);
    tensor(s, i, "ffn_gate", MATRIX, p->width, p->ffn);
    tensor(s, i, "ffn_up", MATRIX, p->width, p->ffn);
    tensor(s, i, "ffn_down", MATRIX, p->ffn, p->width);
}

static void llama_keys(struct synth *s)
{
    key_u32(s, "rope.dimension_count", s->shape.head_dim);
}

static void llama_layer(struct synth *s, int i)
{
    attention_tensors(s, i);
    ffn_tensors(s, i);
}

static void gemma3_keys(struct synth *s)
{
    key_u32(s, "attention.sliding_window", s->shape.window);
}

static void gemma3_layer(struct synth *s, int i)
{
    attention_tensors(s, i);
    tensor(s, i, "attn_q_norm", NORM, s->shape.head_dim, 0);
    tensor(s, i, "attn_k_norm", NORM, s->shape.head_dim, 0);
    tensor(s, i, "post_attention_norm", NORM, s->shape.width, 0);
    ffn_tensors(s, i);
    tensor(s, i, "post_ffw_norm", NORM, s->shape.width, 0);
}

static void qwen35_keys(struct synth *s)
{
    char name[96];
    const struct shape *p = &s->shape;
    key_u32(s, "rope.dimension_count", p->delta.rope_dims);
    snprintf(name, sizeof name, "%s.rope.dimension_sections", p->family->arch);
    gguf_write_array(s->w, name, GGUF_I32, p->delta.sections, 4);
    key_u32(s, "ssm.conv_kernel", p->delta.taps);
    key_u32(s, "ssm.inner_size", (int64_t)p->delta.n_v * p->delta.dim);
    key_u32(s, "ssm.state_size", p->delta.dim);
    key_u32(s, "ssm.time_step_rank", p->delta.n_v);
    key_u32(s, "ssm.group_count", p->delta.n_k);
    key_u32(s, "full_attention_interval", p->delta.interval);
}

static void delta_tensors(struct synth *s, int i)
{
    const struct shape *p = &s->shape;
    int64_t keys = (int64_t)p->delta.n_k * p->delta.dim, values = (int64_t)p->delta.n_v * p->delta.dim;
    char name[96];
    tensor(s, i, "attn_norm", NORM, p->width, 0);
    tensor(s, i, "attn_qkv", MATRIX, p->width, 2 * keys + values);
    tensor(s, i, "attn_gate", MATRIX, p->width, values);
    tensor(s, i, "ssm_beta", MATRIX, p->width, p->delta.n_v);
    tensor(s, i, "ssm_alpha", MATRIX, p->width, p->delta.n_v);
    tensor(s, i, "ssm_conv1d", TAPS, p->delta.taps, 2 * keys + values);
    snprintf(name, sizeof name, "blk.%d.ssm_dt.bias", i);
    tensor_named(s, name, TIME_STEP, p->delta.n_v, 0);
    snprintf(name, sizeof name, "blk.%d.ssm_a", i);
    tensor_named(s, name, DECAY, p->delta.n_v, 0);
    tensor(s, i, "ssm_norm", NORM, p->delta.dim, 0);
    tensor(s, i, "ssm_out", MATRIX, values, p->width);
}

static void qwen35_layer(struct synth *s, int i)
{
    const struct shape *p = &s->shape;
    if ((i + 1) % p->delta.interval) {
        delta_tensors(s, i);
    } else {
        tensor(s, i, "attn_norm", NORM, p->width, 0);
        tensor(s, i, "attn_q", MATRIX, p->width, 2 * (int64_t)p->heads * p->head_dim); /* with its gate */
        tensor(s, i, "attn_k", MATRIX, p->width, (int64_t)p->kv_heads * p->head_dim);
        tensor(s, i, "attn_v", MATRIX, p->width, (int64_t)p->kv_heads * p->head_dim);
        tensor(s, i, "attn_q_norm", NORM, p->head_dim, 0);
        tensor(s, i, "attn_k_norm", NORM, p->head_dim, 0);
        tensor(s, i, "attn_output", MATRIX, (int64_t)p->heads * p->head_dim, p->width);
    }
    tensor(s, i, "post_attention_norm", NORM, p->width, 0);
    tensor(s, i, "ffn_gate", MATRIX, p->width, p->ffn);
    tensor(s, i, "ffn_up", MATRIX, p->width, p->ffn);
    tensor(s, i, "ffn_down", MATRIX, p->ffn, p->width);
}

static const struct family llama = {"llama", llama_keys, llama_layer}, gemma3 = {"gemma3", gemma3_keys, gemma3_layer},
                           qwen35 = {"qwen35", qwen35_keys, qwen35_layer};
enum { LAYER_TENSORS = 16 }; /* at most, of any family */

static int declare(struct synth *s, bool no_vocab)
{
    const struct shape *p = &s->shape;
    char name[96];
    snprintf(name, sizeof name, "synthetic %s", p->name);
    gguf_write_string(s->w, "general.architecture", p->family->arch);
    gguf_write_string(s->w, "general.type", "model");
    gguf_write_string(s->w, "general.name", name);
    key_u32(s, "block_count", p->layers);
    key_u32(s, "context_length", p->ctx);
    key_u32(s, "embedding_length", p->width);
    key_u32(s, "feed_forward_length", p->ffn);
    key_u32(s, "attention.head_count", p->heads);
    key_u32(s, "attention.head_count_kv", p->kv_heads);
    key_u32(s, "attention.key_length", p->head_dim);
    key_u32(s, "attention.value_length", p->head_dim);
    key_f32(s, "attention.layer_norm_rms_epsilon", p->eps);
    key_f32(s, "rope.freq_base", p->rope_base);
    key_u32(s, "vocab_size", p->vocab);
    p->family->keys(s);
    gguf_write_u32(s->w, "general.file_type", mix_file_type(s->mix));
    gguf_write_u32(s->w, "general.quantization_version", 2);
    gguf_write_u32(s->w, "hone.synth.seed", (uint32_t)s->seed); /* tells the lab that top tokens mean nothing here */
    if (no_vocab)
        gguf_write_string(s->w, "tokenizer.ggml.model", "no_vocab");
    else if (synth_vocab_write(s->w, p->vocab, p->pre, p->add_bos, &s->arena, s->e))
        return s->e->code;

    tensor(s, -1, "token_embd", MATRIX, p->width, p->vocab);
    if (p->rope_factor > 0)
        tensor(s, -1, "rope_freqs", ROPE_FREQS, p->head_dim / 2, 0);
    for (int i = 0; i < p->layers; i++)
        p->family->layer(s, i);
    tensor(s, -1, "output_norm", NORM, p->width, 0);
    if (!p->tied)
        tensor(s, -1, "output", MATRIX, p->width, p->vocab);
    return s->e->code;
}

/* Data. */

/* The packed runs of a format whose values have the variance 1 / n_in; NULL and s->e on failure. */
static const uint8_t *pool_for(struct synth *s, enum format_id format, int64_t n_in)
{
    for (int i = 0; i < s->n_pools; i++)
        if (s->pools[i].format == format && s->pools[i].n_in == n_in)
            return s->pools[i].data;
    const struct format *f = format_get(format);
    size_t n = (size_t)POOL_RUNS * RUN;
    uint8_t *data = arena_alloc(&s->arena, format_row_bytes(f, (int64_t)n));
    float *x = malloc(n * sizeof *x);
    if (!data || !x || s->n_pools == N_POOLS) {
        free(x);
        err_set(s->e, HONE_ERESOURCE, "out of memory for random weights");
        return NULL;
    }
    float sigma = 1 / sqrtf((float)n_in);
    for (size_t i = 0; i < n; i++)
        x[i] = s->normal[i] * sigma;
    f->pack(x, data, (int64_t)n);
    free(x);
    s->pools[s->n_pools++] = (struct pool_of_runs){format, n_in, data};
    return data;
}

static int write_matrix(struct synth *s, const struct item *t, struct rng *r)
{
    const struct format *f = format_get(t->format);
    const uint8_t *pool = pool_for(s, t->format, t->n_in);
    size_t run = format_row_bytes(f, RUN), used = 0;
    if (!pool)
        return s->e->code;
    for (int64_t at = 0; at < t->n; at += RUN) {
        const uint8_t *from = pool + rng_below(r, POOL_RUNS) * run;
        size_t n = t->n - at < RUN ? format_row_bytes(f, t->n - at) : run;
        memcpy(s->buffer + used, from, n);
        used += n;
        if (used + run > BUFFER || at + RUN >= t->n) {
            if (gguf_write_data(s->w, s->buffer, used, s->e))
                return s->e->code;
            used = 0;
        }
    }
    return 0;
}

/* Llama 3.1's change of the rope frequencies for long contexts (its config's rope_type "llama3", low and high factors 1 and 4
 * over an original context of 8192): divisors that are 1 for short wavelengths, the factor for long ones, and blended between.
 */
static float rope_divisor(const struct shape *p, int64_t i)
{
    double wavelength = 2 * 3.14159265358979323846 * pow((double)p->rope_base, 2.0 * (double)i / p->head_dim);
    double smooth = (8192 / wavelength - 1) / (4 - 1);
    smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
    return (float)(1 / ((1 - smooth) / (double)p->rope_factor + smooth));
}

/* Time steps between 0.001 and 0.1, evenly in their logarithm, and decays of exp(-1) to exp(-16) at a step of one, as such layers are
 * initialised (Gu and Dao, arXiv 2312.00752): a state then remembers tens to thousands of tokens. */
static float vector_value(const struct synth *s, const struct item *t, int64_t i, struct rng *r)
{
    switch (t->kind) {
    case TAPS:
        return (float)rng_normal(r) / sqrtf((float)t->n_in);
    case DECAY:
        return -1 - 15 * (float)rng_uniform(r);
    case TIME_STEP:
        return (float)log(expm1(exp(log(0.001) + log(100) * rng_uniform(r)))); /* softplus of it is the step */
    case ROPE_FREQS:
        return rope_divisor(&s->shape, i);
    default:
        return 1 + 0.1f * (float)rng_normal(r);
    }
}

static int write_vector(struct synth *s, const struct item *t, struct rng *r)
{
    float *x = (float *)(void *)s->buffer;
    for (int64_t at = 0; at < t->n;) {
        int64_t n = 0;
        for (; n < BUFFER / (int64_t)sizeof *x && at + n < t->n; n++)
            x[n] = vector_value(s, t, at + n, r);
        if (gguf_write_data(s->w, x, (size_t)n * sizeof *x, s->e))
            return s->e->code;
        at += n;
    }
    return 0;
}

/* Room for the weights, and nothing in it. */
static int write_holes(struct synth *s)
{
    int rc = 0;
    for (int i = 0; i < s->n_items && !rc; i++)
        rc = gguf_write_hole(s->w, format_row_bytes(format_get(s->items[i].format), s->items[i].n), s->e);
    return rc;
}

static int write_weights(struct synth *s, hone_progress_fn *progress, void *user)
{
    double total = 0, done = 0;
    struct rng r = rng_seed(s->seed);
    size_t n = (size_t)POOL_RUNS * RUN;
    s->normal = arena_array(&s->arena, n, sizeof *s->normal);
    s->buffer = arena_alloc(&s->arena, BUFFER);
    if (!s->normal || !s->buffer)
        return err_set(s->e, HONE_ERESOURCE, "out of memory for random weights");
    for (size_t i = 0; i < n; i++)
        s->normal[i] = (float)rng_normal(&r);
    for (int i = 0; i < s->n_items; i++)
        total += (double)s->items[i].n;
    for (int i = 0; i < s->n_items; i++) {
        const struct item *t = &s->items[i];
        r = rng_seed(s->seed + 1 + (uint64_t)i);
        int rc = t->kind == MATRIX ? write_matrix(s, t, &r) : write_vector(s, t, &r);
        if (rc)
            return rc;
        done += (double)t->n;
        if (progress && progress(user, (float)(done / total)))
            return err_set(s->e, HONE_ECANCELED, "cancelled");
    }
    return 0;
}

/* Shape and overrides. */

const char *synth_shape(int i)
{
    return i >= 0 && i < N_SHAPES ? shapes[i].name : NULL;
}

static int unknown_shape(const char *name, struct hone_error *e)
{
    char names[400] = "";
    size_t n = 0;
    for (int i = 0; i < N_SHAPES && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", shapes[i].name);
    return err_set(e, HONE_EUSAGE, "'%.40s' is no shape; there are %s", name, names);
}

static int override(const char *what, int32_t *value, int32_t wanted, int32_t lo, int32_t hi, struct hone_error *e)
{
    if (!wanted)
        return 0;
    if (wanted < lo || wanted > hi)
        return err_set(e, HONE_EUSAGE, "%s of %d: %d to %d are possible", what, wanted, lo, hi);
    *value = wanted;
    return 0;
}

/* Another width keeps head size and the ratios of everything to the width, as far as they divide. */
static void scale_width(struct shape *p, int32_t width)
{
    int32_t ratio = p->heads / p->kv_heads, grain = p->ffn % 256 ? 32 : 256;
    p->heads = (int32_t)((int64_t)p->heads * width / p->width);
    p->heads = p->heads < 1 ? 1 : p->heads;
    p->kv_heads = p->heads / ratio < 1 ? 1 : p->heads / ratio;
    while (p->heads % p->kv_heads)
        p->kv_heads--;
    if (p->delta.n_k) {
        int32_t each = p->delta.n_v / p->delta.n_k, n_k = (int32_t)((int64_t)p->delta.n_k * width / p->width);
        p->delta.n_k = n_k < 1 ? 1 : n_k;
        p->delta.n_v = p->delta.n_k * each;
    }
    p->ffn = (int32_t)(((int64_t)p->ffn * width / p->width + grain - 1) / grain * grain);
    p->width = width;
}

static int choose(struct synth *s, const struct synth_params *p)
{
    int32_t width = 0;
    s->mix = mix_find(p->type);
    if (!s->mix)
        return err_set(s->e, HONE_EUSAGE, "'%.40s' is no weight type; there are %s", p->type, mix_names());
    for (int i = 0; i < N_SHAPES; i++)
        if (!strcmp(shapes[i].name, p->shape))
            s->shape = shapes[i];
    if (!s->shape.name)
        return unknown_shape(p->shape, s->e);
    int32_t fewest = p->no_vocab ? 1 : SYNTH_VOCAB_MIN;
    if (override("layers", &s->shape.layers, p->layers, 1, 1024, s->e) ||
        override("a width", &width, p->width, 32, 65536, s->e) ||
        override("a vocabulary", &s->shape.vocab, p->vocab, fewest, SYNTH_VOCAB_MAX, s->e) ||
        override("a context", &s->shape.ctx, p->ctx, 1, 1 << 30, s->e))
        return s->e->code;
    if (width % 32)
        return err_set(s->e, HONE_EUSAGE, "a width of %d: it must be a multiple of 32", width);
    if (width)
        scale_width(&s->shape, width);
    s->seed = p->seed;
    s->cap = s->shape.layers * LAYER_TENSORS + 4;
    return 0;
}

int model_synth(const char *out, const struct synth_params *p, hone_progress_fn *progress, void *user, struct hone_error *e)
{
    struct hone_error own = {0};
    struct synth s = {.e = e ? e : &own};
    int rc = choose(&s, p);
    if (rc)
        return rc;
    s.items = arena_array(&s.arena, (size_t)s.cap, sizeof *s.items);
    if (!s.items)
        rc = err_set(s.e, HONE_ERESOURCE, "out of memory for %d tensors", s.cap);
    if (!rc)
        rc = gguf_writer_create(&s.w, out, s.e);
    if (!rc)
        rc = declare(&s, p->no_vocab);
    if (!rc)
        rc = p->no_weights ? write_holes(&s) : write_weights(&s, progress, user);
    if (s.w) {
        int closed = gguf_writer_close(s.w, !rc, s.e);
        rc = rc ? rc : closed;
    }
    arena_free(&s.arena);
    return rc;
}
