/* product_halves.cu: the kernels that multiply halves (halves.cuh): which nodes they take, the activation made ready, and the
 * launches.
 *
 * They come behind those of 8-bit integers in the table and take what has many tokens. What they read is the same: s32 layouts
 * and A8, so nothing else in a plan changes with the number of tokens. An A8 value is its code times a scale of 24 bits, and
 * rounding it to f16 errs by 2^-12 of it. Each token is multiplied by a power of two that
 * brings its largest scale near one, since f16 ends at 65504 and has few bits below 2^-14.
 *
 * bf16 needs no such factor, but errs by 5.7e-6 (normalised mean square) where f16 errs by 7.7e-8, in a product of 5120 x 17408
 * in Q4_0. */
#include "backends/cuda/a8.cuh"
#include "backends/cuda/halves.h"
#include "backends/cuda/product.cuh"
#include "backends/cuda/reduce.cuh"

#include <cuda_fp16.h>

enum { CONVERT_THREADS = 256 };

/* Largest error that is not a fault: weights and values rounded to 11 bits, K-quants' scales too. */
#define HALVES_TOLERANCE 1e-6

static const struct halves_format *halves_format_of(enum format_id format)
{
    switch (format) {
#define X(ID, id)                                                                                                              \
    case FORMAT_##ID:                                                                                                          \
        return &halves_##id;
        HALVES_FORMATS(X)
#undef X
    default:
        return NULL;
    }
}

/* ---- the activation */

struct convert_args {
    const uint8_t *from;
    size_t stride;
    uint8_t *to;
    float *undo;
    uint32_t *flag;
    uint32_t groups;
    int width;
};

/* A block a token. A thread writes 16 bytes at a time, eight values that a product step wants side by side (halves.cuh): of
 * each of the four groups of a step, two. */
