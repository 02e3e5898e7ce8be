/* norm.h: the body of l2_norm, of rms_norm and of the four nodes that it fuses into: the residual add before it, the mul by its weight and
 * the quantisation behind it. Which of the steps a node has, and which values it must leave in memory, is read from its parts.
 *
 * Two passes over a row: the sum of squares, in four vectors of f32; then the row again, in pieces of 32: scaled, multiplied,
 * quantised while still in registers or the first-level cache. A row that several workers share is summed by each of them whole
 * (2,048 values are 60 ns) and written in parts, so a decode step needs no barrier. Each step rounds as the kernel of its part
 * does, so fused and unfused give the same bits.
 *
 * A sum that leaves the range of f32, or comes near its lower end, is taken again in double: no row is refused for its values.
 * Bound by the latency of passes over a row that lies in cache. */
#ifndef BACKENDS_CPU_NORM_H
#define BACKENDS_CPU_NORM_H

#include "backends/cpu/rows.h"
#include "ops/l2_norm.h"
#include "ops/rms_norm.h"

enum { NORM_GRAIN = 64, NORM_MAX_BLOCK = 256 };

/* A node as steps. NULL: has no such step, or need not leave that value. */
struct norm {
    const struct tensor *a, *b, *weight; /* b: added to a */
    const struct tensor *sum, *normed, *product, *quantized;
    float eps;
    bool mean; /* of the squares, not their sum */
};

static inline struct norm norm_of(const struct node *n)
{
    bool mean = n->op != OP_L2_NORM;
    float eps = mean ? node_params(n, struct rms_norm_params)->eps : node_params(n, struct l2_norm_params)->eps;
    struct norm m = {.a = n->src[0], .eps = eps, .mean = mean};
    if (!n->n_parts) {
        m.normed = n->out;
        return m;
    }
    for (int i = 0; i < n->n_parts; i++) {
        const struct node *part = n->parts[i];
        const struct tensor *left = node_leaves(n, part->out) ? part->out : NULL;
        switch (part->op) {
        case OP_ALL_REDUCE: /* its sum is a row in memory by then: collective_norm.h */
            break;
        case OP_ADD:
            m.b = n->src[1];
            m.sum = left;
            break;
        case OP_RMS_NORM:
            m.normed = left;
            break;
        case OP_MUL:
            m.weight = n->src[n->n_src - 1];
            m.product = left;
            break;
        default:
            m.quantized = left;
        }
    }
    return m;
}

static inline bool norm_steps_fit(const struct norm *m, struct reason *r)
{
    int64_t width = m->a->ne[0];
    if (m->weight && m->weight->ne[0] != width)
        return fits_not(r, "a weight of %lld repeats along rows of %lld", (long long)m->weight->ne[0], (long long)width);
    const struct tensor *written[] = {m->sum, m->normed, m->product, m->quantized};
    for (int i = 0; i < 4; i++)
        if (written[i] && !tensor_rows_contiguous(written[i]))
            return fits_not(r, "%s is written with gaps", written[i]->name);
    if (m->quantized && format_get(m->quantized->format)->block > NORM_MAX_BLOCK)
        return fits_not(r, "blocks of %d values", format_get(m->quantized->format)->block);
    return true;
}

static inline bool norm_fits(const struct node *n, struct reason *r)
{
    struct norm m = norm_of(n);
    return norm_steps_fit(&m, r);
}

/* Rooms for the sources, and for the piece that is quantised. */
static inline size_t norm_steps_scratch(const struct norm *m)
{
    return rows_room(m->a) + (m->b ? rows_room(m->b) : 0) + (m->weight ? rows_room(m->weight) : 0);
}

static inline size_t norm_scratch(const struct node *n)
{
    struct norm m = norm_of(n);
    return norm_steps_scratch(&m);
}

/* n <= V values from `at` on, n = V where it is a constant. */
INLINE vf norm_value(const float *a, const float *b, int64_t at, int64_t n)
{
    vf x = v_load_up_to(a + at, n);
    if (b)
        x = x + v_load_up_to(b + at, n);
    return x;
}

static double norm_sum_exactly(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        float x[V];
        v_store(x, norm_value(a, b, i, 1));
        sum += (double)x[0] * (double)x[0];
    }
    return sum;
}

