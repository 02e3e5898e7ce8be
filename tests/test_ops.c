/* test_ops.c: every case of every op. Each reference is run with 1, 2, 3 and 7 threads, which must give the same bits and leave
 * sources, gaps and guards alone, and is compared with a second computation: the op's definition in plain loops over dense
 * arrays of doubles, which shares nothing with the reference but the formats' unpack. */
#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cases.h"
#include "ops/gated_delta_rule.h"
#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/route_weights.h"
#include "ops/scale.h"
#include "ops/softmax.h"
#include "ops/unary.h"

#include "tests/pools.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20240229 };

/* ---- the definitions, over dense arrays [i3][i2][i1][i0] */

/* Every element, found by its own address; of blocks, by unpacking the block at its address. */
static double *dense(const struct tensor *t)
{
    const struct format *f = format_get(t->format);
    double *values = malloc(sizeof *values * (size_t)(tensor_elements(t) + 1)), *v = values;
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++)
                for (int64_t i0 = 0; i0 < t->ne[0]; i0 += f->block) {
                    const char *p = (const char *)t->data + (size_t)(i0 / f->block) * t->nb[0] + (size_t)i1 * t->nb[1] +
                                    (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
                    float block[256] = {0};
                    int32_t index = 0;
                    if (t->format == FORMAT_I32)
                        memcpy(&index, p, sizeof index);
                    else
                        f->unpack(p, block, f->block);
                    for (int i = 0; i < f->block; i++)
                        *v++ = t->format == FORMAT_I32 ? index : (double)block[i];
                }
    return values;
}

static int64_t at(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return ((i3 * t->ne[2] + i2) * t->ne[1] + i1) * t->ne[0] + i0;
}

static double activation(int kind, double x)
{
    const double pi = acos(-1);
    switch (kind) {
    case UNARY_SILU:
        return x * (0.5 + 0.5 * tanh(x / 2)); /* the logistic function, by its other name */
    case UNARY_GELU:
        return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3))));
    case UNARY_GELU_ERF:
        return x * 0.5 * erfc(-x / sqrt(2));
    case UNARY_GELU_QUICK:
        return x * (0.5 + 0.5 * tanh(1.702 * x / 2));
    case UNARY_RELU:
        return fmax(x, 0);
    case UNARY_SIGMOID:
        return 0.5 + 0.5 * tanh(x / 2);
    case UNARY_TANH:
        return sinh(x) / cosh(x);
    case UNARY_EXP:
        return pow(exp(1), x);
    case UNARY_NEG:
        return 0 - x;
    case UNARY_SOFTPLUS:
        return x > 500 ? x : log(1 + exp(x));
    }
    abort();
}

static void naive_elementwise(const struct node *n, double *const *s, double *y)
{
    const struct tensor *out = n->out, *b = n->src[1];
    for (int64_t i = 0; i < tensor_elements(out); i++) {
        int64_t i0 = i % out->ne[0], i1 = i / out->ne[0] % out->ne[1], i2 = i / out->ne[0] / out->ne[1] % out->ne[2],
                i3 = i / out->ne[0] / out->ne[1] / out->ne[2];
        double x = s[0][i], z = b ? s[1][at(b, i0 % b->ne[0], i1 % b->ne[1], i2 % b->ne[2], i3 % b->ne[3])] : 0;
        switch ((int)n->op) {
        case OP_ADD:
            y[i] = x + z;
            break;
        case OP_MUL:
            y[i] = x * z;
            break;
        case OP_SCALE:
            y[i] = x * (double)node_params(n, struct scale_params)->scale + (double)node_params(n, struct scale_params)->bias;
            break;
        case OP_UNARY: {
            double wide = activation(node_params(n, struct unary_params)->kind, x);
            /* sinh / cosh of large values is inf / inf. */
            y[i] = isnan(wide) ? (x > 0) - (x < 0) : wide;
            break;
        }
        case OP_GLU: {
            const struct glu_params *p = node_params(n, struct glu_params);
            double most = p->limit > 0 ? (double)p->limit : INFINITY;
            y[i] = activation(p->kind, fmin(x, most)) * (fmax(fmin(z, most), -most) + (double)p->shift);
            break;
        }
        default:
            y[i] = x;
        }
    }
}

