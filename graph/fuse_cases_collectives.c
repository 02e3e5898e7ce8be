/* fuse_cases_collectives.c: sums over ranks and what follows them. See fuse_parts.h. */
#include "graph/fuse_parts.h"

#include "ops/rms_norm.h"

struct collective_case {
    const char *name;
    int64_t width, rows;
    int64_t ids;     /* of all_reduce_get_rows */
    bool reshaped;   /* a reshape stands between the collective and its reader */
    bool sum_second; /* the sum is the add's second source */
    bool sum_read;   /* the add's result is read elsewhere too, as a residual is */
    bool norm, product_read;
    enum format_id format; /* of the norm's result; F32: not quantised */
    enum fill fill;
};

static void build_collective_case(struct fuse_case *c, const void *spec)
{
    const struct collective_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x = {FORMAT_F32, {s->width, s->rows}, s->fill ? s->fill : FILL_NORMAL, STRIDES_PLAIN, 0};
    struct tensor *sum = graph_op(g, OP_ALL_REDUCE, NULL, case_leaf(c, TENSOR_INPUT, "partial", x));
    if (s->reshaped) { /* as of heads put side by side and apart again */
        sum = graph_reshape(g, sum, 1, s->width, s->rows, 0);
        sum = graph_reshape(g, sum, s->width, s->rows, 0, 0);
    }
    if (s->ids) {
        graph_op(g, OP_GET_ROWS, NULL, sum, LEAF(INPUT, "outputs", FORMAT_I32, INDEX, s->rows, s->ids));
        return;
    }
    struct tensor *residual = case_leaf(c, TENSOR_INPUT, "residual", x);
    sum = s->sum_second ? graph_op(g, OP_ADD, NULL, residual, sum) : graph_op(g, OP_ADD, NULL, sum, residual);
    if (!s->norm)
        return;
    struct tensor *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->width);
    struct tensor *product = graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-5f}), sum), w);
    if (s->format != FORMAT_F32)
        case_quantized(c, product, s->format);
    if (s->sum_read)
        case_read(c, sum);
    if (s->product_read)
        case_read(c, product);
}

static const struct collective_case all_reduce_add_cases[] = {
    {"one", 1, 1},
    {"decode_576", 576, 1},
    {"decode_5120", 5120, 1},
    {"batch_2048", 2048, 5},
    {"odd_tail", 1001, 3, .sum_second = true},
    {"reshaped", 576, 1, .reshaped = true},
    {"reshaped_batch", 130, 7, .reshaped = true, .sum_second = true},
    {"hostile", 300, 9, .fill = FILL_HOSTILE},
};

static const struct collective_case all_reduce_get_rows_cases[] = {
    {"one", 1, 1, .ids = 1},
    {"decode_576", 576, 1, .ids = 1},
    {"decode_5120", 5120, 1, .ids = 1},
    {"last_of_7", 2048, 7, .ids = 1},
    {"some_of_21", 1001, 21, .ids = 9},
    {"reshaped", 640, 3, .ids = 2, .reshaped = true},
    {"hostile", 300, 9, .ids = 4, .fill = FILL_HOSTILE},
};

static const struct collective_case all_reduce_add_rms_norm_cases[] = {
    {"one", 1, 1, .norm = true},
    {"decode_576", 576, 1, .norm = true, .sum_read = true},
    {"decode_5120", 5120, 1, .norm = true, .sum_read = true},
    {"batch_2048", 2048, 5, .norm = true, .sum_read = true},
    {"sum_not_read", 640, 3, .norm = true},
    {"odd_tail", 1001, 3, .norm = true, .sum_read = true, .sum_second = true},
    {"reshaped", 130, 7, .norm = true, .sum_read = true, .reshaped = true},
    {"hostile", 300, 9, .norm = true, .sum_read = true, .fill = FILL_HOSTILE},
};

FUSE_CASES(all_reduce_add_rms_norm, build_collective_case, all_reduce_add_rms_norm_cases);
FUSE_CASES(all_reduce_get_rows, build_collective_case, all_reduce_get_rows_cases);
FUSE_CASES(all_reduce_add, build_collective_case, all_reduce_add_cases);
