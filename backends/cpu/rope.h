/* rope.h: the body of rope, kv_write and of rope_kv, which is both: rope of q and k and the writes of k and v into their
 * caches.
 *
 * A worker takes rows (heads of tokens) in order and makes the table of sines and cosines once for each token that it meets.
 * Angles are doubles, as the op demands: frequencies by repeated multiplication in double, reduced to [-pi/4, pi/4] in double,
 * then two short polynomials in f32 (4e-9). A table costs about 100 ns for 32 pairs, where the library's sine and cosine
 * took 1.3 us; so it is made anew in each layer. A table kept across layers would be a cache that no node owns (rule 1).
 *
 * Neighbouring pairs (ROPE_NORM) turn as y = x cos + swapped(x) (-sin, sin), with both tables written twice as wide: no
 * deinterleaving. Bound by the latency of loads; there is little to do. */
#ifndef BACKENDS_CPU_ROPE_H
#define BACKENDS_CPU_ROPE_H

#include "backends/cpu/rows.h"
#include "ops/rope.h"

#include <math.h>

struct rope {
    const struct rope_params *p;
    const struct tensor *positions, *factors;
    int64_t pairs, n_tokens, token; /* token: whose table it is; -1: none */
    float magnitude;
    double *frequencies;     /* [pairs] */
    float *cosines, *sines;  /* [n_dims] for ROPE_NORM, else [pairs] */
    double *angles;          /* [pairs and up to a whole vector] */
    float *rest, *quadrants; /* of the angles */
};