static void naive_rows(const struct node *n, double *const *s, double *y)
{
    int64_t width = n->out->ne[0];
    const struct tensor *mask = n->src[1];
    for (int64_t row = 0; row < tensor_rows(n->out); row++) {
        const double *x = s[0] + row * width;
        double *out = y + row * width, sum = 0, max = -INFINITY;
        int64_t i[3];
        tensor_row_index(n->out, row, i);
        if (n->op == OP_L2_NORM) {
            for (int64_t j = width - 1; j >= 0; j--)
                sum += x[j] * x[j];
            for (int64_t j = 0; j < width; j++)
                out[j] = x[j] * pow(sum + (double)node_params(n, struct l2_norm_params)->eps, -0.5);
            continue;
        }
        if (n->op == OP_RMS_NORM) {
            for (int64_t j = width - 1; j >= 0; j--)
                sum += x[j] * x[j] / (double)width;
            for (int64_t j = 0; j < width; j++)
                out[j] = x[j] * pow(sum + (double)node_params(n, struct rms_norm_params)->eps, -0.5);
            continue;
        }
        for (int64_t j = 0; j < width; j++) {
            out[j] = x[j] * (double)node_params(n, struct softmax_params)->scale;
            if (mask)
                out[j] += s[1][at(mask, j, i[0] % mask->ne[1], i[1] % mask->ne[2], i[2] % mask->ne[3])];
            max = fmax(max, out[j]);
        }
        for (int64_t j = 0; j < width; j++)
            sum += out[j] = exp(out[j] - max);
        for (int64_t j = 0; j < width; j++)
            out[j] /= sum;
    }
}

static void naive_get_rows(const struct node *n, double *const *s, double *y)
{
    int64_t width = n->out->ne[0], rows = tensor_rows(n->src[0]);
    for (int64_t i = 0; i < tensor_elements(n->out); i++) {
        int64_t id = (int64_t)s[1][i / width];
        y[i] = id >= 0 && id < rows ? s[0][id * width + i % width] : 0;
    }
}

/* The k largest by counting, for each value, how many stand before it. */
static void naive_top_k(const struct node *n, double *const *s, double *y)
{
    int64_t width = n->src[0]->ne[0], k = n->out->ne[0];
    for (int64_t row = 0; row < tensor_rows(n->out); row++)
        for (int64_t i = 0; i < width; i++) {
            int64_t rank = 0;
            for (int64_t j = 0; j < width; j++)
                rank += s[0][row * width + j] > s[0][row * width + i] || (j < i && s[0][row * width + j] == s[0][row * width + i]);
            if (rank < k)
                y[row * k + rank] = (double)i;
        }
}

/* Every expert's weight of every token first, then those that were selected. */
static void naive_route_weights(const struct node *n, double *const *s, double *y)
{
    const struct route_weights_params *p = node_params(n, struct route_weights_params);
    int64_t width = n->src[0]->ne[0], k = n->out->ne[0];
    for (int64_t t = 0; t < n->out->ne[1]; t++) {
        const double *x = s[0] + t * width, *ids = s[1] + t * k;
        double most = -INFINITY, below = 0, sum = 0;
        for (int64_t i = 0; i < width; i++) {
            int chosen = 0;
            for (int64_t j = 0; j < k; j++)
                chosen += ids[j] == (double)i;
            int counts = p->mode == ROUTE_SOFTMAX ? 1 : chosen;
            most = counts && x[i] > most ? x[i] : most;
        }
        for (int64_t i = 0; i < width && p->mode == ROUTE_SOFTMAX; i++)
            below += exp(x[i] - most);
        for (int64_t j = 0; j < k && p->mode == ROUTE_SOFTMAX_SELECTED; j++)
            below += ids[j] < (double)width ? exp(x[(int64_t)ids[j]] - most) : 0;
        for (int64_t j = 0; j < k; j++) {
            double v = ids[j] < (double)width ? x[(int64_t)ids[j]] : -INFINITY;
            y[t * k + j] = p->mode == ROUTE_SIGMOID ? 1 / (1 + exp(-v)) : exp(v - most) / below;
            sum += y[t * k + j];
        }
        for (int64_t j = 0; j < k; j++)
            y[t * k + j] *= (double)p->scale / (p->normalise ? fmax(sum, 0x1p-14) : 1);
    }
}

