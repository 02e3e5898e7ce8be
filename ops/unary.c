/* unary.c: out = f(src[0]), elementwise, f32: the activation functions. Each is computed in double from its definition in
 * unary.h, in a form that neither overflows nor cancels: softplus is max(x, 0) + log1p(exp(-|x|)), and where exp(-x) is
 * infinite the quotients of silu and sigmoid become zero by themselves. */
#include "ops/unary.h"
#include "ops/rows.h"

#include <math.h>

double unary_eval(enum unary_kind kind, double x)
{
    switch (kind) {
    case UNARY_SILU:
        return x / (1 + exp(-x));
    case UNARY_GELU:
        return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case UNARY_GELU_ERF:
        return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case UNARY_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case UNARY_RELU:
        return x > 0 ? x : isnan(x) ? x : 0;
    case UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    case UNARY_TANH:
        return tanh(x);
    case UNARY_EXP:
        return exp(x);
    case UNARY_NEG:
        return -x;
    case UNARY_SOFTPLUS:
        return (x > 0 ? x : isnan(x) ? x : 0) + log1p(exp(-fabs(x)));
    case N_UNARY:
        break;
    }
    return NAN;
}

const char *unary_word(int32_t kind)
{
#define X(NAME, name) #name,
    static const char *const words[] = {UNARY_KINDS(X)};
#undef X
    return kind >= 0 && kind < N_UNARY ? words[kind] : NULL;
}

static void unary_row(const struct node *node, const float *a, const float *b, int64_t n_b, float *y, int64_t n)
{
    (void)b;
    (void)n_b;
    enum unary_kind kind = (enum unary_kind)node_params(node, struct unary_params)->kind;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)unary_eval(kind, (double)a[i]);
}

static void unary_reference(const struct node *n, const struct worker *w)
{
    rows_reference(n, w, unary_row);
}

static int unary_shape(struct node *n, struct hone_error *e)
{
    int32_t kind = node_params(n, struct unary_params)->kind;
    if (kind < 0 || kind >= N_UNARY)
        return op_refuse(n, e, "unknown function %d", kind);
    return rows_shape(n, e);
}

/* What vector code needs for an exponential; the exact number matters to no bound, these ops are bound by memory. */
static struct cost unary_cost(const struct node *n)
{
    return cost_elementwise(n, 20);
}

#define X(NAME, name)                                                                                                          \
    {#name, {{FORMAT_F32, {131, 3}, FILL_NORMAL}}, &(const struct unary_params){UNARY_##NAME}},                                \
        {#name "_one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct unary_params){UNARY_##NAME}},                          \
        {#name "_padded", {{FORMAT_F32, {30, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct unary_params){UNARY_##NAME}},

static const struct op_case cases[] = {
    UNARY_KINDS(X)
    /* Values of 1e4 in, the ends of each function out; exp alone has no finite result there. */
    {"silu_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_SILU}},
    {"gelu_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_GELU}},
    {"gelu_erf_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_GELU_ERF}},
    {"gelu_quick_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_GELU_QUICK}},
    {"relu_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_RELU}},
    {"sigmoid_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_SIGMOID}},
    {"tanh_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_TANH}},
    {"softplus_hostile", {{FORMAT_F32, {300, 5}, FILL_HOSTILE}}, &(const struct unary_params){UNARY_SOFTPLUS}},
    {"transposed", {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct unary_params){UNARY_SILU}},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct unary_params){UNARY_SILU}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct unary_params){UNARY_SILU}},
    {"one_long_row", {{FORMAT_F32, {6144}, FILL_NORMAL}}, &(const struct unary_params){UNARY_SILU}},
};
#undef X

static const struct op_param params[] = {{OP_WORD(struct unary_params, kind, unary_word)}, {NULL}};

const struct op_desc op_unary = {
    .name = "unary",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct unary_params),
    .params = params,
    .shape = unary_shape,
    .reference = unary_reference,
    .scratch = rows_scratch,
    .cost = unary_cost,
    /* A polynomial exponential in f32 may err by some units in the last place (each 1.2e-7 of the value), and by |x| of them
     * where the argument itself was rounded: 3e-6 squared. */
    .tolerance = 1e-11,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
