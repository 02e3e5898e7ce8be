/* fuse_cases_norms.c: norms, plain and quantised, with the add before them and with readers outside. See fuse_parts.h. */
#include "graph/fuse_parts.h"

#include "ops/rms_norm.h"

struct norm_case {
    const char *name;
    int64_t width, rows, more;
    float eps;
    enum fill fill;
    bool add, sum_read, product_read, norm_read;
    bool collective; /* x is a sum over the ranks */
    enum format_id format; /* F32: not quantised */
};

static void build_norm_case(struct fuse_case *c, const void *spec)
{
    const struct norm_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x = {FORMAT_F32, {s->width, s->rows, s->more}, s->fill, STRIDES_PLAIN, 0};
    struct tensor *a = case_leaf(c, TENSOR_INPUT, "x", x), *b = s->add ? case_leaf(c, TENSOR_INPUT, "residual", x) : NULL;
    struct tensor *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->width);
    a = s->collective ? graph_op(g, OP_ALL_REDUCE, NULL, a) : a;
    struct tensor *sum = s->add ? graph_op(g, OP_ADD, NULL, a, b) : a;
    struct tensor *norm = graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){s->eps}), sum);
    struct tensor *product = graph_op(g, OP_MUL, NULL, norm, w);
    if (s->format != FORMAT_F32)
        case_quantized(c, product, s->format);
    if (s->sum_read)
        case_read(c, sum);
    if (s->norm_read)
        case_read(c, norm);
    if (s->product_read)
        case_read(c, product);
}

static const struct norm_case rms_norm_mul_cases[] = {
    {"one", 1, 1, 1, 1e-5f, FILL_NORMAL},
    {"decode_576", 576, 1, 1, 1e-5f, FILL_NORMAL},
    {"decode_5120", 5120, 1, 1, 1e-6f, FILL_NORMAL},
    {"batch_640", 640, 7, 1, 1e-6f, FILL_NORMAL},
    {"heads_256", 256, 4, 5, 1e-6f, FILL_NORMAL},
    {"heads_64", 64, 9, 3, 1e-6f, FILL_NORMAL},
    {"odd_tail", 1001, 3, 1, 1e-5f, FILL_NORMAL},
    {"narrow", 5, 4, 1, 1e-5f, FILL_NORMAL},
    {"norm_read_too", 77, 3, 1, 1e-5f, FILL_NORMAL, .norm_read = true},
    {"zeros", 96, 2, 1, 1e-6f, FILL_ZERO},
    {"hostile", 300, 9, 1, 1e-5f, FILL_HOSTILE},
};

static const struct norm_case add_rms_norm_mul_cases[] = {
    {"one", 1, 1, 1, 1e-5f, FILL_NORMAL, .add = true},
    {"decode_576", 576, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"decode_2048", 2048, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"batch_576", 576, 7, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"sum_not_read", 640, 3, 1, 1e-6f, FILL_NORMAL, .add = true},
    {"all_read", 130, 3, 1, 1e-6f, FILL_NORMAL, .add = true, .sum_read = true, .norm_read = true},
    {"odd_tail", 1001, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"hostile", 300, 9, 1, 1e-5f, FILL_HOSTILE, .add = true, .sum_read = true},
};

static const struct norm_case norm_quantize_cases[] = {
    {"decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"batch_576_a8", 576, 7, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"one_block_a8", 32, 3, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"product_read_a8", 640, 3, 1, 1e-6f, FILL_NORMAL, .product_read = true, .format = FORMAT_A8},
    {"zeros_a8", 96, 2, 1, 1e-6f, FILL_ZERO, .format = FORMAT_A8},
    {"hostile_a8", 320, 9, 1, 1e-5f, FILL_HOSTILE, .format = FORMAT_A8},
    {"batch_q8_0", 160, 5, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_Q8_0},
    {"batch_bf16", 77, 5, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_BF16},
    {"add_decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_decode_2048_a8", 2048, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_batch_2048_a8", 2048, 5, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_sum_not_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .format = FORMAT_A8},
    {"add_all_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .product_read = true, .norm_read = true,
     .format = FORMAT_A8},
    {"ranks_decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"ranks_batch_2048_a8", 2048, 5, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"ranks_sum_not_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .format = FORMAT_A8},
    {"ranks_all_read_q8_0", 320, 3, 1, 1e-5f, FILL_HOSTILE, .collective = true, .add = true, .sum_read = true, .product_read = true, .format = FORMAT_Q8_0},
    {"add_batch_q8_0", 160, 5, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_Q8_0},
};

FUSE_CASES(add_rms_norm_mul, build_norm_case, add_rms_norm_mul_cases);
FUSE_CASES(rms_norm_mul, build_norm_case, rms_norm_mul_cases);
FUSE_CASES(norm_quantize, build_norm_case, norm_quantize_cases);
