/* rope.c: rotary position embedding, in all the forms that models use. The formulas are in rope.h.
 *
 * Angles are computed in double, position times base^(-2i / n_dims), and rounded once, after the rotation: at position 100,000
 * an angle in f32 is wrong by 0.004 already, and a chain of multiplications by base^(-2 / n_dims), as is common, by more. Who
 * reads the table is another matter; a kernel may keep one in f32 when it reduced the angles first.
 *
 * Coordinates. Text models have one position a token. Qwen's vision models have four, src[1] holds all tokens' first
 * coordinate, then all the second and so on, and pair i takes one of them; with q = i mod the sum of the sections:
 *   ROPE_SECTIONS (qwen2vl "mrope"): the section that q lies in: sections [4, 2, 2, 0] of 16 dims give 0000112200001122 over
 *     dimensions;
 *   ROPE_SECTIONS_INTERLEAVED (qwen3vl and qwen35 "imrope"): q mod 3 is the coordinate c if q < 3 sections[c], else
 *     it is 3: sections [11, 11, 10, 0] give 012012 ... 01 and so on, to the end of each.
 * The frequency is that of pair i in both. For text all coordinates are equal and both are ROPE_NEOX. Where the facts are from:
 * the comments of llama.cpp's ggml.h (ggml_rope_multi) and the sections key of its qwen35 files.
 *
 * A negative position turns backwards; the padding of a batch may hold any. */
#include "ops/rope.h"
#include "ops/ops.h"

#include <math.h>

/* Coordinate that pair i takes. */
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

static bool has_sections(const struct rope_params *p)
{
    return p->mode == ROPE_SECTIONS || p->mode == ROPE_SECTIONS_INTERLEAVED;
}

static int rope_check_params(const struct node *n, struct hone_error *e)
{
    const struct rope_params *p = node_params(n, struct rope_params);
    if (p->mode < ROPE_NORM || p->mode > ROPE_SECTIONS_INTERLEAVED)
        return op_refuse(n, e, "unknown mode %d", p->mode);
    if (!(p->base > 0) || !isfinite(p->base) || !(p->freq_scale > 0) || !isfinite(p->freq_scale) || !isfinite(p->ext_factor) ||
        !isfinite(p->attn_factor))
        return op_refuse(n, e, "base %g, freq_scale %g, ext_factor %g, attn_factor %g", (double)p->base, (double)p->freq_scale,
                         (double)p->ext_factor, (double)p->attn_factor);
    if (p->ext_factor != 0 && (!(p->beta_fast > 0) || !(p->beta_slow > 0) || p->n_ctx_orig <= 0 || !(p->base > 1)))
        return op_refuse(n, e, "YaRN with base %g, beta_fast %g, beta_slow %g, n_ctx_orig %d", (double)p->base,
                         (double)p->beta_fast, (double)p->beta_slow, p->n_ctx_orig);
    if (!has_sections(p))
        return 0;
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        if (p->sections[i] < 0)
            return op_refuse(n, e, "section %d is %d", i, p->sections[i]);
        else
            sum += p->sections[i];
    return sum > 0 ? 0 : op_refuse(n, e, "all sections are empty");
}

static int rope_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (!rc)
        rc = op_check_format(n, 1, FORMAT_I32, e);
    if (!rc && n->n_src > 2 && n->src[2])
        rc = op_check_format(n, 2, FORMAT_F32, e);
    if (!rc)
        rc = rope_check_params(n, e);
    if (rc)
        return rc;
    const struct rope_params *p = node_params(n, struct rope_params);
    const struct tensor *x = n->src[0], *positions = n->src[1], *factors = n->n_src > 2 ? n->src[2] : NULL;
    char a[128], b[128];
    if (p->n_dims < 2 || p->n_dims % 2 != 0 || p->n_dims > x->ne[0])
        return op_refuse(n, e, "%d rotated dimensions in heads of %s", p->n_dims, tensor_describe(x, a, sizeof a));
    if (x->ne[3] != 1 || positions->ne[0] != x->ne[2] * (has_sections(p) ? 4 : 1) || tensor_rows(positions) != 1)
        return op_refuse(n, e, "positions %s for x %s, not %s", tensor_describe(positions, b, sizeof b),
                         tensor_describe(x, a, sizeof a), has_sections(p) ? "four a token" : "one a token");
    if (factors && (factors->ne[0] != p->n_dims / 2 || tensor_rows(factors) != 1))
        return op_refuse(n, e, "factors %s for %d rotated dimensions", tensor_describe(factors, b, sizeof b), p->n_dims);
    return op_set_out(n, FORMAT_F32, x->ne, e);
}