/* Output by output. */
static void naive_mul_mat_id(const struct node *n, double *const *s, double *y)
{
    int64_t k = n->src[0]->ne[0], m = n->src[0]->ne[1], experts = n->src[0]->ne[2], used = n->out->ne[1];
    for (int64_t pair = 0; pair < used * n->out->ne[2]; pair++)
        for (int64_t i = 0; i < m; i++) {
            int64_t id = (int64_t)s[2][pair];
            const double *x = s[1] + (n->src[1]->ne[1] == 1 ? pair / used : pair) * k, *w = s[0] + (id * m + i) * k;
            double sum = id < experts && n->n_src > 3 && n->src[3] ? s[3][id * m + i] : 0;
            for (int64_t j = 0; j < k && id < experts; j++)
                sum += w[j] * x[j];
            y[pair * m + i] = sum;
        }
}

static void naive_expert_sum(const struct node *n, double *const *s, double *y)
{
    int64_t m = n->out->ne[0], used = n->src[0]->ne[1];
    for (int64_t t = 0; t < n->out->ne[1]; t++)
        for (int64_t i = 0; i < m; i++) {
            y[t * m + i] = 0;
            for (int64_t j = used; j-- > 0;)
                y[t * m + i] += s[0][(t * used + j) * m + i] * s[1][t * used + j];
        }
}

static void naive_mul_mat(const struct node *n, double *const *s, double *y)
{
    const struct tensor *w = n->src[0], *x = n->src[1], *out = n->out;
    for (int64_t i3 = 0; i3 < out->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < out->ne[2]; i2++)
            for (int64_t t = 0; t < out->ne[1]; t++)
                for (int64_t i = 0; i < out->ne[0]; i++) {
                    double sum = 0;
                    for (int64_t k = 0; k < w->ne[0]; k++)
                        sum +=
                            s[0][at(w, k, i, i2 * w->ne[2] / x->ne[2], i3 * w->ne[3] / x->ne[3])] * s[1][at(x, k, t, i2, i3)];
                    y[at(out, i, t, i2, i3)] = sum;
                }
}

/* Which coordinate turns pair i: by listing the pairs of one period. */
static int coordinate(const struct rope_params *p, int64_t i)
{
    char list[1024] = "";
    if (p->mode == ROPE_SECTIONS) {
        for (int c = 0; c < 4; c++)
            for (int j = 0; j < p->sections[c]; j++)
                list[strlen(list)] = (char)('0' + c);
    } else if (p->mode == ROPE_SECTIONS_INTERLEAVED) {
        int left[3] = {p->sections[0], p->sections[1], p->sections[2]};
        for (int j = 0; j < p->sections[0] + p->sections[1] + p->sections[2] + p->sections[3]; j++)
            list[j] = (char)('0' + (left[j % 3]-- > 0 ? j % 3 : 3));
    } else {
        return 0;
    }
    return list[i % (int64_t)strlen(list)] - '0';
}

static void naive_rope(const struct node *n, double *const *s, double *y)
{
    const struct rope_params *p = node_params(n, struct rope_params);
    const struct tensor *x = n->src[0];
    double d = p->n_dims, base = p->base, scale = p->freq_scale;
    memcpy(y, s[0], sizeof *y * (size_t)tensor_elements(x));
    for (int64_t t = 0; t < x->ne[2]; t++)
        for (int64_t h = 0; h < x->ne[1]; h++)
            for (int64_t i = 0; i < p->n_dims / 2; i++) {
                double angle = s[1][t + coordinate(p, i) * x->ne[2]] * exp(-2 * (double)i / d * log(base));
                double theta, magnitude = p->attn_factor;
                if (n->src[2])
                    angle /= s[2][i];
                theta = scale * angle;
                if (p->ext_factor != 0) {
                    double lo = floor(d * log(p->n_ctx_orig / (2 * acos(-1) * (double)p->beta_fast)) / (2 * log(base)));
                    double hi = ceil(d * log(p->n_ctx_orig / (2 * acos(-1) * (double)p->beta_slow)) / (2 * log(base)));
                    lo = lo < 0 ? 0 : lo;
                    hi = hi > d - 1 ? d - 1 : hi;
                    double part = ((double)i - lo) / (hi - lo > 0.001 ? hi - lo : 0.001);
                    double r = (1 - (part < 0 ? 0 : part > 1 ? 1 : part)) * (double)p->ext_factor;
                    theta = scale * angle * (1 - r) + angle * r;
                    magnitude *= 1 - 0.1 * log(scale);
                }
                int64_t a = p->mode == ROPE_NORM ? 2 * i : i, b = p->mode == ROPE_NORM ? 2 * i + 1 : i + p->n_dims / 2;
                double u = s[0][at(x, a, h, t, 0)], v = s[0][at(x, b, h, t, 0)];
                y[at(x, a, h, t, 0)] = magnitude * (u * cos(theta) - v * sin(theta));
                y[at(x, b, h, t, 0)] = magnitude * (u * sin(theta) + v * cos(theta));
            }
}

