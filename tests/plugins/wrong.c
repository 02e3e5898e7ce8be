/* wrong.c: a plug-in of the tests: kernels that are right but for one fault, which `hone verify` must find. `right` is the
 * proof that what is found is the fault and not the plug-in. */
#include "hone_kernel.h"

#include <math.h>

static int fits(const struct hone_node *node, char *why, size_t size)
{
    (void)node;
    (void)why;
    (void)size;
    return 1;
}

static float *row_of(const struct hone_tensor *t, int64_t row)
{
    return (float *)((char *)t->data + row % t->ne[1] * t->nb[1] + row / t->ne[1] % t->ne[2] * t->nb[2] +
                     row / t->ne[1] / t->ne[2] * t->nb[3]);
}

static int add(const struct hone_node *node, int32_t ith, int32_t nth, float wrong)
{
    int64_t first, last;
    hone_share(hone_rows(node->out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++) {
        float *out = row_of(node->out, row), *a = row_of(node->src[0], row), *b = row_of(node->src[1], row);
        for (int64_t i = 0; i < node->out->ne[0]; i++)
            out[i] = a[i] + b[i];
        if (row == 0)
            out[5] += wrong;
    }
    return 0;
}

static int run_right(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    return add(node, ith, nth, 0);
}

/* One value of one row. */
static int run_one(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    return add(node, ith, nth, 0.01f);
}

/* Another value each time, also in another process: an address is as good as a die. */
static int run_unsteady(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    static int calls;
    uintptr_t die = (uintptr_t)&calls >> 12;
    (void)ctx;
    return add(node, ith, nth, (float)(die % 1000003) * 1e-9f);
}

static int run_norm(const struct hone_node *node, int32_t ith, int32_t nth, double factor)
{
    int64_t first, last;
    double eps = 0;
    for (int32_t p = 0; p < node->n_params; p++)
        if (!strcmp(node->params[p].name, "eps"))
            eps = node->params[p].number;
    hone_share(hone_rows(node->out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++) {
        const float *x = row_of(node->src[0], row), *w = row_of(node->src[1], 0);
        float *out = row_of(node->out, row);
        double sum = 0;
        int64_t n = node->out->ne[0];
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        double scale = factor / sqrt(sum / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((double)x[i] * scale * (double)w[i]);
    }
    return 0;
}

static int run_norm_right(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    return run_norm(node, ith, nth, 1);
}

static int run_norm_epsilon(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    return run_norm(node, ith, nth, 1 + 1e-5);
}

/* Every token is token 0, so the text is one token for ever. */
static int run_stuck(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    int64_t n = node->out->ne[0];
    if (ith == 0)
        for (int64_t row = 0; row < hone_rows(node->out); row++)
            memcpy(row_of(node->out, row), ctx->read_row(node->src[0], 0, 0, 0, ctx->scratch), (size_t)n * sizeof(float));
    (void)nth;
    return 0;
}

static uint64_t scratch_row(const struct hone_node *node)
{
    return sizeof(float) * (uint64_t)node->out->ne[0];
}

#define SIZE .size = sizeof(struct hone_kernel)
static const struct hone_kernel list[] = {
    {SIZE, .op = "add", .variant = "right", .fits = fits, .run = run_right},
    {SIZE, .op = "add", .variant = "one_wrong", .fits = fits, .run = run_one},
    {SIZE, .op = "add", .variant = "unsteady", .fits = fits, .run = run_unsteady},
    {SIZE, .op = "rms_norm_mul", .variant = "right", .fits = fits, .run = run_norm_right},
    {SIZE, .op = "rms_norm_mul", .variant = "epsilon", .fits = fits, .run = run_norm_epsilon},
    {SIZE, .op = "get_rows", .variant = "stuck", .layout = "any", .fits = fits, .scratch = scratch_row, .run = run_stuck},
};
static const struct hone_kernel *const kernels[] = {&list[0], &list[1], &list[2], &list[3], &list[4], &list[5], NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "wrong", .version = "1.0", .kernels = kernels};
