/* product_fine.cu: products of narrow weights, of an f32 activation that meets them in two terms of 8 bits (fine.cuh): 3e-10 of
 * normalised mean square where A8 alone errs by 2e-5.
 *
 * For whom: a model with rows as short as these is small. Its next token is decided by less, so 8-bit activations change it
 * more often, and its steps are bound by launches, not by what is multiplied. Rows of 2,048 values and more, those of models of
 * a billion weights on, keep A8.
 *
 * One to eight tokens go one by one by rows (matvec.cuh); more by tiles (matmul.cuh) of A8, once for each term, the second
 * added to what the first left. */
#include "backends/cuda/fine.cuh"
#include "backends/cuda/matvec.cuh"

enum { FINE_K = 2048, SPLIT_WARPS = 8 };

/* Largest error that is no fault: what two terms leave of a value, in three products at most. */
#define FINE_TOLERANCE 1e-8

/* ---- by rows */

template <class F> static int launch(const struct exec *x, struct product_args a, bool pair)
{
    typedef fine<F> G;
    size_t shared = mv_staged<G, 1>(a.groups) + MV_SUMS * sizeof(float);
    int blocks = cuda_units(x->device) * product_resident(shared, mv_resident<G, 1>);
    a.split = product_split(a.rows, a.groups, blocks);
    uint32_t share = PRODUCT_WARPS / a.split, needed = (a.rows + share - 1) / share;
    dim3 grid(needed < (uint32_t)blocks ? needed : (uint32_t)blocks), threads(32 * PRODUCT_WARPS);
    return pair ? cuda_launch(x, matvec<G, 1, true, false>, grid, threads, shared, a)
                : cuda_launch(x, matvec<G, 1, false, false>, grid, threads, shared, a);
}

static int one_token(const struct exec *x, const struct product_args *a, enum format_id format, bool pair)
{
    switch (format) {
#define X(ID, id)                                                                                                              \
    case FORMAT_##ID:                                                                                                          \
        return launch<s32_##id>(x, *a, pair);
        S32_FORMATS(X)
#undef X
    default:
        return cuda_fault("a format without s32 layout in product_fine");
    }
}

/* ---- by tiles */

struct split_args {
    const uint8_t *from;
    uint8_t *to[2]; /* both terms, as A8 */
    size_t stride;
    uint32_t groups; /* of a row */
    uint64_t all;
};

/* Eight lanes a group. */
static __global__ void __launch_bounds__(32 * SPLIT_WARPS) fine_split(const __grid_constant__ struct split_args a)
{
    uint64_t g = ((uint64_t)blockIdx.x * SPLIT_WARPS * 32 + threadIdx.x) / 8, at = g < a.all ? g : a.all - 1;
    cuda_release();
    cuda_wait();
    const uint8_t *row = a.from + at / a.groups * a.stride;
    float4 x = __ldcg((const float4 *)row + at % a.groups * 8 + threadIdx.x % 8);
    float4 left = a8_left(x, a8_part_of(x));
    a8_store_4(g < a.all ? (struct block_a8 *)a.to[0] + g : NULL, x);
    a8_store_4(g < a.all ? (struct block_a8 *)a.to[1] + g : NULL, left);
}

static size_t term_bytes(int64_t tokens, int64_t groups)
{
    return ((size_t)tokens * (size_t)groups * sizeof(struct block_a8) + 255) / 256 * 256;
}

static int many_tokens(const struct exec *x, const struct product_args *a, enum format_id format)
{
    struct split_args s = {a->x, {}, a->x_stride, a->groups, (uint64_t)a->tokens * a->groups};
    for (int i = 0; i < 2; i++)
        s.to[i] = (uint8_t *)x->shared + (size_t)i * term_bytes(a->tokens, a->groups);
    const uint64_t a_block = SPLIT_WARPS * 4;
    int rc = cuda_launch(x, fine_split, dim3((unsigned)((s.all + a_block - 1) / a_block)), dim3(32 * SPLIT_WARPS), 0, s);
    for (int i = 0; i < 2 && !rc; i++) {
        struct product_args b = *a;
        b.x = s.to[i];
        b.x_stride = a->groups * sizeof(struct block_a8);
        for (int j = 0; j < b.n_matrices && i; j++) {
            b.matrix[j].add = b.matrix[j].out;
            b.matrix[j].add_stride = b.matrix[j].out_stride;
        }
        rc = product_run(x, &b, format);
    }
    return rc;
}