static void naive_attention(const struct node *n, double *const *s, double *y)
{
    const struct attention_params *p = node_params(n, struct attention_params);
    const struct tensor *q = n->src[0], *k = n->src[1], *v = n->src[2], *map = n->src[5];
    for (int64_t t = 0; t < q->ne[2]; t++)
        for (int64_t h = 0; h < q->ne[1]; h++) {
            int64_t position = (int64_t)s[3][t], group = h * k->ne[2] / q->ne[1];
            double scale = (double)p->scale;
            if (p->temperature != 0 && position > 0)
                scale *= 1 + (double)p->temperature * log((double)(position / p->temperature_period + 1));
            double total = n->src[6] && position >= 0 ? exp(s[6][h]) : 0;
            double *out = y + at(n->out, 0, h, t, 0);
            memset(out, 0, sizeof *out * (size_t)v->ne[0]);
            for (int64_t j = 0; j <= position; j++) {
                if (p->window && position - j >= p->window)
                    continue;
                int64_t cell = (int64_t)s[5][j + (int64_t)s[4][t] * map->ne[0]];
                double score = 0;
                for (int64_t i = 0; i < q->ne[0]; i++)
                    score += s[0][at(q, i, h, t, 0)] * s[1][at(k, i, cell, group, 0)] * scale;
                if (p->softcap > 0)
                    score = (double)p->softcap * tanh(score / (double)p->softcap);
                total += exp(score); /* scores of cases are far from the range of exp */
                for (int64_t i = 0; i < v->ne[0]; i++)
                    out[i] += exp(score) * s[2][at(v, i, cell, group, 0)];
            }
            for (int64_t i = 0; i < v->ne[0] && total > 0; i++)
                out[i] /= total;
        }
}

/* The whole cache after the write: before it, the sources hold what it was; rows are packed and unpacked one by one. */
static void naive_kv_write(const struct node *n, double *const *s, double *y)
{
    const struct tensor *rows = n->src[0], *cache = n->src[1];
    const struct format *f = format_get(cache->format);
    int64_t d = rows->ne[0];
    memcpy(y, s[1], sizeof *y * (size_t)tensor_elements(cache));
    for (int64_t t = 0; t < rows->ne[2]; t++)
        for (int64_t h = 0; h < rows->ne[1]; h++) {
            float row[1024];
            unsigned char packed[4096];
            int64_t cell = (int64_t)s[2][t];
            if (cell < 0 || cell >= cache->ne[1])
                continue;
            for (int64_t i = 0; i < d; i++)
                row[i] = (float)s[0][at(rows, i, h, t, 0)];
            f->pack(row, packed, d);
            f->unpack(packed, row, d);
            for (int64_t i = 0; i < d; i++)
                y[at(cache, i, cell, h, 0)] = (double)row[i];
        }
}

/* Quantize and copy: the same format's pack over the dense row. */
static void naive_convert(const struct node *n, double *const *s, double *y)
{
    const struct format *f = format_get(n->out->format);
    int64_t width = n->out->ne[0];
    float *row = malloc(sizeof *row * (size_t)(width + 1));
    void *packed = malloc(format_row_bytes(f, width) + 1);
    for (int64_t r = 0; r < tensor_rows(n->out); r++) {
        for (int64_t i = 0; i < width; i++)
            row[i] = (float)s[0][r * width + i];
        if (n->out->format != FORMAT_I32) {
            f->pack(row, packed, width);
            f->unpack(packed, row, width);
        }
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = (double)row[i];
    }
    free(row);
    free(packed);
}

