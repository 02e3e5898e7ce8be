/* cases.c: makes cases real. See cases.h.
 *
 * A source is laid out by hand rather than through view and permute nodes, so that a case depends on nothing that it might be
 * there to check. Weights of a format that can be packed hold packed normal values; for hostile ones, and for formats without a
 * pack, a block is drawn byte by byte until its values are finite and of a sane size: that reaches every code, sign and
 * sub-scale, which packing does not, and needs to know nothing of the block. */
#include "ops/cases.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, NOTHING = 0xff, MAX_BLOCK = 256, DRAWS = 100000 };

/* ---- memory */

static int64_t case_dimension(int64_t n)
{
    return n == 0 ? 1 : n < 0 ? 0 : n;
}

/* Strides, and the offset of the first byte behind the guard. */
static size_t lay_out(struct tensor *t, const struct case_src *spec)
{
    int64_t ne[MAX_DIMS];
    for (int i = 0; i < MAX_DIMS; i++)
        ne[i] = case_dimension(spec->ne[i]);
    INVARIANT(tensor_shape_fits(spec->format, ne));
    tensor_shape(t, spec->format, MAX_DIMS, ne);
    size_t unit = t->nb[0];
    switch (spec->strides) {
    case STRIDES_PLAIN:
        break;
    case STRIDES_PADDED:
        t->nb[1] += 3 * unit;
        t->nb[2] = t->nb[1] * (size_t)ne[1] + unit;
        t->nb[3] = t->nb[2] * (size_t)ne[2] + 5 * unit;
        return unit;
    case STRIDES_PERMUTED:
        t->nb[2] = t->nb[1];
        t->nb[1] = t->nb[2] * (size_t)ne[2];
        break;
    case STRIDES_TRANSPOSED:
        INVARIANT(format_get(spec->format)->block == 1);
        t->nb[1] = unit;
        t->nb[0] = unit * (size_t)ne[1];
        break;
    }
    return 0;
}

/* Memory for t with its first element `offset` behind the guard; marks the elements' bytes. */
static int place(struct tensor *t, struct case_memory *m, size_t offset, struct hone_error *e)
{
    m->size = GUARD + offset + tensor_nbytes(t) + GUARD;
    m->bytes = aligned_alloc(64, (m->size + 63) / 64 * 64);
    m->before = malloc(m->size);
    m->element = calloc(m->size, sizeof *m->element);
    if (!m->bytes || !m->before || !m->element)
        return err_set(e, HONE_ERESOURCE, "no memory for a case of %zu bytes", m->size);
    memset(m->bytes, NOTHING, m->size);
    t->data = m->bytes + GUARD + offset;
    const struct format *f = format_get(t->format);
    for (int64_t row = 0; row < tensor_rows(t); row++) {
        int64_t i[3];
        tensor_row_index(t, row, i);
        const unsigned char *first = tensor_row(t, i[0], i[1], i[2]);
        for (int64_t block = 0; block < t->ne[0] / f->block; block++)
            memset(m->element + (first - m->bytes) + (size_t)block * t->nb[0], 1, (size_t)f->bytes);
    }
    return 0;
}

/* ---- contents */

static float hostile_value(struct rng *r)
{
    double u = rng_uniform(r), x = rng_normal(r);
    if (u < 0.10)
        return 0;
    if (u < 0.14)
        return x < 0 ? -1e-40f : 1e-40f; /* a denormal f32 */
    if (u < 0.18)
        return x < 0 ? -1e-6f : 1e-6f; /* a denormal f16 */
    if (u < 0.20)
        return x < 0 ? -1e4f : 1e4f;
    return (float)x;
}

static float fill_value(enum fill fill, struct rng *r)
{
    if (fill == FILL_ZERO)
        return 0;
    if (fill == FILL_SHARE)
        return (float)rng_uniform(r);
    float x = (float)rng_normal(r);
    return fill == FILL_NEGATIVE ? -fabsf(x) : x;
}

static void fill_row(float *row, int64_t n, enum fill fill, struct rng *r)
{
    bool equal = fill == FILL_HOSTILE && rng_uniform(r) < 0.15;
    for (int64_t i = 0; i < n; i++)
        row[i] = fill != FILL_HOSTILE ? fill_value(fill, r) : equal && i ? row[0] : hostile_value(r);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)row[i] * (double)row[i];
    for (int64_t i = 0; i < n && fill == FILL_UNIT && sum > 0; i++)
        row[i] = (float)((double)row[i] / sqrt(sum));
}

