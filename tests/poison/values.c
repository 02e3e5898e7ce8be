/* values.c: norms, sums, copies, lookups, quantisation and a fused norm gone wrong, each in one way. */
#include "poison.h"

#include <math.h>

#define NORMS(X)                                                                                                               \
    X(right)                                                                                                                   \
    X(other_epsilon)   /* that of another norm */                                                                              \
    X(sum_misplaced)   /* the sum of squares is set to zero before the rows, not before each row */                            \
    X(flat_stride)     /* takes rows to lie one behind the other */                                                            \
    X(half_thread)     /* each thread norms its half of a row by itself */                                                     \
    X(scratch_overrun) /* declares one float too few */

#define FUSED(X)                                                                                                               \
    X(fused_right)                                                                                                             \
    X(fused_epsilon) /* epsilon from elsewhere */                                                                              \
    X(sum_not_left)  /* the sum that others read is not written */                                                             \
    X(summand_lost)  /* norms the first summand */

#define ADDS(X)                                                                                                                \
    X(add_right)                                                                                                               \
    X(add_flat)      /* ignores the strides of the second summand */                                                           \
    X(add_broadcast) /* takes the second summand to have as many rows */

#define COPIES(X)                                                                                                              \
    X(copy_right)                                                                                                              \
    X(negative_zero) /* comes out as zero */                                                                                   \
    X(half_denormal) /* denormal halves become zero */

#define LOOKUPS(X)                                                                                                             \
    X(get_right)                                                                                                               \
    X(get_unchecked) /* reads whatever row an id names */                                                                      \
    X(get_denormal)  /* denormal halves of the table become zero */

#define QUANTIZES(X)                                                                                                           \
    X(quantize_right)                                                                                                          \
    X(quantize_sums) /* the sums of the codes' halves are exchanged */                                                         \
    X(quantize_down) /* rounds toward zero */

#define FAULT(name) FAULT_##name,
enum fault { NORMS(FAULT) FUSED(FAULT) ADDS(FAULT) COPIES(FAULT) LOOKUPS(FAULT) QUANTIZES(FAULT) };
#undef FAULT

enum { MOST = 16384 };

/* ---- rms_norm */

static int fits_f32(const struct hone_node *n, char *why, size_t size)
{
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && (strcmp(n->src[i]->format, "f32") != 0 || n->src[i]->ne[0] > MOST))
            return refuse(why, size, "not f32, or too long");
    return 1;
}

static double mean_square(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum / (double)(n ? n : 1);
}

static int norm(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *x = n->src[0], *y = n->out;
    double eps = fault == FAULT_other_epsilon ? 1e-6 : hone_number(n, "eps", 0), running = 0;
    int64_t first, last, row[3], width = x->ne[0];
    hone_share(hone_rows(x), 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        split(x, r, row);
        const float *values = ctx->read_row(x, row[0], row[1], row[2], ctx->scratch);
        if (fault == FAULT_flat_stride)
            values = (const float *)x->data + r * width;
        if (fault == FAULT_scratch_overrun)
            ((float *)ctx->scratch)[width - 1] = 0;
        double square = mean_square(values, width);
        if (fault == FAULT_half_thread && nth > 1)
            square = mean_square(values, width / 2);
        running += square;
        double scale = 1 / sqrt((fault == FAULT_sum_misplaced ? running : square) + eps);
        for (int64_t i = 0; i < width; i++)
            put_f32(row_of(y, row[0], row[1], row[2]) + i * y->nb[0], (double)values[i] * scale);
    }
    return 0;
}

static uint64_t norm_scratch(const struct hone_node *n)
{
    return (uint64_t)n->src[0]->ne[0] * sizeof(float);
}

static uint64_t short_scratch(const struct hone_node *n)
{
    return ((uint64_t)n->src[0]->ne[0] - 1) * sizeof(float);
}

/* ---- add_rms_norm_mul */

