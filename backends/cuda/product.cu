/* product.cu: the host's side of the matrix products: which nodes they take, and a node's tensors as a launch sees them. */
#include "backends/cuda/product.cuh"

#include <stdlib.h>

extern "C" {
#include "ops/rms_norm.h"
}

#define X(ID, id)                                                                                                              \
    extern "C" {                                                                                                               \
    extern const struct product_format product_##id;                                                                           \
    }
S32_FORMATS(X)
X(F16, f16)
X(BF16, bf16)
X(F32, f32)
#undef X

const struct product_format *product_format(enum format_id format)
{
    switch (format) {
#define X(ID, id)                                                                                                              \
    case FORMAT_##ID:                                                                                                          \
        return &product_##id;
        S32_FORMATS(X)
        X(F16, f16)
        X(BF16, bf16)
        X(F32, f32)
#undef X
    default:
        return NULL;
    }
}

const struct layout *product_layout(enum format_id format)
{
    const struct product_format *f = product_format(format);
    return f ? f->layout : NULL;
}

/* What the kernels know of each stream: from the same constants that their loads use. */
static const int *product_bytes(enum format_id format)
{
    switch (format) {
#define X(ID, id)                                                                                                              \
    case FORMAT_##ID:                                                                                                          \
        return s32_##id::bytes;
        S32_FORMATS(X)
#undef X
    default:
        return NULL;
    }
}

bool product_linear(const struct tensor *t, struct reason *r)
{
    const struct format *f = format_get(t->format);
    if (t->nb[0] != (size_t)f->bytes)
        return fits_not(r, "the elements of a row of %.60s do not lie one behind the other", t->name);
    if (t->nb[1] % (f->bytes % 8 ? 4 : 8))
        return fits_not(r, "a row of %.60s begins at an odd place", t->name);
    if ((t->ne[2] > 1 && t->nb[2] != t->nb[1] * (size_t)t->ne[1]) ||
        (t->ne[3] > 1 && t->nb[3] != t->nb[1] * (size_t)(t->ne[1] * t->ne[2])))
        return fits_not(r, "the rows of %.60s are not equally far apart", t->name);
    return true;
}

/* W, whatever is multiplied with it. */
static bool weight_fits(const struct tensor *w, int64_t rows, bool single, struct reason *r)
{
    const struct product_format *f = product_format(w->format);
    if (!f || single != !f->layout)
        return fits_not(r, "%.60s is %s, which %s", w->name, format_get(w->format)->name,
                        single ? "has more than single values" : "has no s32 layout");
    if (w->kind != TENSOR_WEIGHT)
        return fits_not(r, "W is no weight of the model");
    if (!tensor_contiguous(w))
        return fits_not(r, "the rows of W do not lie one behind the other");
    if (w->ne[0] < 1 || rows < 1)
        return fits_not(r, "the matrix is empty");
    const char *refusal = f->layout ? f->layout->refuses(w->ne[0], rows) : NULL;
    if (refusal)
        return fits_not(r, "%s: %s", f->layout->name, refusal);
    if (w->ne[0] % f->values)
        return fits_not(r, "k is %lld, no multiple of %d", (long long)w->ne[0], f->values);
    if (w->ne[0] / 32 * (single ? 128 : 40) > PRODUCT_SHARED)
        return fits_not(r, "k is %lld, and a token of it fills shared memory", (long long)w->ne[0]);
    if (w->ne[0] / f->values > UINT32_MAX / rows)
        return fits_not(r, "W has more than 2^32 groups of values");
    return true;
}

static bool activation_fits(const struct tensor *x, bool single, struct reason *r)
{
    if (x->format != FORMAT_F32 && (single || x->format != FORMAT_A8))
        return fits_not(r, "X is %s", format_get(x->format)->name);
    if (x->format == FORMAT_F32 && !single)
        return true; /* it will be quantised */
    if (!product_linear(x, r))
        return false;
    if (single && (x->nb[1] % 16 || x->offset % 16))
        return fits_not(r, "a row of X begins at no multiple of 16 bytes");
    return true;
}

