/* openblas.c: a library as a kernel: mul_mat of any weight format through OpenBLAS. See README.md.
 *
 *   out[i, t] = sum over k of W[k, i] X[k, t];   W [k, m] of any format and layout, X [k, n] f32, out [m, n] f32
 *
 * Rows of W are unpacked to a tile of f32 that stays in the second-level cache, then the library multiplies the tile: sgemv for
 * one token, sgemm for several. So one kernel covers every format that hone reads, which makes it a first rung: everything that
 * follows can be compared with a library that many trust. It writes and reads four bytes a weight where the file has half
 * a byte, which is why there are faster ones.
 *
 * OpenBLAS is told to use one thread: hone's workers call it side by side. Tiles begin at the same rows for any number of
 * workers, so the result's bits do not depend on it. */
#include "hone_kernel.h"

#include <cblas.h>
#include <stdint.h>
#include <stdio.h>

enum { TILE_BYTES = 512 << 10, TILE_ROWS = 128 };

/* Rows a tile: as many as the cache holds, a multiple of 16, the same on every worker. */
static int64_t tile_rows(int64_t k)
{
    int64_t rows = TILE_BYTES / (int64_t)sizeof(float) / (k > 0 ? k : 1) / 16 * 16;
    return rows < 16 ? 16 : rows > TILE_ROWS ? TILE_ROWS : rows;
}

static int fits(const struct hone_node *node, char *why, size_t why_size)
{
    const struct hone_tensor *w = node->src[0], *x = node->src[1], *out = node->out;
    int64_t f = sizeof(float);
    if (strcmp(x->format, "f32") || x->nb[0] != f || x->nb[1] % f || (x->ne[1] > 1 && x->nb[1] < x->ne[0] * f))
        return snprintf(why, why_size, "X is no matrix of f32 as BLAS takes it"), 0;
    if (out->nb[0] != f || out->nb[1] % f || out->nb[1] < out->ne[0] * f)
        return snprintf(why, why_size, "the output is no matrix of f32 as BLAS takes it"), 0;
    if (w->ne[2] != 1 || w->ne[3] != 1 || x->ne[2] != 1 || x->ne[3] != 1)
        return snprintf(why, why_size, "batches of matrices"), 0;
    if (w->ne[0] < 1 || w->ne[0] > INT32_MAX || out->nb[1] / f > INT32_MAX || x->nb[1] / f > INT32_MAX || x->ne[1] > INT32_MAX)
        return snprintf(why, why_size, "a dimension that no int of BLAS holds"), 0;
    return 1;
}

static uint64_t scratch(const struct hone_node *node)
{
    int64_t k = node->src[0]->ne[0];
    return (uint64_t)(tile_rows(k) * k) * sizeof(float);
}

static int run(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    const struct hone_tensor *w = node->src[0], *x = node->src[1], *out = node->out;
    int64_t k = w->ne[0], rows = tile_rows(k), first, last;
    int n = (int)x->ne[1], ldx = (int)(x->nb[1] / 4), ldout = (int)(out->nb[1] / 4);
    float *tile = ctx->scratch;
    hone_share(w->ne[1], rows, ith, nth, &first, &last);
    for (int64_t i = first; i < last && n; i += rows) {
        int m = (int)(last - i < rows ? last - i : rows);
        for (int r = 0; r < m; r++) {
            const float *row = ctx->read_row(w, i + r, 0, 0, tile + r * k);
            if (row != tile + r * k) /* an f32 weight is given where it lies */
                memcpy(tile + r * k, row, (size_t)k * sizeof(float));
        }
        float *to = (float *)out->data + i;
        if (n == 1)
            cblas_sgemv(CblasRowMajor, CblasNoTrans, m, (int)k, 1, tile, (int)k, x->data, 1, 0, to, 1);
        else
            cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, m, n, (int)k, 1, tile, (int)k, x->data, ldx, 0, to, ldout);
    }
    return 0;
}

__attribute__((constructor)) static void one_thread(void)
{
    openblas_set_num_threads(1);
}

static const struct hone_kernel openblas = {.size = sizeof(struct hone_kernel),
                                            .op = "mul_mat",
                                            .variant = "openblas",
                                            .layout = "any",
                                            .fits = fits,
                                            .scratch = scratch,
                                            .run = run};

static const struct hone_kernel *const kernels[] = {&openblas, NULL};

const struct hone_plugin hone_plugin = {HONE_PLUGIN_HEAD, .name = "openblas", .version = "1", .kernels = kernels};