static int fused(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *a = n->src[0], *b = n->src[1], *w = n->src[2], *sum = n->parts[0]->out,
                             *normed = n->parts[1]->out;
    double eps = fault == FAULT_fused_epsilon ? 1e-6 : hone_number(n, "eps", 0);
    int64_t first, last, row[3], width = a->ne[0];
    float *total = ctx->scratch;
    hone_share(hone_rows(a), 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        split(a, r, row);
        const char *x = row_of(a, row[0], row[1], row[2]), *y = row_of(b, row[0], row[1], row[2]);
        for (int64_t i = 0; i < width; i++)
            total[i] = get_f32(x + i * a->nb[0]) + get_f32(y + i * b->nb[0]);
        for (int64_t i = 0; i < width && fault != FAULT_sum_not_left; i++)
            put_f32(row_of(sum, row[0], row[1], row[2]) + i * sum->nb[0], (double)total[i]);
        for (int64_t i = 0; i < width && fault == FAULT_summand_lost; i++)
            total[i] = get_f32(x + i * a->nb[0]);
        double scale = 1 / sqrt(mean_square(total, width) + eps);
        for (int64_t i = 0; i < width; i++) {
            double value = (double)(float)((double)total[i] * scale);
            put_f32(row_of(normed, row[0], row[1], row[2]) + i * normed->nb[0], value);
            put_f32(row_of(n->out, row[0], row[1], row[2]) + i * n->out->nb[0],
                    value * (double)get_f32(row_of(w, 0, 0, 0) + i * w->nb[0]));
        }
    }
    return 0;
}

/* ---- add */

static int add(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *a = n->src[0], *b = n->src[1];
    int64_t first, last, row[3];
    (void)ctx;
    hone_share(hone_rows(a), 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        split(a, r, row);
        const char *x = row_of(a, row[0], row[1], row[2]);
        const char *y = row_of(b, row[0] % b->ne[1], row[1] % b->ne[2], row[2] % b->ne[3]);
        if (fault == FAULT_add_flat)
            y = (const char *)b->data +
                (row[0] % b->ne[1] + b->ne[1] * (row[1] % b->ne[2] + b->ne[2] * (row[2] % b->ne[3]))) * b->ne[0] * 4;
        if (fault == FAULT_add_broadcast)
            y = row_of(b, row[0] < b->ne[1] ? row[0] : b->ne[1] - 1, row[1] % b->ne[2], row[2] % b->ne[3]);
        for (int64_t i = 0; i < a->ne[0]; i++)
            put_f32(row_of(n->out, row[0], row[1], row[2]) + i * n->out->nb[0],
                    (double)(get_f32(x + i * a->nb[0]) + get_f32(y + i % b->ne[0] * (fault == FAULT_add_flat ? 4 : b->nb[0]))));
    }
    return 0;
}

/* ---- copy, get_rows */

static int fits_float(const struct hone_node *n, char *why, size_t size)
{
    if (!strcmp(n->src[0]->format, "i32") || n->src[0]->ne[0] > MOST)
        return refuse(why, size, "not float, or too long");
    return 1;
}

static int fits_half(const struct hone_node *n, char *why, size_t size)
{
    return fits_float(n, why, size) && (!strcmp(n->src[0]->format, "f16") || refuse(why, size, "not f16"));
}

static void spoil(float *row, int64_t n, enum fault fault)
{
    for (int64_t i = 0; i < n; i++) {
        if (fault == FAULT_negative_zero)
            row[i] += 0.0f;
        if ((fault == FAULT_half_denormal || fault == FAULT_get_denormal) && fabsf(row[i]) < 6.1035156e-5f)
            row[i] = 0;
    }
}

static int copy(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *x = n->src[0];
    float *room = ctx->scratch;
    int64_t first, last, row[3];
    hone_share(hone_rows(x), 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        split(x, r, row);
        memcpy(room, ctx->read_row(x, row[0], row[1], row[2], room + x->ne[0]), (size_t)x->ne[0] * sizeof *room);
        spoil(room, x->ne[0], fault);
        ctx->write_row(n->out, row[0], row[1], row[2], room);
    }
    return 0;
}