/* Draws the bytes of one block; false when luck never gave a sane one, which would be a fault of the format. */
static bool draw_block(const struct format *f, unsigned char *block, struct rng *r)
{
    float values[MAX_BLOCK];
    for (int draw = 0; draw < DRAWS; draw++) {
        for (int i = 0; i < f->bytes; i++)
            block[i] = (unsigned char)(rng_u64(r) >> 32);
        f->unpack(block, values, f->block);
        float largest = 0;
        bool finite = true;
        for (int i = 0; i < f->block; i++) {
            finite = finite && isfinite(values[i]);
            largest = fmaxf(largest, fabsf(values[i]));
        }
        if (finite && largest >= 1.0f / 64 && largest <= 8)
            return true;
    }
    return false;
}

static int fill_floats(const struct tensor *t, enum fill fill, struct rng *r, struct hone_error *e)
{
    const struct format *f = format_get(t->format);
    /* Only what files hold: an activation's block has sums in it that random bytes would belie. */
    bool draw = f->block > 1 && f->gguf_type >= 0 && (!f->pack || fill == FILL_HOSTILE);
    float *row = malloc(sizeof *row * (size_t)(t->ne[0] + 1));
    int rc = row && f->block <= MAX_BLOCK ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a row of a case");
    for (int64_t n = 0; n < tensor_rows(t) && !rc; n++) {
        int64_t i[3];
        tensor_row_index(t, n, i);
        if (!draw) {
            fill_row(row, t->ne[0], fill, r);
            tensor_write_row(t, i[0], i[1], i[2], row);
            continue;
        }
        unsigned char *block = tensor_row(t, i[0], i[1], i[2]);
        for (int64_t b = 0; b < t->ne[0] / f->block && !rc; b++)
            if (!draw_block(f, block + (size_t)b * t->nb[0], r))
                rc = err_set(e, HONE_EFAULT, "no random block of %s is finite and of a sane size", f->name);
    }
    free(row);
    return rc;
}

/* values[i] becomes distinct numbers of [0, limit): the first n of a shuffle. */
static int draw_distinct(int32_t *values, int64_t n, int64_t limit, struct rng *r, struct hone_error *e)
{
    INVARIANT(limit >= n && limit <= INT32_MAX);
    int32_t *all = malloc(sizeof *all * (size_t)(limit + 1));
    if (!all)
        return err_set(e, HONE_ERESOURCE, "no memory for %lld distinct values of a case", (long long)limit);
    for (int64_t i = 0; i < limit; i++)
        all[i] = (int32_t)i;
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i + (int64_t)rng_below(r, (uint64_t)(limit - i));
        values[i] = all[j];
        all[j] = all[i];
    }
    free(all);
    return 0;
}

static int fill_indices(const struct tensor *t, const struct case_src *spec, struct rng *r, struct hone_error *e)
{
    int64_t n = tensor_elements(t);
    int32_t *values = malloc(sizeof *values * (size_t)(n + 1));
    if (!values)
        return err_set(e, HONE_ERESOURCE, "no memory for %lld values of a case", (long long)n);
    int rc = spec->fill == FILL_DISTINCT ? draw_distinct(values, n, spec->limit, r, e) : 0;
    for (int64_t i = 0; i < n && !rc; i++) {
        int64_t i0 = i % t->ne[0], row[3];
        tensor_row_index(t, i / t->ne[0], row);
        if (spec->fill == FILL_INDEX)
            values[i] = (int32_t)rng_below(r, (uint64_t)spec->limit);
        else if (spec->fill != FILL_DISTINCT)
            values[i] = spec->fill == FILL_ZERO ? 0 : (int32_t)(i0 + (spec->fill == FILL_ASCENDING ? spec->limit : 0));
        memcpy((char *)tensor_row(t, row[0], row[1], row[2]) + (size_t)i0 * t->nb[0], &values[i], sizeof *values);
    }
    free(values);
    return rc;
}

/* ---- cases */

void case_free(struct case_run *c)
{
    for (int i = 0; i <= MAX_SRC; i++) {
        free(c->memory[i].bytes);
        free(c->memory[i].before);
        free(c->memory[i].element);
    }
    memset(c, 0, sizeof *c);
}

int case_fill(const struct tensor *t, const struct case_src *spec, uint64_t seed, struct hone_error *e)
{
    struct rng r = rng_seed(seed);
    return t->format == FORMAT_I32 ? fill_indices(t, spec, &r, e) : fill_floats(t, spec->fill, &r, e);
}

static int create_source(struct case_run *c, int i, const struct case_src *spec, uint64_t seed, struct hone_error *e)
{
    struct tensor *t = &c->src[i];
    t->kind = TENSOR_INPUT;
    t->name[0] = 's', t->name[1] = 'r', t->name[2] = 'c', t->name[3] = (char)('0' + i);
    int rc = place(t, &c->memory[i], lay_out(t, spec), e);
    if (!rc)
        rc = case_fill(t, spec, seed + (uint64_t)i * 0x9e3779b97f4a7c15u, e);
    c->node.src[i] = t;
    c->node.n_src = i + 1;
    return rc;
}