/* The place of sequence `seq` in slots, -1: none. */
static int64_t slot_of(const struct node *n, double *const *s, int slots, int state, int64_t seq, int64_t writes)
{
    const struct tensor *t = n->src[state];
    int64_t slot = (int64_t)s[slots][2 * seq + writes], n_slots = op_get(n->op)->updates == 3 ? t->ne[2] : t->ne[3];
    return slot >= 0 && slot < n_slots ? slot : -1;
}

/* Token by token with a window of its own, which is shifted; s[2] becomes the new state. */
static void naive_ssm_conv(const struct node *n, double *const *s, double *y)
{
    int64_t channels = n->out->ne[0], width = n->src[1]->ne[0], n_tokens = n->out->ne[1], size = channels * (width - 1);
    double *window = calloc((size_t)(size + 1), sizeof *window), *slots = s[2];
    memset(y, 0, sizeof *y * (size_t)tensor_elements(n->out));
    for (int64_t seq = 0; seq < n->src[4]->ne[1]; seq++) {
        int64_t from = slot_of(n, s, 4, 2, seq, 0), to = slot_of(n, s, 4, 2, seq, 1), seen = 0;
        for (int64_t i = 0; i < size; i++)
            window[i] = from < 0 ? 0 : slots[from * size + i];
        for (int64_t t = 0; t < n_tokens; t++) {
            if ((int64_t)s[3][t] != seq)
                continue;
            seen++;
            const double *x = s[0] + t * channels;
            for (int64_t c = 0; c < channels; c++) {
                y[t * channels + c] = s[1][c * width + width - 1] * x[c];
                for (int64_t j = 0; j < width - 1; j++)
                    y[t * channels + c] += s[1][c * width + j] * window[j * channels + c];
            }
            for (int64_t j = 0; j < width - 1; j++)
                memcpy(window + j * channels, j + 2 < width ? window + (j + 1) * channels : x, sizeof *x * (size_t)channels);
        }
        if (seen && to >= 0)
            memcpy(slots + to * size, window, sizeof *window * (size_t)size);
    }
    free(window);
}

/* S (I - beta k k^T) written out as one matrix, instead of a correction; s[5] becomes the new state. */
static void naive_gated_delta_rule(const struct node *n, double *const *s, double *y)
{
    int64_t d_k = n->src[0]->ne[0], n_k = n->src[0]->ne[1], d_v = n->out->ne[0], n_v = n->out->ne[1], size = d_k * d_v;
    double *old = malloc(sizeof *old * (size_t)size), *now = malloc(sizeof *now * (size_t)size);
    const struct gated_delta_rule_params *p = node_params(n, struct gated_delta_rule_params);
    memset(y, 0, sizeof *y * (size_t)tensor_elements(n->out));
    for (int64_t seq = 0; seq < n->src[7]->ne[1]; seq++)
        for (int64_t h = 0; h < n_v; h++) {
            int64_t from = slot_of(n, s, 7, 5, seq, 0), to = slot_of(n, s, 7, 5, seq, 1), seen = 0, kh = h % n_k;
            if (p->heads == DELTA_GROUPED)
                for (kh = 0; h >= (kh + 1) * (n_v / n_k); kh++)
                    ;
            for (int64_t i = 0; i < size; i++)
                now[i] = from < 0 ? 0 : s[5][(from * n_v + h) * size + i];
            for (int64_t t = 0; t < n->out->ne[2]; t++) {
                if ((int64_t)s[6][t] != seq)
                    continue;
                seen++;
                const double *q = s[0] + (t * n_k + kh) * d_k, *k = s[1] + (t * n_k + kh) * d_k, *v = s[2] + (t * n_v + h) * d_v;
                double decay = exp(s[3][t * n_v + h]), beta = s[4][t * n_v + h];
                memcpy(old, now, sizeof *old * (size_t)size);
                for (int64_t i = 0; i < d_k; i++)
                    for (int64_t j = 0; j < d_v; j++) {
                        double sum = beta * v[j] * k[i];
                        for (int64_t m = 0; m < d_k; m++)
                            sum += decay * old[m * d_v + j] * ((m == i) - beta * k[m] * k[i]);
                        now[i * d_v + j] = sum;
                    }
                for (int64_t j = 0; j < d_v; j++)
                    for (int64_t i = 0; i < d_k; i++)
                        y[(t * n_v + h) * d_v + j] += (double)p->scale * now[i * d_v + j] * q[i];
            }
            for (int64_t i = 0; i < size && seen && to >= 0; i++)
                s[5][(to * n_v + h) * size + i] = now[i];
        }
    free(old);
    free(now);
}

