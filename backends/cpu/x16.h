/* x16.h: the body of every mul_mat on an x16 layout (formats/x16.h), for any weight format and both vector widths.
 *
 * A kernel file includes its vector words (vec_avx512.h or vec_avx2.h), its format's unpacking (x16_<format>.h), and this. The
 * activation is A8 (formats/a8.c). Per 32 values of a row: unsigned codes times signed activation codes, summed in 32-bit
 * integers, the codes' offset taken out through the sum of the activation's; then times the weight's scale, times the
 * activation's, in f32, added to the output's one sum in the order of k. So an output has the same bits for any number of
 * threads or tokens, and on either vector width.
 *
 * The integer sum starts at the bits of 1.5 * 2^23: read as a float it is that number plus the sum, exactly, and
 * fma(it, scale, -1.5 * 2^23 scale) is the scaled sum, rounded once, since scale has at most 20 bits. That saves the
 * conversion: 10 vector instructions for 8 dot products instead of 11.
 *
 * One body serves decode and prefill. Weights of 32 values x 32 rows (AVX-512) or 8 rows (AVX2) are unpacked into registers
 * once and then meet up to X16_TOKENS tokens, whose running sums lie in the first-level cache. A worker has a contiguous range
 * of rows.
 *
 * Decode is bound by bytes: two streams a thread, each contiguous, prefetched ahead. From the second-level cache, where
 * arithmetic is the bound, a core of Emerald Rapids at 2.7 GHz reads 55 GB/s of Q4_0, 40 of Q4_K and 34 of Q6_K; two cores get
 * 53 to 58 GB/s from memory. Prefill is bound by arithmetic: 254 GMAC/s a core in Q4_0 (95 products a cycle, where the mix of
 * instructions allows 102), 227 in Q4_K, 206 in Q6_K. A tile with its sums in registers that walks unpacked weights in memory
 * was not taken: it loads once for each dot product, as often as the processor can. */
#ifndef BACKENDS_CPU_X16_H
#define BACKENDS_CPU_X16_H

#include "backends/cpu/x16_fits.h"
#include "base/cpu.h"
#include "formats/layouts.h"
#include "formats/x16.h"

#include <stdbool.h>

enum {
    X16_TOKENS = 128,      /* whose sums (16 KB) and activations of one block (6 KB) fit the first-level cache */
    X16_AHEAD = 2048,      /* bytes that weights are prefetched ahead; half in super-blocks */
    X16_MAGIC = 0x4b400000 /* the bits of 1.5 * 2^23 */
};
#define X16_MAGIC_F32 12582912.0f

/* 32 values of one token, made ready from its A8 block: [block][token] in scratch. */
struct x16_act {
    int8_t q[32];
    float d;
    union {
        int32_t init[2]; /* where integer sums start: X16_MAGIC less the offset's share, [1] of the second half */
        float sum[2];    /* d * (sum of codes), that meets a weight's minimum */
    };
    uint32_t unused;
};

/* Of 32 values, a row a lane: w = scale (code - offset) + min; [1] for the second 16 of formats with halves. */
struct x16_scales {
    vec_f scale[2], min[2];
    vec_f magic[2]; /* -1.5 * 2^23 scale: not the format's to set */
};

/* What a format keeps from its super-block's head while its groups are done. */
struct x16_head {
    vec_f d, dmin;
    vec_u code[4];
};

struct x16_format {
    int block, bytes; /* values and bytes of a row's block */
    int offset;       /* of the codes */
    int top;          /* the largest code */
    bool halves;      /* scales for 16 values, not 32 */
    bool mins;        /* has minima; then offset is 0 */
    float gain;       /* w is that many times what the scales say; 0 stands for 1 */
    /* Reads the head of a group-block; NULL: nothing to keep. */
    void (*head)(const uint8_t *block, int lane, struct x16_head *h);
    /* Group g (32 values) of the group-block, rows lane .. lane + VEC_ROWS: w[j] has the codes of values 4 j .. 4 j + 3. */
    void (*group)(const uint8_t *block, const struct x16_head *h, int g, int lane, vec_u *w, struct x16_scales *s);
};

/* For formats: four vectors of nibbles, values 0 to 15 of each row low, 16 to 31 high. */
VEC_INLINE void x16_nibbles(const uint8_t *payload, int lane, vec_u *w)
{
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        vec_u pair = vec_load(payload + 64 * v + 4 * lane);
        w[v] = pair & vec_bytes(15);
        w[v + 4] = pair >> 4 & vec_bytes(15);
    }
}