/* Where in the frequencies a rotation makes `turns` turns over the original context (Peng et al., section 3.2). */
static double yarn_dimension(const struct rope_params *p, double turns)
{
    return p->n_dims * log(p->n_ctx_orig / (turns * 6.28318530717958647693)) / (2 * log((double)p->base));
}

/* factor[i]: what the position is multiplied by to give pair i's angle; returns the magnitude. */
static double rope_frequencies(const struct node *n, double *frequency, float *room)
{
    const struct rope_params *p = node_params(n, struct rope_params);
    const float *factor = n->n_src > 2 && n->src[2] ? tensor_read_row(n->src[2], 0, 0, 0, room) : NULL;
    double low = 0, high = 0, magnitude = p->attn_factor;
    if (p->ext_factor != 0) {
        low = fmax(0, floor(yarn_dimension(p, p->beta_fast)));
        high = fmin(p->n_dims - 1, ceil(yarn_dimension(p, p->beta_slow)));
        magnitude *= 1 + 0.1 * log(1 / (double)p->freq_scale);
    }
    for (int i = 0; i < p->n_dims / 2; i++) {
        double full = pow(p->base, -2.0 * i / p->n_dims) / (factor ? (double)factor[i] : 1),
               scaled = (double)p->freq_scale * full;
        frequency[i] = scaled;
        if (p->ext_factor != 0) {
            double ramp = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
            double mix = ramp * (double)p->ext_factor;
            frequency[i] = scaled * (1 - mix) + full * mix;
        }
    }
    return magnitude;
}

/* Three tables of n_dims / 2 doubles; a row in, a row out, the factors. */
static size_t rope_scratch(const struct node *n)
{
    size_t pairs = (size_t)node_params(n, struct rope_params)->n_dims / 2;
    return pairs * (3 * sizeof(double) + sizeof(float)) + 2 * sizeof(float) * (size_t)n->out->ne[0];
}

static void rope_reference(const struct node *n, const struct worker *w)
{
    const struct rope_params *p = node_params(n, struct rope_params);
    const struct tensor *x = n->src[0], *positions = n->src[1], *out = n->out;
    int64_t pairs = p->n_dims / 2, n_tokens = x->ne[2], lo, hi, token = -1, i[3];
    double *frequency = w->scratch, *cosine = frequency + pairs, *sine = cosine + pairs;
    float *room = (float *)(sine + pairs), *y = room + out->ne[0];
    double magnitude = rope_frequencies(n, frequency, y + out->ne[0]);
    worker_range(w, tensor_rows(out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(out, row, i);
        if (token != i[1]) {
            token = i[1];
            for (int64_t j = 0; j < pairs; j++) {
                int64_t position = tensor_read_index(positions, token + pair_coordinate(p, j) * n_tokens, 0);
                cosine[j] = magnitude * cos((double)position * frequency[j]);
                sine[j] = magnitude * sin((double)position * frequency[j]);
            }
        }
        const float *values = tensor_read_row(x, i[0], i[1], i[2], room);
        for (int64_t j = 0; j < pairs; j++) {
            int64_t first = p->mode == ROPE_NORM ? 2 * j : j, second = p->mode == ROPE_NORM ? 2 * j + 1 : j + pairs;
            double a = (double)values[first], b = (double)values[second];
            y[first] = (float)(a * cosine[j] - b * sine[j]);
            y[second] = (float)(a * sine[j] + b * cosine[j]);
        }
        for (int64_t j = p->n_dims; j < out->ne[0]; j++)
            y[j] = values[j];
        tensor_write_row(out, i[0], i[1], i[2], y);
    }
}

static struct cost rope_cost(const struct node *n)
{
    return cost_elementwise(n, 3);
}

#define X(d, h, t)                                                                                                             \
    {                                                                                                                          \
        FORMAT_F32, {d, h, t}, FILL_NORMAL                                                                                     \
    }
#define POSITIONS(t, from)                                                                                                     \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ASCENDING, STRIDES_PLAIN, from                                                                   \
    }