int case_create(struct case_run *c, enum op op, int i, uint64_t seed, struct hone_error *e)
{
    INVARIANT(i >= 0 && i < op_get(op)->n_cases);
    return case_create_from(c, op, &op_get(op)->cases[i], seed, e);
}

int case_create_from(struct case_run *c, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e)
{
    const struct op_desc *desc = op_get(op);
    memset(c, 0, sizeof *c);
    int rc = 0;
    for (int s = 0; s < MAX_SRC && !rc; s++)
        if (spec->src[s].fill != FILL_NONE)
            rc = create_source(c, s, &spec->src[s], seed, e);
    if (rc)
        goto done;
    c->node.op = op;
    c->node.layer = -1;
    c->node.out = &c->out;
    c->out.kind = TENSOR_VALUE;
    c->out.producer = &c->node;
    memcpy(c->out.name, "out", 4);
    if (spec->params)
        memcpy(c->node.params, spec->params, desc->params_size);
    rc = desc->shape(&c->node, e);
    if (!rc && c->out.base)
        c->out.data = (char *)c->out.base->data + c->out.offset;
    else if (!rc)
        rc = place(&c->out, &c->memory[MAX_SRC], 0, e);
    for (int m = 0; m <= MAX_SRC && !rc; m++)
        if (c->memory[m].size)
            memcpy(c->memory[m].before, c->memory[m].bytes, c->memory[m].size);
done:
    if (rc)
        case_free(c);
    return rc;
}

struct run {
    const struct node *node;
    struct pool *pool;
    char *scratch;
    size_t size; /* of one thread */
};

static void run_reference(void *arg, int ith, int nth)
{
    const struct run *r = arg;
    struct worker w = {ith, nth, r->pool, r->scratch + (size_t)ith * r->size, r->size};
    op_get(r->node->op)->reference(r->node, &w);
}

int case_reference(const struct case_run *c, struct pool *pool, struct hone_error *e)
{
    const struct op_desc *desc = op_get(c->node.op);
    struct run r = {.node = &c->node, .pool = pool};
    if (desc->alias)
        return 0;
    r.size = ((desc->scratch ? desc->scratch(&c->node) : 0) + 63) / 64 * 64;
    r.scratch = aligned_alloc(64, r.size * (size_t)pool_size(pool) + 64);
    if (!r.scratch)
        return err_set(e, HONE_ERESOURCE, "no memory for scratch of op %s: %zu bytes a thread", desc->name, r.size);
    pool_run(pool, run_reference, &r);
    free(r.scratch);
    return 0;
}

int case_damage(const struct case_run *c, struct hone_error *e)
{
    for (int m = 0; m <= MAX_SRC; m++) {
        const struct case_memory *memory = &c->memory[m];
        bool writable = m == MAX_SRC || c->out.base == &c->src[m] || node_updates(&c->node) == &c->src[m];
        for (size_t i = 0; i < memory->size; i++)
            if (memory->bytes[i] != memory->before[i] && !(writable && memory->element[i]))
                return err_set(e, HONE_ECHECK, "op %s wrote to %s %s, byte %lld", op_get(c->node.op)->name,
                               memory->element[i] ? "its source" : "what is no element of",
                               m == MAX_SRC ? c->out.name : c->src[m].name, (long long)i - GUARD);
    }
    return 0;
}

/* ---- comparing */

double tensor_nmse(const struct tensor *y, const struct tensor *ref, int64_t *worst)
{
    int64_t n = ref->ne[0], at = 0;
    double error = 0, energy = 0, largest = -1;
    float *room = malloc(2 * sizeof *room * (size_t)(n + 1));
    if (!room || !tensor_same_shape(y, ref))
        error = NAN;
    for (int64_t row = 0; row < tensor_rows(ref) && !isnan(error); row++) {
        int64_t i[3];
        tensor_row_index(ref, row, i);
        const float *a = tensor_read_row(y, i[0], i[1], i[2], room), *b = tensor_read_row(ref, i[0], i[1], i[2], room + n);
        for (int64_t j = 0; j < n && !isnan(error); j++) {
            double difference = (double)a[j] - (double)b[j];
            if ((isnan(a[j]) && isnan(b[j])) || a[j] == b[j])
                difference = 0; /* equal infinities too */
            if (fabs(difference) > largest || !isfinite(difference)) {
                largest = fabs(difference);
                at = row * n + j;
            }
            error += isfinite(difference) ? difference * difference : NAN;
            energy += isfinite(b[j]) ? (double)b[j] * (double)b[j] : 0;
        }
    }
    free(room);
    if (worst)
        *worst = at;
    return error == 0 ? 0 : error / energy;
}
