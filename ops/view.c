/* view.c: a window of a tensor's memory: other dimensions, strides and first byte, nothing moved.
 *
 * The rule that matters is that the window stays within the source's span, counted from the strides of both with every
 * product checked, for a view is where a wrong number from a file would become a read outside. Strides may overlap (a
 * convolution's window does). A packed source is refused: its bytes have no rows. A weight that is packed later must have
 * no views; that is the planner's to know. */
#include "ops/view.h"
#include "ops/ops.h"

/* Bytes from the first to behind the last byte of a window; false when the sum overflows. */
static bool view_span(const struct format *f, const int64_t ne[MAX_DIMS], const uint64_t nb[MAX_DIMS], uint64_t *span)
{
    uint64_t step, last = 0;
    for (int i = 0; i < MAX_DIMS; i++) {
        uint64_t steps = (uint64_t)(i == 0 ? ne[0] / f->block : ne[i]);
        if (steps == 0) {
            *span = 0;
            return true;
        }
        if (__builtin_mul_overflow(steps - 1, nb[i], &step) || __builtin_add_overflow(last, step, &last))
            return false;
    }
    return !__builtin_add_overflow(last, (uint64_t)f->bytes, span);
}

static int view_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_unpacked(n, 0, e);
    if (rc)
        return rc;
    const struct view_params *p = node_params(n, struct view_params);
    const struct tensor *src = n->src[0];
    const struct format *f = format_get(src->format);
    int64_t ne[MAX_DIMS];
    uint64_t nb[MAX_DIMS], span, end;
    char text[128];
    for (int i = 0; i < MAX_DIMS; i++)
        ne[i] = p->ne[i] ? p->ne[i] : 1;
    rc = op_set_out(n, src->format, ne, e);
    if (rc)
        return rc;
    for (int i = 0; i < MAX_DIMS; i++)
        nb[i] = p->nb[0] ? p->nb[i] : n->out->nb[i];
    if (nb[0] % (uint64_t)f->bytes != 0 || (f->block != 1 && nb[0] != (uint64_t)f->bytes))
        return op_refuse(n, e, "a stride of %llu bytes between blocks of %d in %s", (unsigned long long)nb[0], f->bytes,
                         tensor_describe(src, text, sizeof text));
    if (!view_span(f, ne, nb, &span) || __builtin_add_overflow(span, p->offset, &end) || end > tensor_nbytes(src))
        return op_refuse(n, e, "%s at byte %llu reaches outside of the %zu bytes of its source",
                         tensor_describe(n->out, text, sizeof text), (unsigned long long)p->offset, tensor_nbytes(src));
    for (int i = 0; i < MAX_DIMS; i++)
        n->out->nb[i] = nb[i];
    op_set_view(n, 0, p->offset);
    return 0;
}

static struct cost view_cost(const struct node *n)
{
    (void)n;
    return (struct cost){0};
}

/* Cases of an alias op check the shape rule and the addresses; there is nothing to run. */
static const struct op_case cases[] = {
    {"head", {{FORMAT_F32, {16, 5, 3}, FILL_NORMAL}}, &(const struct view_params){{16, 2, 3}, {4, 64, 320, 960}, 0}},
    {"column", {{FORMAT_F32, {16, 5, 3}, FILL_NORMAL}}, &(const struct view_params){{5, 3}, {64, 320, 960, 960}, 12}},
    {"window", {{FORMAT_F32, {40}, FILL_NORMAL}}, &(const struct view_params){{4, 37}, {4, 4, 148, 148}, 0}},
    {"blocks", {{FORMAT_Q8_0, {96, 4}, FILL_NORMAL}}, &(const struct view_params){{32, 4}, {34, 102, 408, 408}, 34}},
    {"contiguous", {{FORMAT_F16, {64, 4}, FILL_NORMAL}}, &(const struct view_params){{64, 2}, {0}, 256}},
    {"padded_source",
     {{FORMAT_F32, {7, 4}, FILL_NORMAL, STRIDES_PADDED}},
     &(const struct view_params){{7, 1}, {4, 28, 28, 28}, 0}},
};

const struct op_desc op_view = {
    .name = "view",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct view_params),
    .alias = true,
    .shape = view_shape,
    .cost = view_cost,
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