/* Up to two runs of VEC_ROWS rows that are worked on side by side. */
struct x16_slots {
    const uint8_t *group[2];
    int lane[2];
    int64_t row[2]; /* the first */
};

/* Codes of up to VEC_TOGETHER slots times `tokens` (1 or VEC_TOKENS) tokens, added to sums[token][slot]. A half at a time in
 * formats with halves, so that the integer sums of one are alive. */
VEC_INLINE void x16_step(const struct x16_format *f, vec_u (*w)[8], const struct x16_scales *s, const struct x16_act *act,
                         int tokens, int slots, int stride, float *sums)
{
    const int halves = f->halves ? 2 : 1;
    vec_f sum[VEC_TOKENS][VEC_TOGETHER];
    const int8_t *x[VEC_TOKENS];
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
        x[t] = act[t].q;
#pragma GCC unroll 2
    for (int h = 0; h < halves; h++) {
        vec_u dots[VEC_TOKENS][VEC_TOGETHER];
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
            for (int i = 0; i < slots; i++)
                dots[t][i] = vec_all(f->mins ? (uint32_t)X16_MAGIC : (uint32_t)act[t].init[h]);
        vec_dots(dots, w, x, 8 / halves * h, 8 / halves, tokens, slots, f->top);
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
            for (int i = 0; i < slots; i++) {
                if (h == 0)
                    sum[t][i] = vec_load_f32(sums + (size_t)t * (size_t)stride + i * VEC_ROWS);
                vec_f scaled = vec_fma((vec_f)dots[t][i], s[i].scale[h], s[i].magic[h]);
                sum[t][i] = vec_fma(scaled, vec_all_f32(act[t].d), sum[t][i]);
                if (f->mins)
                    sum[t][i] = vec_fma(s[i].min[h], vec_all_f32(act[t].sum[h]), sum[t][i]);
            }
    }
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
        for (int i = 0; i < slots; i++)
            vec_store_f32(sums + (size_t)t * (size_t)stride + i * VEC_ROWS, sum[t][i]);
}

/* Weights of group g of `together` slots from `first` on, unpacked; what lies ahead of them is asked for. How far, is measured,
 * one thread, as a share of plain reading: at 1, 1.5 and 2 KB Q4_0 reaches 0.89, 0.92, 0.92; Q4_K 0.92, 0.91, 0.88; Q6_K 0.92,
 * 0.91, 0.82; Q4_0 without, 0.76. */
VEC_INLINE void x16_unpack(const struct x16_format *f, const struct x16_slots *slots, const uint8_t *const *block,
                           const struct x16_head *head, int g, int first, int together, vec_u (*w)[8], struct x16_scales *s)
{
    const size_t bytes = (size_t)f->bytes * X16_ROWS / (size_t)(f->block / 32);
    const size_t ahead = (size_t)(f->block == 32 ? X16_AHEAD : X16_AHEAD / 2) + (size_t)g * bytes;
#pragma GCC unroll 2
    for (int i = 0; i < together; i++) {
        int at = first + i;
        f->group(block[at], &head[at], g, slots->lane[at], w[i], &s[i]);
        s[i].magic[0] = s[i].scale[0] * vec_all_f32(-X16_MAGIC_F32);
        if (f->halves)
            s[i].magic[1] = s[i].scale[1] * vec_all_f32(-X16_MAGIC_F32);
        for (size_t p = 0; p < bytes && (VEC_HALVES == 1 || at == 0); p += 64)
            __builtin_prefetch(block[at] + ahead + p);
    }
}

/* sums[token][slot][row] = rows of n_slots (1 or 2) slots times `tokens` tokens, over the whole of k. With `unroll` the groups
 * of a super-block are written out one by one, so that shifts and addresses are constants: worth it where weights are unpacked
 * for one token (Q4_K decode from cache: 1.5 times as fast), and too much code otherwise. */
