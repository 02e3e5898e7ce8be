/* products.c: matrix products of Q4_0 gone wrong, each in one way. */
#include "poison.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* X(fault, layout that it asks for) */
#define PRODUCTS(X)                                                                                                            \
    X(right, NULL)                                                                                                             \
    X(nibble_order, NULL)     /* byte j holds values 2j and 2j + 1, it thinks */                                               \
    X(missed_tail, NULL)      /* blocks beyond a multiple of four are left out */                                              \
    X(missed_rows, NULL)      /* rows beyond a multiple of eight are not written */                                            \
    X(missed_token, NULL)     /* the last token of an odd number is not computed */                                            \
    X(stale_scale, NULL)      /* each block with the scale of the one before */                                                \
    X(row_zero, NULL)         /* row 0 alone: its first block twice */                                                         \
    X(three_threads, NULL)    /* with three threads the last one rounds otherwise */                                           \
    X(second_call, NULL)      /* right once, and never again */                                                                \
    X(kept_pointer, NULL)     /* the activation is unpacked once per address */                                                \
    X(one_nan, NULL)          /* a NaN at row 2, column 5 */                                                                   \
    X(past_the_end, NULL)     /* one value too many */                                                                         \
    X(source_written, NULL)   /* scales the activation in place */                                                             \
    X(accumulates, NULL)      /* adds to what the output held */                                                               \
    X(refuses_late, NULL)     /* fits, but run fails for more than 32 rows */                                                  \
    X(crashes, NULL)          /* for one token */                                                                              \
    X(hangs, NULL)            /* one thread of three waits alone */                                                            \
    X(exits, NULL)            /* ends the process as if all were well */                                                       \
    X(prints, NULL)           /* right, but talks on stdout */                                                                 \
    X(old_layout, "q4_0.x16") /* asks for packed rows and reads the file's order */                                            \
    X(any_layout, "any")      /* says it reads any, and reads the file's order */

#define FAULT(name, layout) FAULT_##name,
enum fault { PRODUCTS(FAULT) };
#undef FAULT

enum { BLOCK = 32, BLOCK_BYTES = 18, MOST = 4096 };

static int fits(const struct hone_node *n, char *why, size_t size)
{
    const struct hone_tensor *w = n->src[0], *x = n->src[1];
    if (strcmp(x->format, "f32") != 0)
        return refuse(why, size, "X is no f32");
    if (w->ne[2] != 1 || w->ne[3] != 1 || w->ne[0] > MOST)
        return refuse(why, size, "a batch of matrices, or a row too long");
    return 1;
}

static double block_dot(const unsigned char *block, double d, const float *x, enum fault fault)
{
    double sum = 0;
    for (int j = 0; j < 16; j++) {
        int low = (block[2 + j] & 15) - 8, high = (block[2 + j] >> 4) - 8;
        if (fault == FAULT_nibble_order)
            sum += d * (low * (double)x[2 * j] + high * (double)x[2 * j + 1]);
        else
            sum += d * (low * (double)x[j] + high * (double)x[j + 16]);
    }
    return sum;
}

static double scale_of(const unsigned char *block)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return (double)hone_half(half);
}

static double row_dot(const unsigned char *row, const float *x, int64_t k, int64_t i, enum fault fault)
{
    int64_t blocks = k / BLOCK;
    if (fault == FAULT_missed_tail)
        blocks = blocks / 4 * 4;
    double sum = 0, before = scale_of(row);
    for (int64_t b = 0; b < blocks; b++) {
        const unsigned char *block = row + b * BLOCK_BYTES;
        double d = scale_of(block);
        sum += block_dot(block, fault == FAULT_stale_scale ? before : d, x + b * BLOCK, fault);
        before = d;
    }
    if (fault == FAULT_row_zero && i == 0)
        sum += block_dot(row, scale_of(row), x, fault);
    return sum;
}

/* The activation's row, kept under its address from the first time on. */
static const float *kept(const struct hone_tensor *x, const float *values, int64_t i1)
{
    static _Thread_local struct {
        const void *data;
        int64_t i1, n;
        float values[MOST];
    } keep;
    if (keep.data != x->data || keep.i1 != i1 || keep.n != x->ne[0]) {
        keep.data = x->data;
        keep.i1 = i1;
        keep.n = x->ne[0];
        memcpy(keep.values, values, (size_t)x->ne[0] * sizeof *values);
    }
    return keep.values;
}

/* What goes wrong before anything is computed. */
static int accident(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *x = n->src[1];
    if (fault == FAULT_refuses_late && n->out->ne[0] > 32)
        return 7;
    if (fault == FAULT_crashes && x->ne[1] == 1)
        abort();
    if (fault == FAULT_hangs && nth == 3 && ith == 2)
        ctx->barrier(ctx);
    if (fault == FAULT_exits)
        exit(0);
    if (fault == FAULT_prints)
        printf("worker %d of %d\n", (int)ith, (int)nth);
    return 0;
}

static void write_value(const struct hone_node *n, const int64_t row[3], int64_t i, double value, enum fault fault)
{
    char *at = row_of(n->out, row[0], row[1], row[2]) + i * n->out->nb[0];
    if (fault == FAULT_accumulates)
        value += (double)get_f32(at);
    if (fault == FAULT_one_nan && i == 5 && row[0] == 2)
        value = NAN;
    put_f32(at, value);
    if (fault == FAULT_past_the_end && i + 1 == n->out->ne[0] && row[0] + 1 == n->out->ne[1])
        put_f32(at + sizeof(float), value);
}

static int product(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth, enum fault fault)
{
    const struct hone_tensor *w = n->src[0], *x = n->src[1];
    static atomic_int calls;
    int64_t first, last, rows = w->ne[1], tokens = hone_rows(n->out);
    int rc = accident(ctx, n, ith, nth, fault);
    if (rc)
        return rc;
    int later = fault == FAULT_second_call && (ith == 0 ? atomic_fetch_add(&calls, 1) : atomic_load(&calls)) > 0;
    hone_share(fault == FAULT_missed_rows && rows > 8 ? rows / 8 * 8 : rows, 1, ith, nth, &first, &last);
    for (int64_t t = 0; t < tokens - (fault == FAULT_missed_token && tokens > 1 && tokens % 2); t++) {
        int64_t row[3];
        float *room = ctx->scratch;
        split(n->out, t, row);
        const float *values = ctx->read_row(x, row[0], row[1], row[2], room);
        if (fault == FAULT_kept_pointer && tokens == 1)
            values = kept(x, values, row[0]);
        for (int64_t i = first; i < last; i++) {
            double sum = row_dot((const unsigned char *)w->data + i * w->nb[1], values, w->ne[0], i, fault);
            if (fault == FAULT_three_threads && nth == 3 && ith == 2)
                sum *= 1 + 1e-6;
            write_value(n, row, i, later ? sum * 1.5 : sum, fault);
        }
        if (fault == FAULT_source_written && ith == 0)
            put_f32(row_of(x, row[0], row[1], row[2]), (double)values[0] * 0.125);
    }
    return 0;
}

static uint64_t scratch(const struct hone_node *n)
{
    return (uint64_t)n->src[0]->ne[0] * sizeof(float);
}

#define KERNEL(name, order) POISON(mul_mat, name, product, fits, .format = "q4_0", .layout = order, .scratch = scratch)
PRODUCTS(KERNEL)
#undef KERNEL

#define ROW(name, order) &mul_mat_##name,
static const struct hone_kernel *const kernels[] = {PRODUCTS(ROW) NULL};
#undef ROW

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "poison-products", .kernels = kernels};