INLINE double norm_sum_squares(const float *a, const float *b, int64_t n)
{
    vf sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    int64_t i = 0;
    for (; i + 4 * V <= n; i += 4 * V)
        UNROLL
    for (int j = 0; j < 4; j++) {
        vf x = norm_value(a, b, i + j * V, V);
        sum[j] = v_fma(x, x, sum[j]);
    }
    for (int j = 0; i < n; i += V, j++) {
        vf x = norm_value(a, b, i, n - i);
        sum[j] = v_fma(x, x, sum[j]);
    }
    float total = v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    return total > 1e-30f && total < 1e38f ? (double)total : norm_sum_exactly(a, b, n);
}

/* Where the values of one row go; NULL: nowhere. */
struct norm_row {
    const float *a, *b, *weight;
    float *sum, *normed, *product;
    char *quantized;
    enum format_id format;
};

INLINE float *norm_target(const struct tensor *t, const struct rows *r, int64_t row)
{
    return t ? row_address(r, row) : NULL;
}

/* n <= V elements from `at` on; `room` is where the product goes for quantisation. */
INLINE void norm_vector(const struct norm_row *r, vf scale, int64_t at, int64_t n, float *room)
{
    vf x = norm_value(r->a, r->b, at, n), y = x * scale;
    if (r->sum)
        v_store_up_to(r->sum + at, x, n);
    if (r->normed)
        v_store_up_to(r->normed + at, y, n);
    if (!r->weight)
        return;
    y = y * v_load_up_to(r->weight + at, n);
    if (r->product)
        v_store_up_to(r->product + at, y, n);
    if (r->quantized)
        v_store_up_to(room, y, n);
}

/* Up to NORM_MAX_BLOCK elements from lo on. */
INLINE void norm_piece(const struct norm_row *r, vf scale, int64_t lo, int64_t n)
{
    float room[NORM_MAX_BLOCK];
    int64_t i = 0;
    for (; i + V <= n; i += V)
        norm_vector(r, scale, lo + i, V, room + i);
    if (i < n)
        norm_vector(r, scale, lo + i, n - i, room + i);
    if (r->quantized)
        row_pack(r->format, room, r->quantized + format_row_bytes(format_get(r->format), lo), n);
}

static inline int norm_steps_run(const struct exec *x, const struct norm *m)
{
    char *scratch = x->worker.scratch;
    struct rows a = rows_of(m->a, &scratch), b = {0}, sum = {0}, normed = {0}, product = {0}, quantized = {0};
    struct norm_row r = {.format = FORMAT_F32};
    if (m->b)
        b = rows_of(m->b, &scratch);
    if (m->weight) {
        struct rows weight = rows_of(m->weight, &scratch);
        r.weight = row_read(&weight, 0);
    }
    if (m->sum)
        sum = rows_to(m->sum);
    if (m->normed)
        normed = rows_to(m->normed);
    if (m->product)
        product = rows_to(m->product);
    if (m->quantized) {
        quantized = rows_to(m->quantized);
        r.format = m->quantized->format;
    }
    int64_t block = format_get(r.format)->block, width = m->a->ne[0];
    struct share share = share_of(&x->worker, tensor_rows(m->a), width, block > NORM_GRAIN ? block : NORM_GRAIN);
    struct piece p;
    while (share_next(&share, &p)) {
        r.a = row_read(&a, p.row);
        r.b = m->b ? row_read(&b, p.row) : NULL;
        r.sum = norm_target(m->sum, &sum, p.row);
        r.normed = norm_target(m->normed, &normed, p.row);
        r.product = norm_target(m->product, &product, p.row);
        r.quantized = (char *)norm_target(m->quantized, &quantized, p.row);
        double squares = norm_sum_squares(r.a, r.b, width), mean = m->mean ? squares / (double)width : squares;
        vf scale = v_all((float)(1 / sqrt(mean + (double)m->eps)));
        for (int64_t i = p.lo; i < p.hi; i += NORM_MAX_BLOCK)
            norm_piece(&r, scale, i, p.hi - i < NORM_MAX_BLOCK ? p.hi - i : NORM_MAX_BLOCK);
    }
    return 0;
}

static inline int norm_run(const struct exec *x, const struct node *n)
{
    struct norm m = norm_of(n);
    return norm_steps_run(x, &m);
}

/* Defines cpu_<op>_<isa>. */
#define NORM_KERNEL(OP, name)                                                                                                  \
    const struct kernel CPU_KERNEL_NAME(name) = {.op = OP_##OP,                                                                \
                                                 .variant = FLOATS_VARIANT,                                                    \
                                                 .needs = FLOATS_NEEDS,                                                        \
                                                 .fits = norm_fits,                                                            \
                                                 .scratch = norm_scratch,                                                      \
                                                 .run = norm_run}

#endif
