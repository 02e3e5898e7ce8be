/* plain.cc: the plug-in header in C++: it compiles without a warning, and what is built with it loads and runs. */
#include "hone_kernel.h"

static int fits(const hone_node *node, char *, size_t)
{
    return !strcmp(node->op, "scale") && node->src[0]->nb[0] == sizeof(float) && hone_rows(node->out) == node->out->ne[1];
}

static int run(const hone_ctx *ctx, const hone_node *node, int32_t ith, int32_t nth)
{
    const float scale = static_cast<float>(hone_number(node, "scale", 0)), bias = static_cast<float>(hone_number(node, "bias", 0));
    int64_t first, last;
    hone_share(node->out->ne[1], 1, ith, nth, &first, &last);
    if (!HONE_HAS(ctx, read_row))
        return 1;
    for (int64_t row = first; row < last; row++) {
        const float *x = ctx->read_row(node->src[0], row, 0, 0, nullptr);
        float *y = reinterpret_cast<float *>(static_cast<char *>(node->out->data) + row * node->out->nb[1]);
        for (int64_t i = 0; i < node->out->ne[0]; i++)
            y[i] = x[i] * scale + bias;
    }
    return 0;
}

static const hone_kernel kernel = {sizeof(hone_kernel), 0,    "scale", "plain_cc", "f32", nullptr, nullptr,
                                   nullptr,             fits, nullptr, run,        nullptr};
static const hone_kernel *const kernels[] = {&kernel, nullptr};

const struct hone_plugin hone_plugin = {HONE_KERNEL_MAGIC, HONE_KERNEL_ABI, sizeof(struct hone_plugin), 0, "plain", "1", kernels, nullptr};
