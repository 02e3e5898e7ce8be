/* gate_up_glu_s32.cu: gate and up products and their glu. For one token a warp has the rows of both, so that the glu is made
 * where the sums are; for more gate and up are one launch, and another joins (and quantises) them. */
#include "backends/cuda/a8.cuh"
#include "backends/cuda/product.cuh"

enum { WARPS = 8 };

struct glu_args {
    const float *gate, *up;
    float *out;
    uint8_t *quantized;                                          /* A8 rows, or NULL */
    size_t gate_stride, up_stride, out_stride, quantized_stride; /* floats; of A8, bytes */
    uint32_t width;
    int kind;
};

/* A warp 32 values of one row. */
static __global__ void __launch_bounds__(32 * WARPS) glu_rows(const __grid_constant__ struct glu_args a)
{
    uint32_t block = blockIdx.x * WARPS + (threadIdx.x >> 5), at = block * 32 + (threadIdx.x & 31);
    size_t row = blockIdx.y;
    cuda_release();
    cuda_wait();
    if (block * 32 >= a.width)
        return;
    float y = 0;
    if (at < a.width) {
        y = unary_value(a.kind, a.gate[row * a.gate_stride + at]) * a.up[row * a.up_stride + at];
        a.out[row * a.out_stride + at] = y;
    }
    if (a.quantized)
        a8_store_1((struct block_a8 *)(a.quantized + row * a.quantized_stride) + block, y);
}

/* The products and the glu, which may have a norm's parts before them. */
static struct node *const *pair_parts(const struct node *n)
{
    return n->parts + (n->parts[0]->op == OP_RMS_NORM ? 3 : 0);
}

static int glu_launch(const struct exec *x, const struct node *n, const struct tensor *to)
{
    const struct node *glu = pair_parts(n)[2];
    const struct tensor *gate = glu->src[0], *up = glu->src[1], *out = glu->out;
    struct glu_args a = {};
    a.gate = (const float *)gate->data;
    a.up = (const float *)up->data;
    a.out = (float *)out->data;
    a.gate_stride = gate->nb[1] / sizeof(float);
    a.up_stride = up->nb[1] / sizeof(float);
    a.out_stride = out->nb[1] / sizeof(float);
    a.quantized = to ? (uint8_t *)to->data : NULL;
    a.quantized_stride = to ? to->nb[1] : 0;
    a.width = (uint32_t)out->ne[0];
    a.kind = node_params(n, struct glu_params)->kind;
    int rc = 0;
    for (int64_t rows = tensor_rows(out), first = 0; first < rows && !rc;
         first += 32768) { /* a grid's second dimension ends at 65,535 */
        int64_t some = rows - first < 32768 ? rows - first : 32768;
        rc = cuda_launch(x, glu_rows, dim3((a.width + 32 * WARPS - 1) / (32 * WARPS), (unsigned)some), dim3(32 * WARPS), 0, a);
        a.gate += (size_t)some * a.gate_stride;
        a.up += (size_t)some * a.up_stride;
        a.out += (size_t)some * a.out_stride;
        a.quantized += a.quantized ? (size_t)some * a.quantized_stride : 0;
    }
    return rc;
}

/* Gate and up among the parts. */
static void products_of(const struct node *n, const struct node **gate, const struct node **up)
{
    struct node *const *parts = pair_parts(n);
    bool gate_first = parts[0]->out == parts[2]->src[0];
    *gate = parts[gate_first ? 0 : 1];
    *up = parts[gate_first ? 1 : 0];
}

bool product_gate_up_args(const struct node *n, struct product_args *a)
{
    const struct node *gate, *up;
    products_of(n, &gate, &up);
    if (up->src[0]->format != gate->src[0]->format)
        return false;
    product_args_of(gate, a);
    product_norm(n, a);
    product_args_add(up, a);
    return true;
}

void product_pair(const struct node *n, struct product_args *a)
{
    const struct node *products[2], *glu = pair_parts(n)[2];
    products_of(n, &products[0], &products[1]);
    a->pair = true;
    a->rows = a->matrix[0].rows;
    a->kind = node_params(n, struct glu_params)->kind;
    for (int i = 0; i < 2; i++)
        if (node_leaves(n, products[i]->out)) {
            a->matrix[i].alone = a->matrix[i].out;
            a->matrix[i].alone_stride = a->matrix[i].out_stride;
        }
    a->matrix[0].out = (float *)glu->out->data;
    a->matrix[0].out_stride = glu->out->nb[1] / sizeof(float);
}

int product_gate_up(const struct exec *x, const struct node *n, const struct tensor *to, product_runner *run)
{
    const struct node *glu = pair_parts(n)[2], *gate, *up;
    struct product_args a;
    products_of(n, &gate, &up);
    enum format_id format = gate->src[0]->format;
    if (!product_gate_up_args(n, &a)) {
        product_args_of(gate, &a);
        product_norm(n, &a);
        int rc = run(x, &a, format);
        product_args_of(up, &a);
        product_norm(n, &a);
        rc = rc ? rc : run(x, &a, up->src[0]->format);
        return rc ? rc : glu_launch(x, n, to);
    }
    if (a.tokens != 1) {
        int rc = run(x, &a, format);
        return rc ? rc : glu_launch(x, n, to);
    }
    product_pair(n, &a);
    if (to && product_format(format)->layout && product_quantizes(x, &a)) {
        a.quantized = (uint8_t *)to->data;
        a.matrix[0].out = node_leaves(n, glu->out) ? a.matrix[0].out : NULL;
        return product_format(format)->rows(x, &a, true);
    }
    int rc = product_format(format)->rows(x, &a, true);
    return rc || !to ? rc : product_quantize(x, glu->out, to);
}

static bool fits(const struct node *n, struct reason *r)
{
    return product_parts_fit(n, false, r) && product_linear(n->parts[2]->out, r);
}

static int run(const struct exec *x, const struct node *n)
{
    return product_gate_up(x, n, NULL, product_run);
}

CUDA_KERNEL(gate_up_glu_s32) = {.op = OP_GATE_UP_GLU,
                                .variant = "s32",
                                .needs = CUDA_SM90,
                                .wants = {.layout_for = product_layout, .quantized = true, .activation = FORMAT_A8},
                                .fits = fits,
                                .run = run};