#define RANDOM(t, limit)                                                                                                       \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_INDEX, STRIDES_PLAIN, limit                                                                      \
    }
#define PLAIN(mode, n_dims, base)                                                                                              \
    &(const struct rope_params)                                                                                                \
    {                                                                                                                          \
        mode, n_dims, base, 1, 0, 1, 32, 1, 0,                                                                                 \
        {                                                                                                                      \
            0                                                                                                                  \
        }                                                                                                                      \
    }
#define YARN(mode, n_dims)                                                                                                     \
    &(const struct rope_params)                                                                                                \
    {                                                                                                                          \
        mode, n_dims, 10000, 0.25f, 1, 1.2f, 32, 1, 4096,                                                                      \
        {                                                                                                                      \
            0                                                                                                                  \
        }                                                                                                                      \
    }
#define SECTIONS(mode, n_dims, a, b, c, d)                                                                                     \
    &(const struct rope_params)                                                                                                \
    {                                                                                                                          \
        mode, n_dims, 1e7f, 1, 0, 1, 32, 1, 0,                                                                                 \
        {                                                                                                                      \
            a, b, c, d                                                                                                         \
        }                                                                                                                      \
    }

static const struct op_case cases[] = {
    {"norm_decode", {X(64, 9, 1), POSITIONS(1, 17)}, PLAIN(ROPE_NORM, 64, 10000)},
    {"norm_batch", {X(64, 9, 7), POSITIONS(7, 100)}, PLAIN(ROPE_NORM, 64, 100000)},
    {"norm_one_pair", {X(2, 1, 3), POSITIONS(3, 0)}, PLAIN(ROPE_NORM, 2, 10000)},
    {"norm_part", {X(80, 4, 3), POSITIONS(3, 5)}, PLAIN(ROPE_NORM, 30, 10000)},
    {"neox_decode", {X(128, 8, 1), POSITIONS(1, 900)}, PLAIN(ROPE_NEOX, 128, 1e6f)},
    {"neox_batch", {X(256, 4, 9), POSITIONS(9, 0)}, PLAIN(ROPE_NEOX, 256, 10000)},
    {"neox_head_512", {X(512, 2, 3), POSITIONS(3, 40)}, PLAIN(ROPE_NEOX, 512, 10000)},
    {"neox_part", {X(96, 3, 5), POSITIONS(5, 7)}, PLAIN(ROPE_NEOX, 72, 10000)},
    {"neox_odd_part", {X(77, 3, 5), POSITIONS(5, 7)}, PLAIN(ROPE_NEOX, 22, 10000)},
    {"random_positions", {X(64, 3, 11), RANDOM(11, 4096)}, PLAIN(ROPE_NEOX, 64, 10000)},
    {"far_positions", {X(64, 3, 5), POSITIONS(5, 130000)}, PLAIN(ROPE_NORM, 64, 500000)},
    {"below_zero", {X(64, 3, 5), POSITIONS(5, -3)}, PLAIN(ROPE_NORM, 64, 10000)},
    {"scaled", {X(64, 3, 5), POSITIONS(5, 60)}, &(const struct rope_params){ROPE_NEOX, 64, 1e6f, 0.125f, 0, 1, 32, 1, 0, {0}}},
    {"factors", {X(64, 3, 5), POSITIONS(5, 60), {FORMAT_F32, {32}, FILL_NORMAL}}, PLAIN(ROPE_NORM, 64, 500000)},
    {"yarn_norm", {X(64, 3, 5), POSITIONS(5, 60)}, YARN(ROPE_NORM, 64)},
    {"yarn_neox_part", {X(96, 3, 5), POSITIONS(5, 5000)}, YARN(ROPE_NEOX, 64)},
    {"sections", {X(128, 4, 6), RANDOM(24, 300)}, SECTIONS(ROPE_SECTIONS, 128, 16, 24, 24, 0)},
    {"sections_repeat", {X(18, 2, 3), RANDOM(12, 300)}, SECTIONS(ROPE_SECTIONS, 16, 2, 1, 1, 0)},
    {"sections_four", {X(64, 2, 3), RANDOM(12, 300)}, SECTIONS(ROPE_SECTIONS, 64, 8, 8, 8, 8)},
    {"interleaved", {X(256, 4, 6), RANDOM(24, 300)}, SECTIONS(ROPE_SECTIONS_INTERLEAVED, 64, 11, 11, 10, 0)},
    {"interleaved_four", {X(64, 2, 3), RANDOM(12, 300)}, SECTIONS(ROPE_SECTIONS_INTERLEAVED, 64, 2, 5, 5, 4)},
    {"interleaved_text", {X(256, 2, 6), {FORMAT_I32, {24}, FILL_ZERO}}, SECTIONS(ROPE_SECTIONS_INTERLEAVED, 64, 11, 11, 10, 0)},
    {"no_tokens", {X(64, 3, -1), {FORMAT_I32, {-1}, FILL_ZERO}}, PLAIN(ROPE_NORM, 64, 10000)},
    {"padded", {{FORMAT_F32, {48, 3, 4}, FILL_NORMAL, STRIDES_PADDED}, POSITIONS(4, 9)}, PLAIN(ROPE_NEOX, 48, 10000)},
    {"transposed", {{FORMAT_F32, {32, 3, 5}, FILL_NORMAL, STRIDES_TRANSPOSED}, POSITIONS(5, 9)}, PLAIN(ROPE_NEOX, 32, 10000)},
    {"permuted", {{FORMAT_F32, {32, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}, POSITIONS(5, 9)}, PLAIN(ROPE_NORM, 32, 10000)},
    {"hostile", {{FORMAT_F32, {64, 9, 9}, FILL_HOSTILE}, POSITIONS(9, 9)}, PLAIN(ROPE_NEOX, 64, 10000)},
};
#undef X

static const char *mode_word(int32_t mode)
{
    static const char *const words[] = {"norm", "neox", "sections", "sections_interleaved"};
    return mode >= 0 && mode < 4 ? words[mode] : NULL;
}

const struct op_param rope_param_list[] = {
    {OP_WORD(struct rope_params, mode, mode_word)},
    {OP_WHOLE(struct rope_params, n_dims)},
    {OP_REAL(struct rope_params, base)},
    {OP_REAL(struct rope_params, freq_scale)},
    {OP_REAL(struct rope_params, ext_factor)},
    {OP_REAL(struct rope_params, attn_factor)},
    {OP_REAL(struct rope_params, beta_fast)},
    {OP_REAL(struct rope_params, beta_slow)},
    {OP_WHOLE(struct rope_params, n_ctx_orig)},
    {OP_WHOLE(struct rope_params, sections[0])},
    {OP_WHOLE(struct rope_params, sections[1])},
    {OP_WHOLE(struct rope_params, sections[2])},
    {OP_WHOLE(struct rope_params, sections[3])},
    {NULL},
};

const struct op_desc op_rope = {
    .name = "rope",
    .min_src = 2,
    .max_src = 3,
    .params_size = sizeof(struct rope_params),
    .params = rope_param_list,
    .shape = rope_shape,
    .reference = rope_reference,
    .scratch = rope_scratch,
    .cost = rope_cost,
    /* The angle in double, reduced, then rounded to f32 errs by 2e-7 and its sine by as much: squared 1e-13. An angle that was
     * computed in f32 is wrong by 6e-8 of itself, 6e-5 at position 1,000 and 4e-9 squared: such a kernel shall not pass. */
    .tolerance = 1e-12,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