static __global__ void __launch_bounds__(CONVERT_THREADS) halves_convert(const __grid_constant__ struct convert_args a)
{
    __shared__ float room[32];
    const uint32_t token = blockIdx.x, in_tile = token % (uint32_t)a.width;
    const uint8_t *from = a.from + (size_t)token * a.stride;
    uint8_t *to = a.to + (size_t)(token / (uint32_t)a.width) * a.width * a.groups * 64;
    cuda_release();
    cuda_wait();
    float most = 0;
    for (uint32_t g = threadIdx.x; g < a.groups; g += CONVERT_THREADS)
        most = fmaxf(most, *(const float *)(from + (size_t)g * sizeof(struct block_a8))); /* NaNs stay where they are */
    most = block_max(most, room);
    /* 127 d < 2^(e + 8) becomes less than 2^15: by 2^(7 - e), whose own exponent has the bits 261 - (e + 127). */
    uint32_t exponent = __float_as_uint(most) >> 23;
    float factor = exponent ? __uint_as_float((261 - exponent) << 23) : 1;
    if (threadIdx.x == 0)
        a.undo[token] = exponent ? __uint_as_float((exponent - 7) << 23) : 1;
    if (token == 0 && threadIdx.x < HALVES_MOST)
        a.flag[threadIdx.x] = 0;
    for (uint32_t p = threadIdx.x; p < a.groups * 4; p += CONVERT_THREADS) {
        uint32_t j = p % 16 / 2, upper = p % 2, word[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint8_t *block = from + (size_t)(p / 16 * 4 + c) * sizeof(struct block_a8);
            float d = *(const float *)block * factor;
            uint32_t q = *(const uint16_t *)(block + 8 + 4 * j + 2 * upper);
            __half2 h = __floats2half2_rn(d * (float)(int8_t)q, d * (float)(int8_t)(q >> 8));
            memcpy(&word[c], &h, sizeof h);
        }
        *(uint4 *)(to + ((size_t)(p / 8) * a.width + in_tile) * 128 + (p % 8 ^ in_tile % 8) * 16) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static struct halves_room room_of(void *shared, const struct product_args *a)
{
    struct halves_room r = {};
    size_t tokens = (size_t)a->tokens, wide = (tokens + 255) / 256 * 256, narrow = (tokens + 127) / 128 * 128;
    r.width = narrow * 4 <= wide * 3 ? 128 : 256;
    size_t padded = r.width == 256 ? wide : narrow;
    uint64_t parts = (uint64_t)product_tiles(a, HALVES_ROWS) * (padded / (size_t)r.width) * (a->groups / 4) / HALVES_STEPS + 2;
    r.x = (uint8_t *)shared;
    r.bytes = aligned(padded * a->groups * 64);
    r.undo = (float *)((uint8_t *)shared + r.bytes);
    r.bytes += aligned(padded * sizeof(float));
    r.flag = (uint32_t *)((uint8_t *)shared + r.bytes);
    r.bytes += aligned(HALVES_MOST * sizeof(uint32_t));
    r.partial = (float *)((uint8_t *)shared + r.bytes);
    r.bytes += (size_t)(parts < HALVES_MOST ? parts : HALVES_MOST) * HALVES_ROWS * (size_t)r.width * sizeof(float);
    return r;
}

static int halves_product_run(const struct exec *x, const struct product_args *a, enum format_id format)
{
    if (a->tokens == 0)
        return 0;
    struct halves_room room = room_of(x->shared, a);
    struct convert_args c = {a->x, a->x_stride, room.x, room.undo, room.flag, a->groups, room.width};
    int rc = cuda_launch(x, halves_convert, dim3((unsigned)a->tokens), dim3(CONVERT_THREADS), 0, c);
    return rc ? rc : halves_format_of(format)->run(x, a, &room);
}

/* ---- the kernels */

static bool product_fits_halves(const struct node *n, struct reason *r)
{
    const struct tensor *w = n->src[0], *x = n->src[1];
    if (!halves_format_of(w->format))
        return fits_not(r, "%.60s is %s", w->name, format_get(w->format)->name);
    if (w->ne[0] % HALVES_DEPTH)
        return fits_not(r, "k is %lld, no multiple of %d", (long long)w->ne[0], HALVES_DEPTH);
    if (tensor_rows(x) < HALVES_FEWEST)
        return fits_not(r, "%lld tokens are fewer than %d", (long long)tensor_rows(x), HALVES_FEWEST);
    return product_fits(n, false, r);
}

static bool parts_fit(const struct node *n, struct reason *r)
{
    for (int i = 0; i < n->n_parts; i++)
        if (n->parts[i]->op == OP_MUL_MAT && !product_fits_halves(n->parts[i], r))
            return false;
    return true;
}

static size_t shared_of_parts(const struct node *n)
{
    struct product_args a = {};
    for (int i = 0; i < n->n_parts; i++)
        if (n->parts[i]->op == OP_MUL_MAT) {
            if (a.n_matrices == 0)
                product_args_of(n->parts[i], &a);
            else
                product_args_add(n->parts[i], &a);
        }
    return room_of(NULL, &a).bytes;
}

static size_t shared_of_one(const struct node *n)
{
    struct product_args a;
    product_args_of(n, &a);
    return room_of(NULL, &a).bytes;
}

static int run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    product_args_of(n, &a);
    return halves_product_run(x, &a, n->src[0]->format);
}

static int group_run(const struct exec *x, const struct node *n)
{
    return product_group(x, n, halves_product_run);
}

static bool add_fits(const struct node *n, struct reason *r)
{
    return parts_fit(n, r) && product_linear(n->src[2], r) && product_linear(n->out, r);
}

static int add_run(const struct exec *x, const struct node *n)
{
    return product_add(x, n, halves_product_run);
}

static bool glu_fits(const struct node *n, struct reason *r)
{
    return parts_fit(n, r) && product_linear(n->parts[2]->out, r);
}

/* Gate and up of one format are a pair, whose glu is made where the sums are; of SiLU alone: code for every kind, for
 * each of a lane's 64 sums, would be long. */
static int gate_up(const struct exec *x, const struct node *n, const struct tensor *to)
{
    struct product_args a;
    if (node_params(n, struct glu_params)->kind != UNARY_SILU || !product_gate_up_args(n, &a))
        return product_gate_up(x, n, to, halves_product_run);
    product_pair(n, &a);
    int rc = halves_product_run(x, &a, n->parts[0]->src[0]->format);
    return rc || !to ? rc : product_quantize(x, n->parts[2]->out, to);
}

static int glu_run(const struct exec *x, const struct node *n)
{
    return gate_up(x, n, NULL);
}

static bool glu_quantize_fits(const struct node *n, struct reason *r)
{
    const struct tensor *to = n->parts[3]->out;
    if (to->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", to->name, format_get(to->format)->name);
    return glu_fits(n, r) && product_linear(to, r);
}

static int glu_quantize_run(const struct exec *x, const struct node *n)
{
    return gate_up(x, n, n->parts[3]->out);
}

static bool linear_fits(const struct node *n, struct reason *r)
{
    const struct tensor *quantized = n->parts[0]->out;
    if (quantized->format != FORMAT_A8)
        return fits_not(r, "%.60s is %s, not A8", quantized->name, format_get(quantized->format)->name);
    return (n->n_src < 3 || product_linear(n->src[2], r)) && product_linear(n->out, r) && parts_fit(n, r);
}

static int linear_run(const struct exec *x, const struct node *n)
{
    struct product_args a;
    int rc = product_quantize(x, n->src[1], n->parts[0]->out);
    product_args_of_linear(n, &a);
    return rc ? rc : halves_product_run(x, &a, n->src[0]->format);
}

#define WANTS                                                                                                                  \
    {                                                                                                                          \
        .layout_for = product_layout, .quantized = true, .activation = FORMAT_A8                                               \
    }
#define WANTS_LAYOUT                                                                                                           \
    {                                                                                                                          \
        .layout_for = product_layout                                                                                           \
    }

CUDA_KERNEL(mul_mat_halves) = {.op = OP_MUL_MAT,
                               .variant = "halves",
                               .needs = CUDA_SM90,
                               .wants = WANTS,
                               .tolerance = HALVES_TOLERANCE,
                               .fits = product_fits_halves,
                               .shared = shared_of_one,
                               .run = run};

CUDA_KERNEL(mul_mat_group_halves) = {.op = OP_MUL_MAT_GROUP,
                                     .variant = "halves",
                                     .needs = CUDA_SM90,
                                     .wants = WANTS,
                                     .tolerance = HALVES_TOLERANCE,
                                     .fits = parts_fit,
                                     .shared = shared_of_parts,
                                     .run = group_run};

CUDA_KERNEL(mul_mat_add_halves) = {.op = OP_MUL_MAT_ADD,
                                   .variant = "halves",
                                   .needs = CUDA_SM90,
                                   .wants = WANTS,
                                   .tolerance = HALVES_TOLERANCE,
                                   .fits = add_fits,
                                   .shared = shared_of_parts,
                                   .run = add_run};

CUDA_KERNEL(gate_up_glu_halves) = {.op = OP_GATE_UP_GLU,
                                   .variant = "halves",
                                   .needs = CUDA_SM90,
                                   .wants = WANTS,
                                   .tolerance = 2 * HALVES_TOLERANCE /* a product of two */,
                                   .fits = glu_fits,
                                   .shared = shared_of_parts,
                                   .run = glu_run};

CUDA_KERNEL(gate_up_glu_quantize_halves) = {.op = OP_GATE_UP_GLU_QUANTIZE,
                                            .variant = "halves",
                                            .needs = CUDA_SM90,
                                            .wants = WANTS,
                                            .tolerance = HALVES_TOLERANCE,
                                            .fits = glu_quantize_fits,
                                            .shared = shared_of_parts,
                                            .run = glu_quantize_run};

CUDA_KERNEL(linear_halves) = {.op = OP_LINEAR,
                              .variant = "halves",
                              .needs = CUDA_SM90,
                              .wants = WANTS_LAYOUT,
                              .tolerance = HALVES_TOLERANCE,
                              .fits = linear_fits,
                              .shared = shared_of_parts,
                              .run = linear_run};