static size_t room(const struct node *n)
{
    int64_t tokens = tensor_rows(n->src[1]);
    return tokens > PRODUCT_DECODE ? 2 * term_bytes(tokens, n->src[1]->ne[0] / 32) : 0;
}

static int any_tokens(const struct exec *x, const struct product_args *a, enum format_id format)
{
    if (a->tokens > PRODUCT_DECODE)
        return many_tokens(x, a, format);
    struct product_args one = *a;
    one.tokens = 1;
    int rc = 0;
    for (int i = 0; i < a->tokens && !rc; i++) {
        rc = one_token(x, &one, format, false);
        product_advance(&one);
    }
    return rc;
}

/* ---- the nodes */

/* Of a product, or a fused node of some: W is the first source, X the second. */
static bool narrow(const struct node *n, struct reason *r)
{
    const struct tensor *w = n->src[0], *x = n->src[1];
    if (w->slice)
        return fits_not(r, "%.60s is a rank's part of a weight: its rows do not say how long those of the model are", w->name);
    if (w->ne[0] >= FINE_K)
        return fits_not(r, "rows of %lld values, not of fewer than %d", (long long)w->ne[0], FINE_K);
    if (x->format != FORMAT_F32)
        return fits_not(r, "X is %s", format_get(x->format)->name);
    if (!product_linear(x, r))
        return false;
    if (x->nb[1] % 16 || x->offset % 16)
        return fits_not(r, "a row of X begins at no multiple of 16 bytes");
    return true;
}

static bool fits(const struct node *n, struct reason *r)
{
    return narrow(n, r) && product_fits(n, false, r);
}

static int run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    product_args_of(n, &a);
    return any_tokens(x, &a, n->src[0]->format);
}

static bool group_fits(const struct node *n, struct reason *r)
{
    return narrow(n, r) && product_parts_fit(n, false, r);
}

static int group_run(const struct exec *x, const struct node *n)
{
    return product_group(x, n, any_tokens);
}

static bool add_fits(const struct node *n, struct reason *r)
{
    if (tensor_rows(n->src[1]) > PRODUCT_DECODE && node_leaves(n, n->parts[0]->out))
        return fits_not(r, "%.60s is read elsewhere too, and made in two terms", n->parts[0]->out->name);
    return narrow(n, r) && product_parts_fit(n, false, r) && product_linear(n->src[2], r) && product_linear(n->out, r);
}

static int add_run(const struct exec *x, const struct node *n)
{
    return product_add(x, n, any_tokens);
}

static bool glu_fits(const struct node *n, struct reason *r)
{
    if (node_params(n, struct glu_params)->kind == UNARY_EXP)
        return fits_not(r, "exp makes of an error a share of the result, and two terms leave some");
    return narrow(n, r) && product_parts_fit(n, false, r) && product_linear(n->parts[2]->out, r);
}

static int glu_run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    if (tensor_rows(n->src[1]) != 1 || !product_gate_up_args(n, &a))
        return product_gate_up(x, n, NULL, any_tokens);
    product_pair(n, &a);
    return one_token(x, &a, n->src[0]->format, true);
}

#define WANTS                                                                                                                  \
    {                                                                                                                          \
        .layout_for = product_layout                                                                                           \
    }

CUDA_KERNEL(mul_mat_fine) = {.op = OP_MUL_MAT,
                             .variant = "fine",
                             .needs = CUDA_SM90,
                             .wants = WANTS,
                             .tolerance = FINE_TOLERANCE,
                             .fits = fits,
                             .shared = room,
                             .run = run};

CUDA_KERNEL(mul_mat_group_fine) = {.op = OP_MUL_MAT_GROUP,
                                   .variant = "fine",
                                   .needs = CUDA_SM90,
                                   .wants = WANTS,
                                   .tolerance = FINE_TOLERANCE,
                                   .fits = group_fits,
                                   .shared = room,
                                   .run = group_run};

CUDA_KERNEL(mul_mat_add_fine) = {.op = OP_MUL_MAT_ADD,
                                 .variant = "fine",
                                 .needs = CUDA_SM90,
                                 .wants = WANTS,
                                 .tolerance = FINE_TOLERANCE,
                                 .fits = add_fits,
                                 .shared = room,
                                 .run = add_run};

CUDA_KERNEL(gate_up_glu_fine) = {.op = OP_GATE_UP_GLU,
                                 .variant = "fine",
                                 .needs = CUDA_SM90,
                                 .wants = WANTS,
                                 .tolerance = FINE_TOLERANCE,
                                 .fits = glu_fits,
                                 .shared = room,
                                 .run = glu_run};