bool product_fits(const struct node *n, bool single, struct reason *r)
{
    const struct tensor *w = n->src[0];
    if (w->ne[2] != 1 || w->ne[3] != 1)
        return fits_not(r, "W is a batch of matrices");
    if (tensor_rows(n->out) > INT32_MAX / 2)
        return fits_not(r, "more tokens than 2^30");
    return weight_fits(w, w->ne[1], single, r) && activation_fits(n->src[1], single, r) && product_linear(n->out, r);
}

bool product_id_fits(const struct node *n, bool single, struct reason *r)
{
    const struct tensor *w = n->src[0], *bias = n->n_src > 3 ? n->src[3] : NULL;
    if (n->out->ne[1] * n->out->ne[2] > INT32_MAX / 2)
        return fits_not(r, "more pairs of a token and an expert than 2^30");
    if (bias && (bias->nb[0] != sizeof(float) || bias->nb[1] % sizeof(float)))
        return fits_not(r, "the elements of a bias do not lie one behind the other");
    return weight_fits(w, w->ne[1] * w->ne[2], single, r) && activation_fits(n->src[1], single, r) && product_linear(n->out, r);
}

bool product_parts_fit(const struct node *n, bool single, struct reason *r)
{
    for (int i = 0; i < n->n_parts; i++)
        if (n->parts[i]->op == OP_MUL_MAT && !product_fits(n->parts[i], single, r))
            return false;
    return true;
}

struct s32_matrix product_weight(const struct tensor *w)
{
    struct s32_matrix m = {};
    if (!product_layout(w->format)) {
        m.stream[0] = (const uint8_t *)w->data;
        return m;
    }
    const int *bytes = product_bytes(w->format);
    const struct format *f = format_get(w->format);
    int64_t blocks = w->ne[0] / f->block * w->ne[1] * w->ne[2] * w->ne[3];
    uint8_t of_block[S32_STREAMS];
    for (int i = 0; i < S32_STREAMS; i++)
        of_block[i] = (uint8_t)bytes[i];
    for (int i = 0; i < S32_STREAMS; i++)
        m.stream[i] = (const uint8_t *)w->data + s32_stream(of_block, blocks, i);
    return m;
}

void product_args_add(const struct node *n, struct product_args *a)
{
    const struct tensor *w = n->src[0], *out = n->out;
    struct product_matrix *m = &a->matrix[a->n_matrices++];
    *m = {};
    m->weight = product_weight(w);
    m->out = (float *)out->data;
    m->out_stride = out->nb[1] / sizeof(float);
    m->rows = (uint32_t)w->ne[1];
    a->rows += m->rows;
}

void product_args_of(const struct node *n, struct product_args *a)
{
    const struct tensor *x = n->src[1];
    *a = {};
    a->groups = (uint32_t)(x->ne[0] / product_format(n->src[0]->format)->values);
    a->tokens = (int)tensor_rows(x);
    a->x = (const uint8_t *)x->data;
    a->x_stride = x->nb[1];
    a->split = 1;
    a->name = n->out->name;
    product_args_add(n, a);
}

bool product_streams(size_t bytes)
{
    enum { UNKNOWN, NEVER, SMALL, ALWAYS };
    static int known = UNKNOWN;
    int when = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (when == UNKNOWN) {
        const char *word = getenv("HONE_CUDA_STREAM");
        when = !word || !*word || !strcmp(word, "0") ? NEVER : strcmp(word, "small") ? ALWAYS : SMALL;
        __atomic_store_n(&known, when, __ATOMIC_RELAXED);
    }
    return when == ALWAYS || (when == SMALL && bytes <= PRODUCT_STREAM);
}

size_t product_weight_bytes(const struct product_args *a, enum format_id format)
{
    const int *bytes = product_bytes(format);
    size_t rows = 0, row = 0;
    for (int i = 0; i < a->n_matrices; i++)
        rows += a->matrix[i].rows;
    if (!bytes)
        return rows * a->groups * 16;
    for (int i = 0; i < S32_STREAMS; i++)
        row += (size_t)bytes[i];
    return rows * (a->groups * 32 / (size_t)format_get(format)->block) * row;
}

