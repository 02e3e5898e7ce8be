/* q4_0.c: a kernel of one's own, to start from: mul_mat of a Q4_0 weight with f32 activations, in plain C. See README.md.
 *
 *   out[i, t] = sum over k of W[k, i] X[k, t];   W [k, m] Q4_0, X [k, n] f32, out [m, n] f32
 *
 * A Q4_0 block holds 32 values in 18 bytes: a binary16 scale d, then 16 bytes; byte j has value j in its low four bits and
 * value j + 16 in its high four, and a value is d * (bits - 8). One dot product runs in 16 lanes, which gcc and clang turn into
 * whatever vectors the machine has. Each output is one sum in a fixed order, so the number of threads changes no bit of it.
 * Work per thread: a contiguous share of W's rows, so that a weight is read once for up to four tokens. */
#include "hone_kernel.h"

#include <stdio.h>

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));

enum { BLOCK = 32, BLOCK_BYTES = 18, TOKENS = 4 };

static lanes floats_of(bytes codes)
{
    return __builtin_convertvector(__builtin_convertvector(codes, ints) - 8, lanes);
}

/* One row of W times n_tokens (at most TOKENS) rows of X. */
static inline void dots(const unsigned char *w, const float *const *x, int n_tokens, int64_t k, float *out)
{
    lanes sum[TOKENS] = {{0}};
    for (int64_t b = 0; b < k / BLOCK; b++, w += BLOCK_BYTES) {
        uint16_t half;
        memcpy(&half, w, sizeof half);
        float d = hone_half(half);
        bytes codes = *(const bytes *)(w + 2);
        lanes low = d * floats_of(codes & 15), high = d * floats_of(codes >> 4);
        for (int t = 0; t < n_tokens; t++) {
            const lanes *values = (const lanes *)(x[t] + b * BLOCK);
            sum[t] += low * values[0] + high * values[1];
        }
    }
    for (int t = 0; t < n_tokens; t++) {
        out[t] = 0;
        for (int i = 0; i < 16; i++)
            out[t] += sum[t][i];
    }
}

static int fits(const struct hone_node *node, char *why, size_t why_size)
{
    const struct hone_tensor *w = node->src[0], *x = node->src[1];
    if (strcmp(x->format, "f32") || x->nb[0] != sizeof(float))
        return snprintf(why, why_size, "rows of X are not plain f32"), 0;
    if (w->nb[0] != BLOCK_BYTES || node->out->nb[0] != sizeof(float))
        return snprintf(why, why_size, "rows of W or of the output have gaps within"), 0;
    if (w->ne[2] != 1 || w->ne[3] != 1 || x->ne[2] != 1 || x->ne[3] != 1)
        return snprintf(why, why_size, "batches of matrices"), 0;
    return 1;
}

static int run(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *w = node->src[0], *x = node->src[1], *out = node->out;
    int64_t k = w->ne[0], n = x->ne[1], first, last;
    (void)ctx;
    hone_share(w->ne[1], 16, ith, nth, &first, &last); /* 16 floats: threads never write to one cache line */
    for (int64_t t = 0; t < n; t += TOKENS)
        for (int64_t i = first; i < last; i++) {
            const float *rows[TOKENS];
            float values[TOKENS];
            int n_tokens = n - t < TOKENS ? (int)(n - t) : TOKENS;
            for (int j = 0; j < n_tokens; j++)
                rows[j] = (const float *)(const void *)((const char *)x->data + (t + j) * x->nb[1]);
            const unsigned char *row = (const unsigned char *)w->data + i * w->nb[1];
            if (n_tokens == TOKENS)
                dots(row, rows, TOKENS, k, values); /* a constant: the compiler keeps all sums in registers */
            else
                dots(row, rows, n_tokens, k, values);
            for (int j = 0; j < n_tokens; j++)
                *(float *)(void *)((char *)out->data + (t + j) * out->nb[1] + i * out->nb[0]) = values[j];
        }
    return 0;
}

static const struct hone_kernel q4_0_lanes = {
    .size = sizeof(struct hone_kernel), .op = "mul_mat", .variant = "q4_0_lanes", .format = "q4_0", .fits = fits, .run = run};

static const struct hone_kernel *const kernels[] = {&q4_0_lanes, NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "example", .version = "1", .kernels = kernels};