VEC_INLINE void x16_tile(const struct x16_format *f, const struct x16_slots *slots, int n_slots, int64_t k,
                         const struct x16_act *act, int tokens, bool unroll, float *sums)
{
    /* Two scales a vector of rows leave room for the sums of fewer tokens: 4 to 13 % faster than with as many. */
    const int groups = f->block / 32, stride = 2 * VEC_ROWS, step = f->halves ? VEC_TOKENS / 2 : VEC_TOKENS;
    const int together = n_slots < VEC_TOGETHER ? n_slots : VEC_TOGETHER;
    const uint8_t *block[2] = {slots->group[0], slots->group[1]};
    vec_u w[VEC_TOGETHER][8];
    struct x16_scales s[VEC_TOGETHER];
    memset(sums, 0, sizeof *sums * (size_t)(stride * tokens));
    for (int64_t b = 0; b < k / f->block; b++) {
        struct x16_head head[2];
        for (int i = 0; i < n_slots && f->head; i++)
            f->head(block[i], slots->lane[i], &head[i]);
        if (unroll) {
#pragma GCC unroll 8
            for (int g = 0; g < groups; g++)
#pragma GCC unroll 2
                for (int first = 0; first < n_slots; first += together) {
                    x16_unpack(f, slots, block, head, g, first, together, w, s);
                    x16_step(f, w, s, act + g, 1, together, stride, sums + first * VEC_ROWS);
                }
        } else {
            for (int g = 0; g < groups; g++)
                for (int first = 0; first < n_slots; first += together) {
                    const struct x16_act *x = act + g * tokens;
                    float *to = sums + first * VEC_ROWS;
                    x16_unpack(f, slots, block, head, g, first, together, w, s);
                    int t = 0;
                    for (; t + step <= tokens; t += step)
                        x16_step(f, w, s, x + t, step, together, stride, to + t * stride);
                    for (; t < tokens; t++)
                        x16_step(f, w, s, x + t, 1, together, stride, to + t * stride);
                }
        }
        act += groups * tokens;
        block[0] += (size_t)f->bytes * X16_ROWS;
        block[1] += (size_t)f->bytes * X16_ROWS;
    }
}

/* ---- a whole node: W [k, m] in f's layout times X [k, n, c2, c3] in A8 */

/* Token number t of an activation or output, counted over all its rows. Mostly there is one matrix: the divisions of
 * tensor_row_index, once for each token of a tile, were 6 % of prefill. */
VEC_INLINE void *x16_token(const struct tensor *t, int64_t token)
{
    int64_t i[3];
    if (token < t->ne[1])
        return (char *)t->data + (size_t)token * t->nb[1];
    tensor_row_index(t, token, i);
    return tensor_row(t, i[0], i[1], i[2]);
}

/* `tokens` tokens from number `first` on, made ready in act[block][token]. A few blocks of every token at a time, so that as
 * few streams are written: token by token, each block went to another page, and took three times as long. */
VEC_INLINE void x16_prepare(const struct x16_format *f, const struct tensor *x, int64_t first, int tokens, struct x16_act *act)
{
    enum { BLOCKS = 4 };
    const int offset = VEC_SIGNED && f->top > 127 ? f->offset - 128 : f->offset;
    const int64_t n_blocks = x->ne[0] / 32;
    for (int64_t b = 0; b < n_blocks; b += BLOCKS)
        for (int t = 0; t < tokens; t++) {
            const struct block_a8 *from = (const struct block_a8 *)x16_token(x, first + t) + b;
            struct x16_act *to = &act[b * tokens + t];
            for (int64_t i = b; i < n_blocks && i < b + BLOCKS; i++, from++, to += tokens) {
                int sum[2] = {from->sum[0], from->sum[1]};
                if (!f->halves)
                    sum[0] += sum[1];
                memcpy(to->q, from->qs, sizeof to->q);
                to->d = from->d * (f->gain != 0 ? f->gain : 1);
                for (int h = 0; h < 2; h++)
                    if (f->mins)
                        to->sum[h] = to->d * (float)sum[h];
                    else
                        to->init[h] = X16_MAGIC - offset * sum[h];
            }
        }
}

/* Rows `row` on of one token's m outputs. */
VEC_INLINE void x16_write_rows(float *y, int64_t row, int64_t m, vec_f v)
{
    if (m - row >= VEC_ROWS)
        vec_store_f32(y + row, v);
    else if (m > row)
        memcpy(y + row, &v, (size_t)(m - row) * sizeof *y);
}

VEC_INLINE void x16_write(const struct x16_slots *slots, int n_slots, const struct tensor *out, int64_t first, int tokens,
                          const float *sums)
{
    for (int t = 0; t < tokens; t++) {
        float *y = x16_token(out, first + t);
        for (int i = 0; i < n_slots; i++) {
            x16_write_rows(y, slots->row[i], out->ne[0], vec_load_f32(sums + t * 2 * VEC_ROWS + i * VEC_ROWS));
        }
    }
}