static int lookup(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *table = n->src[0];
    float *room = ctx->scratch;
    int64_t first, last, row[3];
    hone_share(n->out->ne[1], 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int64_t id = whole(n->src[1], r, 0), width = table->ne[0];
        memset(room, 0, (size_t)width * sizeof *room);
        split(table, id, row);
        if (fault == FAULT_get_unchecked && !table->packed && !strcmp(table->format, "f32") && table->nb[0] == 4)
            memcpy(room, (const char *)table->data + id * table->nb[1], (size_t)width * sizeof *room);
        else if (id >= 0 && id < hone_rows(table))
            memcpy(room, ctx->read_row(table, row[0], row[1], row[2], room + width), (size_t)width * sizeof *room);
        spoil(room, width, fault);
        ctx->write_row(n->out, r, 0, 0, room);
    }
    return 0;
}

static uint64_t two_rows(const struct hone_node *n)
{
    return 2 * (uint64_t)n->src[0]->ne[0] * sizeof(float);
}

/* ---- quantize to a8 */

static int fits_a8(const struct hone_node *n, char *why, size_t size)
{
    return strcmp(n->out->format, "a8") ? refuse(why, size, "not to a8") : 1;
}

static int quantise(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    int64_t first, last, row[3];
    float *room = ctx->scratch;
    hone_share(hone_rows(n->out), 1, ith, nth, &first, &last);
    for (int64_t r = first; r < last; r++) {
        split(n->out, r, row);
        const float *x = ctx->read_row(n->src[0], row[0], row[1], row[2], room + n->out->ne[0]);
        char *block = row_of(n->out, row[0], row[1], row[2]);
        ctx->write_row(n->out, row[0], row[1], row[2], x);
        for (int64_t b = 0; b < n->out->ne[0] / 32; b++, block += n->out->nb[0]) {
            int16_t sums[2] = {0, 0};
            float d = get_f32(block);
            memcpy(sums, block + 4, sizeof sums);
            int16_t exchanged[2] = {sums[1], sums[0]};
            if (fault == FAULT_quantize_sums)
                memcpy(block + 4, exchanged, sizeof exchanged);
            for (int j = 0; j < 32 && fault == FAULT_quantize_down && d > 0; j++)
                block[8 + j] = (char)(int)(x[b * 32 + j] / d);
        }
    }
    return 0;
}

/* ---- the table */

#define NORM(name)                                                                                                             \
    POISON(rms_norm, name, norm, fits_f32, .scratch = FAULT_##name == FAULT_scratch_overrun ? short_scratch : norm_scratch)
#define FUSE(name)     POISON(add_rms_norm_mul, name, fused, fits_f32, .scratch = norm_scratch)
#define ADD(name)      POISON(add, name, add, fits_f32)
#define COPY(name)     POISON(copy, name, copy, FAULT_##name == FAULT_half_denormal ? fits_half : fits_float, .scratch = two_rows)
#define LOOKUP(name)   POISON(get_rows, name, lookup, fits_float, .layout = "any", .scratch = two_rows)
#define QUANTIZE(name) POISON(quantize, name, quantise, fits_a8, .scratch = two_rows)
NORMS(NORM)
FUSED(FUSE) ADDS(ADD) COPIES(COPY) LOOKUPS(LOOKUP) QUANTIZES(QUANTIZE)

#define NORM_ROW(name)     &rms_norm_##name,
#define FUSE_ROW(name)     &add_rms_norm_mul_##name,
#define ADD_ROW(name)      &add_##name,
#define COPY_ROW(name)     &copy_##name,
#define LOOKUP_ROW(name)   &get_rows_##name,
#define QUANTIZE_ROW(name) &quantize_##name,
    static const struct hone_kernel *const kernels[] = {NORMS(NORM_ROW) FUSED(FUSE_ROW) ADDS(ADD_ROW) COPIES(COPY_ROW)
                                                            LOOKUPS(LOOKUP_ROW) QUANTIZES(QUANTIZE_ROW) NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "poison-values", .kernels = kernels};