typedef void naive_fn(const struct node *n, double *const *s, double *y);
static naive_fn *naive_of(enum op op)
{
    switch (op) {
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_UNARY:
    case OP_GLU:
    case OP_RESHAPE:
        return naive_elementwise;
    case OP_RMS_NORM:
    case OP_L2_NORM:
    case OP_SOFTMAX:
        return naive_rows;
    case OP_SSM_CONV:
        return naive_ssm_conv;
    case OP_GATED_DELTA_RULE:
        return naive_gated_delta_rule;
    case OP_GET_ROWS:
        return naive_get_rows;
    case OP_QUANTIZE:
    case OP_COPY:
        return naive_convert;
    case OP_MUL_MAT:
        return naive_mul_mat;
    case OP_TOP_K:
        return naive_top_k;
    case OP_ROUTE_WEIGHTS:
        return naive_route_weights;
    case OP_MUL_MAT_ID:
        return naive_mul_mat_id;
    case OP_EXPERT_SUM:
        return naive_expert_sum;
    case OP_ROPE:
        return naive_rope;
    case OP_KV_WRITE:
        return naive_kv_write;
    case OP_ATTENTION:
        return naive_attention;
    default:
        return NULL; /* view and permute: test_op_rules.c checks their addresses */
    }
}

/* ---- running the cases */

static void compare_values(const struct case_run *c, const char *name, const struct tensor *t, const double *expected)
{
    int64_t n = tensor_elements(t);
    double *found = dense(t), largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++) {
        double allowed = fabs(expected[i]) * 0x1p-23 + largest * 1e-12 + 1e-44;
        if (!(fabs(found[i] - expected[i]) <= allowed))
            fail_msg("%s %s: element %lld of %s is %.9g, the definition gives %.9g", op_get(c->node.op)->name, name, (long long)i,
                     t->name, found[i], expected[i]);
    }
    free(found);
}

/* Each value is the naive one, but for one rounding to f32 and what sums in another order lose in double. */
static void compare_with_naive(const struct case_run *c, const char *name, double *const *sources)
{
    naive_fn *naive = naive_of(c->node.op);
    if (!naive)
        return;
    double *expected = malloc(sizeof *expected * (size_t)(tensor_elements(&c->out) + 1));
    naive(&c->node, sources, expected);
    compare_values(c, name, &c->out, expected);
    if (node_updates(&c->node))
        compare_values(c, name, node_updates(&c->node), sources[op_get(c->node.op)->updates - 1]);
    free(expected);
}

static void run_case(enum op op, int i)
{
    const struct op_desc *desc = op_get(op);
    const char *name = desc->cases[i].name;
    struct case_run first = {0};
    for (int p = 0; p < N_POOLS; p++) {
        struct case_run c;
        struct hone_error e = {0};
        double *sources[MAX_SRC] = {NULL};
        if (case_create(&c, op, i, SEED + (uint64_t)i, &e))
            fail_msg("%s %s: %s", desc->name, name, e.message);
        for (int s = 0; s < c.node.n_src && p == 0; s++)
            sources[s] = c.node.src[s] ? dense(c.node.src[s]) : NULL;
        if (case_reference(&c, pools[p], &e) || case_damage(&c, &e))
            fail_msg("%s %s with %d threads: %s", desc->name, name, thread_counts[p], e.message);
        struct cost cost = desc->cost(&c.node);
        if (!(cost.read >= 0 && cost.written >= 0 && cost.flops >= 0) || !isfinite(cost.read + cost.written + cost.flops))
            fail_msg("%s %s: its cost is %g, %g, %g", desc->name, name, cost.read, cost.written, cost.flops);
        if (p == 0) {
            compare_with_naive(&c, name, sources);
            memcpy(&first, &c, sizeof c);
        } else {
            for (int m = 0; m <= MAX_SRC; m++)
                if (c.memory[m].size && memcmp(c.memory[m].bytes, first.memory[m].bytes, c.memory[m].size) != 0)
                    fail_msg("%s %s: %d threads give other bits than one", desc->name, name, thread_counts[p]);
            case_free(&c);
        }
        for (int s = 0; s < MAX_SRC; s++)
            free(sources[s]);
    }
    case_free(&first);
}

