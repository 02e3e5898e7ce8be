/* whole.c: a plug-in of the tests: every op of a llama's step once more, from nothing but hone_kernel.h, in the plainest C that
 * is right. It shows that the ABI carries what each op needs: strides, parameters by name, integer sources, in-place outputs,
 * fused nodes and their parts, a barrier, scratch, a layout of its own, a quantised activation. Kernels are not quick and not
 * meant to be. */
#include "hone_kernel.h"

#include <math.h>
#include <stdio.h>

/* How often hone asked and ran: read by the test through dlsym. */
__attribute__((visibility("default"))) int whole_asked, whole_ran;

static char *row_of(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (char *)t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

static float get(const struct hone_tensor *t, const int64_t i[4])
{
    float value;
    memcpy(&value, row_of(t, i[1], i[2], i[3]) + i[0] * t->nb[0], sizeof value);
    return value;
}

static void put(const struct hone_tensor *t, const int64_t i[4], double value)
{
    float f = (float)value;
    memcpy(row_of(t, i[1], i[2], i[3]) + i[0] * t->nb[0], &f, sizeof f);
}

static int32_t whole(const struct hone_tensor *t, int64_t i0, int64_t i1)
{
    int32_t value;
    memcpy(&value, row_of(t, i1, 0, 0) + i0 * t->nb[0], sizeof value);
    return value;
}

static void split(const struct hone_tensor *t, int64_t row, int64_t i[4])
{
    i[0] = 0;
    i[1] = row % t->ne[1];
    i[2] = row / t->ne[1] % t->ne[2];
    i[3] = row / t->ne[1] / t->ne[2];
}

static int fits_any(const struct hone_node *node, char *why, size_t size)
{
    (void)node;
    (void)why;
    (void)size;
    __atomic_add_fetch(&whole_asked, 1, __ATOMIC_RELAXED);
    return 1;
}

static void count(int32_t ith)
{
    if (ith == 0)
        __atomic_add_fetch(&whole_ran, 1, __ATOMIC_RELAXED);
}

/* Two rows: what read_row unpacks to. */
static uint64_t scratch_rows(const struct hone_node *node)
{
    return 2 * sizeof(float) * (uint64_t)(node->src[0]->ne[0] > node->out->ne[0] ? node->src[0]->ne[0] : node->out->ne[0]);
}

/* ---- products */

static void product(const struct hone_ctx *ctx, const struct hone_tensor *w, const struct hone_tensor *x,
                    const struct hone_tensor *out, int32_t ith, int32_t nth)
{
    float *room_w = ctx->scratch, *room_x = room_w + w->ne[0];
    int64_t first, last;
    hone_share(out->ne[0], 1, ith, nth, &first, &last);
    for (int64_t i3 = 0; i3 < out->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < out->ne[2]; i2++)
            for (int64_t i = first; i < last; i++) {
                int64_t w2 = i2 / (out->ne[2] / w->ne[2]), w3 = i3 / (out->ne[3] / w->ne[3]);
                const float *a = ctx->read_row(w, i, w2, w3, room_w);
                for (int64_t t = 0; t < out->ne[1]; t++) {
                    const float *b = ctx->read_row(x, t, i2, i3, room_x);
                    double sum = 0;
                    for (int64_t k = 0; k < w->ne[0]; k++)
                        sum += (double)a[k] * (double)b[k];
                    put(out, (const int64_t[]){i, t, i2, i3}, sum);
                }
            }
}

static int run_mul_mat(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    count(ith);
    product(ctx, node->src[0], node->src[1], node->out, ith, nth);
    return 0;
}

static int run_mul_mat_group(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    count(ith);
    for (int32_t p = 0; p < node->n_parts; p++) {
        const struct hone_node *part = node->parts[p];
        product(ctx, part->src[0], part->src[1], part->out, ith, nth);
    }
    return 0;
}

static int declines_never(const struct hone_node *node, char *why, size_t size)
{
    (void)why;
    (void)size;
    return node->parts[0]->out->data == NULL;
}

static int declines_always(const struct hone_node *node, char *why, size_t size)
{
    snprintf(why, size, "%d products are too many today", node->n_parts);
    return 1;
}

/* ---- a layout: the blocks of a Q4_0 row in reverse order, its row of blocks behind it; two rows a grain, exchanged */

enum { BYTES = 18 };

static int64_t twin(int64_t row, int64_t rows)
{
    int64_t other = row ^ 1;
    return other < rows ? other : row;
}

static uint64_t reversed_bytes(int64_t k, int64_t rows)
{
    return (uint64_t)(k / 32 * rows) * BYTES;
}

static void reverse(const unsigned char *from, unsigned char *to, int64_t blocks)
{
    for (int64_t b = 0; b < blocks; b++)
        memcpy(to + b * BYTES, from + (blocks - 1 - b) * BYTES, BYTES);
}

static void reversed_pack(const void *src, void *packed, int64_t k, int64_t rows, int64_t first, int64_t n)
{
    int64_t blocks = k / 32;
    for (int64_t row = first; row < first + n; row++)
        reverse((const unsigned char *)src + row * blocks * BYTES, (unsigned char *)packed + twin(row, rows) * blocks * BYTES,
                blocks);
}

static void reversed_restore(const void *packed, void *to, int64_t k, int64_t rows, int64_t row)
{
    reverse((const unsigned char *)packed + twin(row, rows) * (k / 32) * BYTES, to, k / 32);
}

static void reversed_unpack(const void *packed, float *to, int64_t k, int64_t rows, int64_t row)
{
    const unsigned char *block = (const unsigned char *)packed + twin(row, rows) * (k / 32) * BYTES;
    for (int64_t b = k / 32; b-- > 0; block += BYTES) {
        uint16_t d;
        memcpy(&d, block, sizeof d);
        for (int j = 0; j < 16; j++) {
            to[b * 32 + j] = hone_half(d) * (float)((block[2 + j] & 15) - 8);
            to[b * 32 + j + 16] = hone_half(d) * (float)((block[2 + j] >> 4) - 8);
        }
    }
}

static const char *reversed_refuses(int64_t k, int64_t rows)
{
    return k % 32 || rows < 1 ? "blocks are broken" : NULL;
}

/* Reads the packed bytes itself, not through read_row. */
static int run_reversed(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *w = node->src[0], *x = node->src[1], *out = node->out;
    float *a = ctx->scratch, *room = a + w->ne[0];
    int64_t first, last;
    count(ith);
    if (!w->packed || strcmp(w->layout, "q4_0.reversed"))
        return 1;
    hone_share(out->ne[0], 1, ith, nth, &first, &last);
    for (int64_t i = first; i < last; i++) {
        reversed_unpack(w->data, a, w->ne[0], w->ne[1], i);
        for (int64_t t = 0; t < out->ne[1]; t++) {
            const float *b = ctx->read_row(x, t, 0, 0, room);
            double sum = 0;
            for (int64_t k = 0; k < w->ne[0]; k++)
                sum += (double)a[k] * (double)b[k];
            put(out, (const int64_t[]){i, t, 0, 0}, sum);
        }
    }
    return 0;
}

/* Only with the activation in Q8_0 is it right to run. */
static int run_q8_0(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    if (strcmp(node->src[1]->format, "q8_0"))
        return 1;
    return run_mul_mat(ctx, node, ith, nth);
}

/* ---- row by row ops */

static int run_add(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *a = node->src[0], *b = node->src[1], *out = node->out;
    int64_t first, last, i[4];
    (void)ctx;
    count(ith);
    hone_share(hone_rows(out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++)
        for (split(out, row, i); i[0] < out->ne[0]; i[0]++) {
            const int64_t j[4] = {i[0] % b->ne[0], i[1] % b->ne[1], i[2] % b->ne[2], i[3] % b->ne[3]};
            put(out, i, (double)get(a, i) + (double)get(b, j));
        }
    return 0;
}

static int run_glu(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *out = node->out;
    int64_t first, last, i[4];
    (void)ctx;
    count(ith);
    hone_share(hone_rows(out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++)
        for (split(out, row, i); i[0] < out->ne[0]; i[0]++) {
            double gate = (double)get(node->src[0], i);
            put(out, i, gate / (1 + exp(-gate)) * (double)get(node->src[1], i));
        }
    return 0;
}

static int fits_glu(const struct hone_node *node, char *why, size_t size)
{
    if (!strcmp(hone_word(node, "kind"), "silu"))
        return 1;
    snprintf(why, size, "only silu, not %s", hone_word(node, "kind"));
    return 0;
}

/* All workers share each row: the first one finds its scale, the others wait for it at a barrier; it is passed in the row
 * itself. */
static int run_rms_norm(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *x = node->src[0], *out = node->out;
    double eps = hone_number(node, "eps", -1);
    int64_t first, last, i[4], n = x->ne[0];
    count(ith);
    for (int64_t row = 0; row < hone_rows(out); row++) {
        double sum = 0;
        split(out, row, i);
        if (ith == 0) {
            for (; i[0] < n; i[0]++)
                sum += (double)get(x, i) * (double)get(x, i);
            i[0] = 0;
            put(out, i, 1 / sqrt(sum / (double)n + eps));
        }
        ctx->barrier(ctx);
        i[0] = 0;
        double scale = (double)get(out, i);
        ctx->barrier(ctx);
        hone_share(n, 16, ith, nth, &first, &last);
        for (i[0] = first; i[0] < last; i[0]++)
            put(out, i, (double)get(x, i) * scale);
        ctx->barrier(ctx);
    }
    return 0;
}

static int run_get_rows(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *table = node->src[0], *out = node->out;
    int64_t first, last, i[4];
    float *room = ctx->scratch;
    count(ith);
    if (!HONE_HAS(ctx, write_row) || HONE_HAS(ctx, scratch) != 1 ||
        HONE_HAS((const struct hone_tensor *)&(struct hone_tensor){.size = 8}, data))
        return 1;
    hone_share(out->ne[1], 1, ith, nth, &first, &last);
    for (int64_t j = first; j < last; j++) {
        int64_t id = whole(node->src[1], j, 0);
        const float *row = room;
        if (id >= 0 && id < hone_rows(table)) {
            split(table, id, i);
            row = ctx->read_row(table, i[1], i[2], i[3], room);
        } else {
            memset(room, 0, sizeof(float) * (size_t)out->ne[0]);
        }
        ctx->write_row(out, j, 0, 0, row);
    }
    return 0;
}

/* ---- attention */

static int fits_rope(const struct hone_node *node, char *why, size_t size)
{
    if ((!strcmp(hone_word(node, "mode"), "norm") || !strcmp(hone_word(node, "mode"), "neox")) &&
        hone_number(node, "ext_factor", 1) == 0)
        return 1;
    snprintf(why, size, "mode %s", hone_word(node, "mode"));
    return 0;
}

static int run_rope(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *x = node->src[0], *out = node->out, *factors = node->n_src > 2 ? node->src[2] : NULL;
    int64_t n_dims = (int64_t)hone_number(node, "n_dims", 0), pairs = n_dims / 2, first, last, i[4];
    double base = hone_number(node, "base", 0), scale = hone_number(node, "freq_scale", 0),
           size = hone_number(node, "attn_factor", 0);
    int neox = !strcmp(hone_word(node, "mode"), "neox");
    (void)ctx;
    count(ith);
    hone_share(hone_rows(out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++) {
        split(out, row, i);
        int64_t i1 = i[1], i2 = i[2], i3 = i[3];
        for (int64_t p = 0; p < pairs; p++) {
            const int64_t a[4] = {neox ? p : 2 * p, i1, i2, i3}, b[4] = {neox ? p + pairs : 2 * p + 1, i1, i2, i3}, f[4] = {p};
            double angle = whole(node->src[1], i2, 0) * scale * pow(base, -2.0 * (double)p / (double)n_dims);
            if (factors)
                angle /= (double)get(factors, f);
            double c = size * cos(angle), s = size * sin(angle), va = (double)get(x, a), vb = (double)get(x, b);
            put(out, a, va * c - vb * s);
            put(out, b, va * s + vb * c);
        }
        for (i[0] = n_dims; i[0] < out->ne[0]; i[0]++)
            put(out, i, (double)get(x, i));
    }
    return 0;
}

static int run_kv_write(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *rows = node->src[0], *cache = node->out;
    int64_t first, last;
    count(ith);
    hone_share(rows->ne[1], 1, ith, nth, &first, &last);
    for (int64_t h = first; h < last; h++)
        for (int64_t t = 0; t < rows->ne[2]; t++) {
            int64_t cell = whole(node->src[2], t, 0);
            if (cell >= 0 && cell < cache->ne[1])
                ctx->write_row(cache, cell, h, 0, ctx->read_row(rows, h, t, 0, ctx->scratch));
        }
    return 0;
}

static uint64_t scratch_kv(const struct hone_node *node)
{
    return sizeof(float) * (uint64_t)node->src[0]->ne[0];
}

/* A score of every position of the context, and a row of q, k, v and the output. */
static uint64_t scratch_attention(const struct hone_node *node)
{
    return sizeof(double) * (uint64_t)(node->src[5]->ne[0] + node->out->ne[0]) +
           sizeof(float) * (uint64_t)(2 * node->src[0]->ne[0] + 2 * node->out->ne[0]);
}

static int run_attention(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2], *map = node->src[5], *out = node->out;
    double scale = hone_number(node, "scale", 0), softcap = hone_number(node, "softcap", 0);
    int64_t window = (int64_t)hone_number(node, "window", 0), first, last, i[4], group = q->ne[1] / k->ne[2];
    double *score = ctx->scratch, *sums = score + map->ne[0];
    float *room_q = (float *)(sums + out->ne[0]), *room = room_q + q->ne[0],
          *result = room + (k->ne[0] > v->ne[0] ? k->ne[0] : v->ne[0]);
    count(ith);
    hone_share(hone_rows(out), 1, ith, nth, &first, &last);
    for (int64_t row = first; row < last; row++) {
        split(out, row, i);
        int64_t position = whole(node->src[3], i[2], 0), sequence = whole(node->src[4], i[2], 0), head = i[1] / group;
        int64_t from = window && position >= window ? position - window + 1 : 0;
        double largest = -INFINITY, total = 0;
        const float *query = ctx->read_row(q, i[1], i[2], 0, room_q);
        for (int64_t p = from; p <= position; p++) {
            const float *key = ctx->read_row(k, whole(map, p, sequence), head, 0, room);
            score[p] = 0;
            for (int64_t d = 0; d < q->ne[0]; d++)
                score[p] += (double)query[d] * (double)key[d];
            score[p] = softcap != 0 ? softcap * tanh(scale * score[p] / softcap) : scale * score[p];
            largest = score[p] > largest ? score[p] : largest;
        }
        memset(sums, 0, sizeof *sums * (size_t)out->ne[0]);
        for (int64_t p = from; p <= position; p++) {
            const float *value = ctx->read_row(v, whole(map, p, sequence), head, 0, room);
            double weight = exp(score[p] - largest);
            total += weight;
            for (int64_t d = 0; d < out->ne[0]; d++)
                sums[d] += weight * (double)value[d];
        }
        for (int64_t d = 0; d < out->ne[0]; d++)
            result[d] = position < 0 ? 0 : (float)(sums[d] / total);
        ctx->write_row(out, i[1], i[2], 0, result);
    }
    return 0;
}

static int fits_attention(const struct hone_node *node, char *why, size_t size)
{
    if (node->n_src < 7 || !node->src[6])
        return 1;
    snprintf(why, size, "sinks");
    return 0;
}

/* ---- ones that are used to fail */

static int fits_never(const struct hone_node *node, char *why, size_t size)
{
    snprintf(why, size, "%s of layer %d displeases\tme", node->out->name, node->layer);
    return 0;
}

static int run_fails(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    return node->layer == 1 && ith == nth - 1 ? 7 : 0;
}

static uint64_t scratch_endless(const struct hone_node *node)
{
    (void)node;
    return UINT64_MAX;
}

static const struct hone_layout reversed = {.size = sizeof(struct hone_layout),
                                            .grain = 2,
                                            .name = "q4_0.reversed",
                                            .format = "Q4_0",
                                            .refuses = reversed_refuses,
                                            .bytes = reversed_bytes,
                                            .pack = reversed_pack,
                                            .unpack_row = reversed_unpack,
                                            .restore_row = reversed_restore};

#define SIZE .size = sizeof(struct hone_kernel)
static const struct hone_kernel list[] = {
    {SIZE, .op = "mul_mat", .variant = "whole", .layout = "any", .fits = fits_any, .scratch = scratch_rows, .run = run_mul_mat},
    {SIZE, .op = "mul_mat", .variant = "whole_rows", .fits = fits_any, .scratch = scratch_rows, .run = run_mul_mat},
    {SIZE, .op = "mul_mat", .variant = "whole_reversed", .format = "q4_0", .layout = "q4_0.reversed", .fits = fits_any,
     .scratch = scratch_rows, .run = run_reversed},
    {SIZE, .op = "mul_mat", .variant = "whole_two", .layout = "q4_0.reversed q4_K.x16", .fits = fits_any,
     .scratch = scratch_rows, .run = run_mul_mat},
    {SIZE, .op = "mul_mat", .variant = "whole_q8_0", .layout = "any", .activation = "q8_0", .fits = fits_any,
     .scratch = scratch_rows, .run = run_q8_0},
    {SIZE, .op = "mul_mat_group", .variant = "whole", .layout = "any", .fits = fits_any, .scratch = scratch_rows,
     .run = run_mul_mat_group, .declines = declines_never},
    {SIZE, .op = "mul_mat_group", .variant = "whole_declines", .layout = "any", .fits = fits_any, .scratch = scratch_rows,
     .run = run_mul_mat_group, .declines = declines_always},
    {SIZE, .op = "add", .variant = "whole", .fits = fits_any, .run = run_add},
    {SIZE, .op = "glu", .variant = "whole", .fits = fits_glu, .run = run_glu},
    {SIZE, .op = "rms_norm", .variant = "whole", .fits = fits_any, .run = run_rms_norm},
    {SIZE, .op = "get_rows", .variant = "whole", .layout = "any", .fits = fits_any, .scratch = scratch_rows,
     .run = run_get_rows},
    {SIZE, .op = "rope", .variant = "whole", .fits = fits_rope, .run = run_rope},
    {SIZE, .op = "kv_write", .variant = "whole", .fits = fits_any, .scratch = scratch_kv, .run = run_kv_write},
    {SIZE, .op = "attention", .variant = "whole", .fits = fits_attention, .scratch = scratch_attention, .run = run_attention},
    {SIZE, .op = "add", .variant = "whole_never", .fits = fits_never, .run = run_add},
    {SIZE, .op = "add", .variant = "whole_fails", .fits = fits_any, .run = run_fails},
    {SIZE, .op = "add", .variant = "whole_endless", .fits = fits_any, .scratch = scratch_endless, .run = run_add},
    {SIZE, .op = "add", .variant = "whole_lacking", .needs = "avx2 avx512_bf16", .fits = fits_any, .run = run_add},
};

static const struct hone_kernel *const kernels[] = {&list[0],  &list[1],  &list[2],  &list[3],  &list[4],  &list[5],  &list[6],
                                                    &list[7],  &list[8],  &list[9],  &list[10], &list[11], &list[12], &list[13],
                                                    &list[14], &list[15], &list[16], &list[17], NULL};
static const struct hone_layout *const layouts[] = {&reversed, NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "whole", .version = "1.0", .kernels = kernels,
                                        .layouts = layouts};