static inline void *rope_take(char **at, size_t bytes)
{
    char *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

/* Scratch of `at` on; n is a rope node. */
static inline struct rope rope_of(const struct node *n, char **at)
{
    struct rope r = {
        .p = node_params(n, struct rope_params), .positions = n->src[1], .token = -1, .n_tokens = n->src[0]->ne[2]};
    r.factors = n->n_src > 2 ? n->src[2] : NULL;
    r.pairs = r.p->n_dims / 2;
    size_t padded = (size_t)(r.pairs + V - 1) / V * V;
    r.frequencies = rope_take(at, padded * sizeof(double));
    r.angles = rope_take(at, padded * sizeof(double));
    r.rest = rope_take(at, padded * sizeof(float));
    r.quadrants = rope_take(at, padded * sizeof(float));
    r.cosines = rope_take(at, 2 * padded * sizeof(float));
    r.sines = rope_take(at, 2 * padded * sizeof(float));
    return r;
}

static inline double rope_yarn_dimension(const struct rope_params *p, double turns)
{
    return p->n_dims * log(p->n_ctx_orig / (turns * 6.28318530717958647693)) / (2 * log((double)p->base));
}

static inline void rope_find_frequencies(struct rope *r)
{
    const struct rope_params *p = r->p;
    double ratio = pow((double)p->base, -2.0 / p->n_dims), power[4] = {1, ratio, ratio * ratio, ratio * ratio * ratio};
    double ratio_4 = power[2] * power[2], low = 0, high = 0, magnitude = (double)p->attn_factor;
    if (p->ext_factor != 0) {
        low = fmax(0, floor(rope_yarn_dimension(p, (double)p->beta_fast)));
        high = fmin(p->n_dims - 1, ceil(rope_yarn_dimension(p, (double)p->beta_slow)));
        magnitude *= 1 + 0.1 * log(1 / (double)p->freq_scale);
    }
    r->magnitude = (float)magnitude;
    for (int64_t i = 0; i < r->pairs; i++) {
        double full = power[i % 4];
        power[i % 4] *= ratio_4;
        if (r->factors) {
            float factor;
            memcpy(&factor, (const char *)r->factors->data + (size_t)i * r->factors->nb[0], sizeof factor);
            full /= (double)factor;
        }
        double scaled = (double)p->freq_scale * full;
        if (p->ext_factor != 0) {
            double ramp = 1 - fmin(1, fmax(0, ((double)i - low) / fmax(0.001, high - low))), mix = ramp * (double)p->ext_factor;
            scaled = scaled * (1 - mix) + full * mix;
        }
        r->frequencies[i] = scaled;
    }
}

/* Which of a token's positions pair i takes (ops/rope.c). */
static inline int64_t rope_coordinate(const struct rope_params *p, int64_t i)
{
    const int32_t *s = p->sections;
    int64_t q = i % ((int64_t)s[0] + s[1] + s[2] + s[3]);
    if (p->mode == ROPE_SECTIONS_INTERLEAVED)
        return q < 3 * (int64_t)s[q % 3] ? q % 3 : 3;
    int64_t c = 0;
    for (; c < 3 && q >= s[c]; c++)
        q -= s[c];
    return c;
}

/* Sines and cosines of V angles in [-pi/4, pi/4], moved by their quadrants (0 to 3). */
INLINE void rope_turn(vf x, vf quadrant, vf *sine, vf *cosine)
{
    vf z = x * x, s = v_all(-0x1.9943bap-13f), c = v_all(0x1.9a0232p-16f);
    s = v_fma(s, z, v_all(0x1.11073ap-7f));
    s = v_fma(s, z, v_all(-0x1.555546p-3f));
    s = v_fma(s * z, x, x);
    c = v_fma(c, z, v_all(-0x1.6c0c8cp-10f));
    c = v_fma(c, z, v_all(0x1.55554ap-5f));
    c = v_fma(c * z, z, v_fma(v_all(-0.5f), z, v_all(1)));
    vm one = v_eq(quadrant, v_all(1)), three = v_eq(quadrant, v_all(3)), two = v_eq(quadrant, v_all(2));
    vf sine_1 = v_select(one, c, s), cosine_1 = v_select(one, v_all(-0.0f) - s, c);
    sine_1 = v_select(two, v_all(-0.0f) - s, sine_1);
    cosine_1 = v_select(two, v_all(-0.0f) - c, cosine_1);
    *sine = v_select(three, v_all(-0.0f) - c, sine_1);
    *cosine = v_select(three, s, cosine_1);
}

/* The table from r->angles. */
static inline void rope_table(struct rope *r)
{
    const double two_over_pi = 0x1.45f306dc9c883p-1, half_pi = 0x1.921fb54442d18p+0, half_pi_rest = 0x1.1a62633145c07p-54;
    bool norm = r->p->mode == ROPE_NORM, far = false;
    for (int64_t i = 0; i < r->pairs; i++) {
        double turns = rint(r->angles[i] * two_over_pi);
        r->rest[i] = (float)fma(-turns, half_pi_rest, fma(-turns, half_pi, r->angles[i]));
        r->quadrants[i] = (float)(turns - 4 * floor(turns * 0.25));
        far |= !(fabs(r->angles[i]) < 0x1p40);
    }
    for (int64_t i = 0; i < r->pairs; i += V) {
        vf sine, cosine;
        rope_turn(v_load(r->rest + i), v_load(r->quadrants + i), &sine, &cosine);
        v_store(r->sines + i, sine * v_all(r->magnitude));
        v_store(r->cosines + i, cosine * v_all(r->magnitude));
    }
    for (int64_t i = 0; i < r->pairs && far; i++) {
        r->sines[i] = (float)((double)r->magnitude * sin(r->angles[i]));
        r->cosines[i] = (float)((double)r->magnitude * cos(r->angles[i]));
    }
    for (int64_t i = r->pairs; i-- > 0 && norm;) {
        r->cosines[2 * i] = r->cosines[2 * i + 1] = r->cosines[i];
        r->sines[2 * i + 1] = r->sines[i];
        r->sines[2 * i] = -r->sines[i];
    }
}

static inline void rope_load_token(struct rope *r, int64_t token)
{
    if (r->token == token)
        return;
    if (r->token < 0)
        rope_find_frequencies(r);
    r->token = token;
    bool sections = r->p->mode == ROPE_SECTIONS || r->p->mode == ROPE_SECTIONS_INTERLEAVED;
    double position = (double)tensor_read_index(r->positions, token, 0);
    for (int64_t i = 0; i < r->pairs; i++) {
        if (sections)
            position = (double)tensor_read_index(r->positions, token + rope_coordinate(r->p, i) * r->n_tokens, 0);
        r->angles[i] = position * r->frequencies[i];
    }
    rope_table(r);
}

/* y = x turned by the loaded table; n values, of which those behind n_dims are copied. y is not x. */
INLINE void rope_row(const struct rope *r, const float *x, float *y, int64_t n)
{
    int64_t n_dims = r->p->n_dims, pairs = r->pairs;
    if (r->p->mode == ROPE_NORM) {
        for (int64_t i = 0; i < n_dims; i += V) {
            vf a = v_load_up_to(x + i, n_dims - i), c = v_load_up_to(r->cosines + i, n_dims - i);
            v_store_up_to(y + i, v_fma(a, c, v_swap_pairs(a) * v_load_up_to(r->sines + i, n_dims - i)), n_dims - i);
        }
    } else {
        for (int64_t i = 0; i < pairs; i += V) {
            int64_t left = pairs - i;
            vf a = v_load_up_to(x + i, left), b = v_load_up_to(x + pairs + i, left);
            vf c = v_load_up_to(r->cosines + i, left), s = v_load_up_to(r->sines + i, left);
            v_store_up_to(y + i, v_fma(a, c, v_all(-0.0f) - b * s), left);
            v_store_up_to(y + pairs + i, v_fma(a, s, b * c), left);
        }
    }
    for (int64_t i = n_dims; i < n; i += V)
        v_store_up_to(y + i, v_load_up_to(x + i, n - i), n - i);
}

/* ---- rope */

static inline bool rope_fits(const struct node *n, struct reason *r)
{
    return tensor_rows_contiguous(n->out) || fits_not(r, "the elements of an output row do not lie one behind the other");
}

static inline size_t rope_table_bytes(const struct node *n)
{
    enum { SOMEWHERE = 64 };
    char *at = (char *)(uintptr_t)SOMEWHERE;
    rope_of(n, &at);
    return (uintptr_t)at - SOMEWHERE;
}

static inline size_t rope_scratch(const struct node *n)
{
    return rope_table_bytes(n) + rows_room(n->src[0]);
}

static inline int rope_run(const struct exec *x, const struct node *n)
{
    char *at = x->worker.scratch;
    struct rope r = rope_of(n, &at);
    struct rows in = rows_of(n->src[0], &at);
    int64_t lo, hi, heads = n->out->ne[1];
    worker_range(&x->worker, heads * n->out->ne[2], 1, &lo, &hi);
    for (; lo < hi; lo++) {
        int64_t head = lo % heads, token = lo / heads;
        rope_load_token(&r, token);
        rope_row(&r, row_read_at(&in, (const int64_t[3]){head, token, 0}), tensor_row(n->out, head, token, 0), n->out->ne[0]);
    }
    return 0;
}

#endif