static void run_op(enum op op)
{
    const struct op_desc *desc = op_get(op);
    if (!desc->shape)
        return; /* a fused op means its parts, and has cases where they meet: in the graph */
    assert_true(desc->n_cases > 0);
    for (int i = 0; i < desc->n_cases; i++) {
        for (int j = 0; j < i; j++)
            if (!strcmp(desc->cases[i].name, desc->cases[j].name))
                fail_msg("%s has two cases %s", desc->name, desc->cases[i].name);
        run_case(op, i);
    }
}

#define OP(NAME, name)                                                                                                         \
    static void test_##name(void **st)                                                                                         \
    {                                                                                                                          \
        (void)st;                                                                                                              \
        run_op(OP_##NAME);                                                                                                     \
    }
#include "ops/ops.def"
#undef OP

/* The helper itself: the same seed gives the same bytes, another one others; a write outside is found. */
static void test_cases_are_honest(void **state)
{
    (void)state;
    struct case_run a, b, other;
    struct hone_error e = {0};
    int padded = 0;
    while (strcmp(op_get(OP_MUL_MAT)->cases[padded].name, "padded_q8_0"))
        padded++;
    assert_int_equal(case_create(&a, OP_MUL_MAT, padded, 1, &e), 0);
    assert_int_equal(case_create(&b, OP_MUL_MAT, padded, 1, &e), 0);
    assert_int_equal(case_create(&other, OP_MUL_MAT, padded, 2, &e), 0);
    assert_memory_equal(a.memory[0].bytes, b.memory[0].bytes, a.memory[0].size);
    assert_int_not_equal(memcmp(a.memory[0].bytes, other.memory[0].bytes, a.memory[0].size), 0);
    assert_int_equal(case_damage(&a, &e), 0);
    ((char *)a.src[0].data)[0] ^= 1; /* a source */
    assert_int_equal(case_damage(&a, &e), HONE_ECHECK);
    ((char *)a.src[0].data)[0] ^= 1;
    ((char *)a.src[0].data)[format_row_bytes(format_get(FORMAT_Q8_0), a.src[0].ne[0])] ^= 1; /* a gap between rows */
    e = (struct hone_error){0};
    assert_int_equal(case_damage(&a, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "no element"));
    ((char *)b.out.data)[tensor_nbytes(&b.out)] = 0; /* behind the output */
    assert_int_equal(case_damage(&b, &e), HONE_ECHECK);
    case_free(&a);
    case_free(&b);
    case_free(&other);
}

static void test_nmse(void **state)
{
    (void)state;
    float x[4] = {1, 2, -2, 4}, y[4] = {1, 2, -2, 4};
    struct tensor a = {.data = y}, b = {.data = x};
    int64_t worst = -1;
    tensor_shape(&a, FORMAT_F32, 2, (const int64_t[]){2, 2});
    tensor_shape(&b, FORMAT_F32, 2, (const int64_t[]){2, 2});
    assert_true(tensor_nmse(&a, &b, &worst) == 0);
    y[2] = -2.5f;
    assert_true(fabs(tensor_nmse(&a, &b, &worst) - 0.01) < 1e-15);
    assert_int_equal(worst, 2);
    y[1] = NAN;
    assert_true(isnan(tensor_nmse(&a, &b, &worst)));
    assert_int_equal(worst, 1);
    x[1] = NAN; /* the reference has it too */
    assert_false(isnan(tensor_nmse(&a, &b, NULL)));
    x[1] = y[1] = INFINITY;
    assert_false(isnan(tensor_nmse(&a, &b, NULL)));
    y[1] = -INFINITY;
    assert_true(isnan(tensor_nmse(&a, &b, NULL)));
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    assert_true(tensor_nmse(&a, &b, NULL) == 0);
    y[3] = 1e-9f;
    assert_true(isinf(tensor_nmse(&a, &b, NULL)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define OP(NAME, name) cmocka_unit_test(test_##name),
#include "ops/ops.def"
#undef OP
        cmocka_unit_test(test_cases_are_honest),
        cmocka_unit_test(test_nmse),
    };
    return cmocka_run_group_tests_name("ops", tests, start_pools, stop_pools);
}