/* Work item i of the row groups [lo, hi): with AVX-512 a group of the lower half of the range beside one of the upper half, so
 * that each slot's stream is contiguous; with AVX2 the two halves of one group. */
VEC_INLINE int x16_item(int64_t i, int64_t lo, int64_t hi, const uint8_t *weights, size_t group_bytes, struct x16_slots *slots)
{
    int64_t half = (hi - lo) / 2, group[2] = {lo + i, lo + i};
    int n_slots = 2;
    if (VEC_HALVES == 1) {
        n_slots = i < half ? 2 : 1;
        group[0] = i < half ? lo + i : hi - 1;
        group[1] = i < half ? lo + half + i : hi - 1;
    }
    for (int s = 0; s < 2; s++) {
        slots->lane[s] = VEC_HALVES == 1 ? 0 : s * VEC_ROWS;
        slots->group[s] = weights + (size_t)group[s] * group_bytes;
        slots->row[s] = group[s] * X16_ROWS + slots->lane[s];
    }
    return n_slots;
}

static inline int64_t x16_items(int64_t groups)
{
    return VEC_HALVES == 1 ? (groups + 1) / 2 : groups;
}

static inline size_t x16_act_bytes(const struct node *n)
{
    int64_t tokens = tensor_rows(n->out) < X16_TOKENS ? tensor_rows(n->out) : X16_TOKENS;
    return ((size_t)(n->src[1]->ne[0] / 32) * (size_t)tokens * sizeof(struct x16_act) + 63) / 64 * 64;
}

static inline size_t x16_scratch(const struct node *n)
{
    return x16_act_bytes(n) + sizeof(float) * X16_TOKENS * 2 * X16_ROWS;
}

/* Worker w's share of n. */
VEC_INLINE void x16_mul_mat(const struct x16_format *f, const struct node *n, const struct worker *w)
{
    const struct tensor *weight = n->src[0], *x = n->src[1], *out = n->out;
    const size_t group_bytes = (size_t)(weight->ne[0] / f->block) * (size_t)f->bytes * X16_ROWS;
    struct x16_act *act = w->scratch;
    float *sums = (float *)(void *)((char *)w->scratch + x16_act_bytes(n));
    int64_t lo, hi, n_tokens = tensor_rows(out);
    worker_range(w, x16_groups(weight->ne[1]), X16_GRAIN, &lo, &hi);
    for (int64_t first = 0; first < n_tokens && lo < hi; first += X16_TOKENS) {
        int tokens = (int)(n_tokens - first < X16_TOKENS ? n_tokens - first : X16_TOKENS);
        x16_prepare(f, x, first, tokens, act);
        for (int64_t i = 0; i < x16_items(hi - lo); i++) {
            struct x16_slots slots;
            int n_slots = x16_item(i, lo, hi, weight->data, group_bytes, &slots);
            if (n_slots == 2 && tokens == 1)
                x16_tile(f, &slots, 2, weight->ne[0], act, 1, true, sums);
            else if (n_slots == 2)
                x16_tile(f, &slots, 2, weight->ne[0], act, tokens, false, sums);
            else
                x16_tile(f, &slots, 1, weight->ne[0], act, tokens, false, sums);
            x16_write(&slots, n_slots, out, first, tokens, sums);
        }
    }
}

/* Defines cpu_mul_mat_<name>_<isa> for the format description x16_<name>. */
#define X16_KERNEL(name, isa, cpu_needs)                                                                                       \
    static bool fits(const struct node *n, struct reason *r)                                                                   \
    {                                                                                                                          \
        return x16_fits(&layout_##name##_x16, FORMAT_A8, n, r);                                                                \
    }                                                                                                                          \
    static int run(const struct exec *x, const struct node *n)                                                                 \
    {                                                                                                                          \
        x16_mul_mat(&x16_##name, n, &x->worker);                                                                               \
        return 0;                                                                                                              \
    }                                                                                                                          \
    const struct kernel cpu_mul_mat_##name##_##isa = {                                                                         \
        .op = OP_MUL_MAT,                                                                                                      \
        .variant = #name "_" #isa,                                                                                             \
        .needs = cpu_needs,                                                                                                    \
        .wants = {.layout = &layout_##name##_x16, .quantized = true, .activation = FORMAT_A8},                                 \
        .fits = fits,                                                                                                          \
        .scratch = x16_scratch,                                                                                                \
        .run = run}

#endif