bool product_norm_fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0], *w = n->src[1];
    size_t bytes = 0;
    for (int i = 2; i < n->n_src; i++)
        bytes += (size_t)n->src[i]->ne[1] * format_row_bytes(format_get(n->src[i]->format), n->src[i]->ne[0]);
    if (!product_streams(bytes))
        return fits_not(r, "weights of %.1f MB, which take longer than the norm", (double)bytes / 1e6);
    if (tensor_rows(x) != 1)
        return fits_not(r, "a batch of tokens, whose norm is made once");
    if (x->ne[0] > PRODUCT_NORM || (x->ne[0] > 2048 && x->ne[0] % 256) /* a row that cannot be cut in two may find no room */ || w->ne[0] != x->ne[0] || w->format != FORMAT_F32 || x->format != FORMAT_F32)
        return fits_not(r, "a norm of %lld values under a weight of %lld", (long long)x->ne[0], (long long)w->ne[0]);
    if (n->parts[2]->out->format != FORMAT_A8)
        return fits_not(r, "%.60s is no A8", n->parts[2]->out->name);
    if (x->nb[0] != sizeof(float) || w->nb[0] != sizeof(float) || x->offset % 16 || w->offset % 16)
        return fits_not(r, "the values of %.60s, or of its weight, do not lie one behind the other at a multiple of 16 bytes", x->name);
    for (int i = 0; i < 3; i++)
        if (node_leaves(n, n->parts[i]->out))
            return fits_not(r, "%.60s is read elsewhere too", n->parts[i]->out->name);
    return true;
}

void product_norm(const struct node *n, struct product_args *a)
{
    if (n->parts[0]->op != OP_RMS_NORM)
        return;
    a->x = (const uint8_t *)n->src[0]->data;
    a->norm = (const float *)n->src[1]->data;
    a->eps = node_params(n->parts[0], struct rms_norm_params)->eps;
}

int product_run(const struct exec *x, const struct product_args *a, enum format_id format)
{
    const struct product_format *f = product_format(format);
    if (a->tokens == 0)
        return 0;
    if ((uintptr_t)a->x % (f->layout ? 8 : 16))
        return cuda_fault("a matrix product's activation begins at %p, no multiple of %d bytes", (const void *)a->x,
                          f->layout ? 8 : 16);
    return a->tokens <= PRODUCT_DECODE ? f->rows(x, a, false) : f->tiles(x, a);
}

void product_advance(struct product_args *a)
{
    size_t done = (size_t)a->tokens;
    a->x += done * a->x_stride;
    for (int i = 0; i < a->n_matrices; i++) {
        struct product_matrix *m = &a->matrix[i];
        m->out += m->out ? done * m->out_stride : 0;
        if (m->add)
            m->add += done * m->add_stride;
        if (m->alone)
            m->alone += done * m->alone_stride;
    }
}

bool product_quantizes(const struct exec *x, const struct product_args *a)
{
    uint64_t units = (uint64_t)cuda_units(x->device), blocks = a->rows / 32, rounds = (blocks + units - 1) / units;
    return a->tokens == 1 && a->rows % 32 == 0 && rounds * units * 9 <= blocks * 10;
}

int product_resident(size_t shared, int most)
{
    size_t blocks = (226 << 10) / (shared + 2048); /* a multiprocessor has 227 KiB; a block takes one more for itself */
    return blocks < 1 ? 1 : blocks < (size_t)most ? (int)blocks : most;
}

int product_split(uint32_t rows, uint32_t groups, int blocks)
{
    int split = 1;
    while (split < 8 && (uint64_t)rows * (uint64_t)split * 2 <= (uint64_t)blocks * 8 && groups >= 64u * (uint32_t)split)
        split *= 2;
    return split;
}
