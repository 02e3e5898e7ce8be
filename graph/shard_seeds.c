/* shard_seeds.c: where a cut begins, and how many of what each rank gets.
 *
 * Attention is cut by whole KV groups. With fewer KV heads than ranks every rank has all of them, and the query heads of each
 * group are shared out. A delta rule is cut by heads of K with all heads of V that use them; with too few of those by heads of
 * V. A feed-forward block is cut by its inner width. Experts are cut the same way, each of them, and not dealt out whole: so
 * every rank has the same work whichever are chosen, and two chosen experts do not wait for the rank that has both; the price
 * is that inner widths of few blocks go over few ranks. The head is cut by rows of the vocabulary: its matrix is up to a third
 * of what a small model reads a token, its output 4 bytes a token of the vocabulary.
 *
 * What is cut here is cut along k of the matrix behind it, whose format comes in blocks: units are as large as a block wants.
 * The ends of the runs are rounded from the sum of the shares, so that what one rank loses by rounding the next one gets. */
#include "graph/shard_pass.h"

#include "ops/gated_delta_rule.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    ROWS = 32
}; /* of a matrix that stay together where there are enough: whole cache lines of the output, whole blocks behind it */

int64_t share_end(const struct shard *s, int rank, int64_t n)
{
    int64_t end = llround(s->ends[rank] * (double)n), least = 0, most = n - (s->n_ranks - 1 - rank);
    if (rank)
        least = share_end(s, rank - 1, n);
    end = end < least + 1 ? least + 1 : end;
    return rank + 1 == s->n_ranks ? n : end > most ? most : end;
}

/* This rank's run of `total` things in units of `unit`, as one piece; the last rank has what is left over. False: fewer units
 * than ranks. */
static bool run_of(const struct pass *p, int64_t total, int64_t unit, struct piece *out)
{
    int64_t n = total / unit;
    if (n < p->s->n_ranks)
        return false;
    int64_t lo = p->rank ? share_end(p->s, p->rank - 1, n) * unit : 0, hi = share_end(p->s, p->rank, n) * unit;
    if (p->rank + 1 == p->s->n_ranks)
        hi = total;
    *out = (struct piece){lo, hi - lo};
    return true;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* The smallest number of things of `size` elements each that fills whole blocks. */
static int64_t unit_for(int64_t size, int64_t block)
{
    return block / gcd(size, block);
}

/* The matrix that multiplies t, behind what works element by element; NULL: none. */
static const struct tensor *matrix_behind(const struct graph *g, const struct tensor *t)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = g->nodes[i];
        bool reads = false;
        for (int j = 0; j < n->n_src; j++)
            reads |= n->src[j] == t;
        if (!reads)
            continue;
        switch (n->op) {
        case OP_MUL_MAT:
        case OP_MUL_MAT_ID:
            return n->src[1] == t && n->src[0]->kind == TENSOR_WEIGHT ? n->src[0] : NULL;
        case OP_RESHAPE:
        case OP_VIEW:
        case OP_ADD:
        case OP_MUL:
        case OP_SCALE:
        case OP_UNARY:
        case OP_GLU:
        case OP_RMS_NORM:
            t = n->out;
            break;
        default:
            return NULL;
        }
    }
    return NULL;
}

static int64_t block_behind(const struct pass *p, const struct tensor *t)
{
    const struct tensor *w = matrix_behind(p->whole, t);
    return w ? format_get(w->format)->block : 1;
}

const struct node *product_before(const struct tensor *t)
{
    const struct node *n = t->producer;
    while (n &&
           (n->op == OP_VIEW || n->op == OP_RESHAPE || n->op == OP_ADD || n->op == OP_ROPE || n->op == OP_MUL ||
            n->op == OP_RMS_NORM || n->op == OP_KV_WRITE || n->op == OP_L2_NORM || n->op == OP_UNARY || n->op == OP_SSM_CONV))
        n = n->src[0]->producer;
    return n && (n->op == OP_MUL_MAT || n->op == OP_MUL_MAT_ID) && n->src[0]->kind == TENSOR_WEIGHT ? n : NULL;
}

/* Says of the matrices around a node why they stay whole (printf-style): those before sources 0 to n_src - 1, and the one
 * behind. */
__attribute__((format(printf, 4, 5))) static void say_why(struct pass *p, const struct node *n, int n_src, const char *format,
                                                          ...)
{
    char why[128];
    va_list ap;
    if (p->rank)
        return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    for (int j = 0; j < n_src; j++) {
        const struct node *product = product_before(n->src[j]);
        if (product)
            keep_whole(p->s, product->src[0], why);
    }
    const struct tensor *behind = matrix_behind(p->whole, n->out);
    if (behind)
        keep_whole(p->s, behind, why);
}

static bool wish_pieces(struct pass *p, const struct tensor *t, int axis, const struct piece *pieces, int n)
{
    struct split split;
    return split_make(&split, p->arena, axis, pieces, n) ? wish(p, t, &split) : pass_memory(p);
}

/* Query heads [first, first + count) of each group, and all KV heads. */
static void seed_query_heads(struct pass *p, const struct node *n, int64_t n_group, int64_t group, struct piece part)
{
    struct piece *heads = arena_array(p->arena, (size_t)n_group, sizeof *heads), all = {0, n_group};
    if (!heads) {
        pass_memory(p);
        return;
    }
    for (int64_t g = 0; g < n_group; g++)
        heads[g] = (struct piece){g * group + part.first, part.count};
    wish_pieces(p, n->src[0], 1, heads, (int)n_group);
    for (int j = 1; j <= 2; j++) /* where q, k and v are one matrix the rank needs all of k's and v's rows of it */
        if (product_before(n->src[j]) == product_before(n->src[0]) && n->src[j]->producer->op == OP_KV_WRITE)
            wish_pieces(p, n->src[j]->producer->src[0], 1, &all, 1);
}

static void seed_attention(struct pass *p, const struct node *n)
{
    int64_t n_group = n->src[1]->ne[2], group = n->src[0]->ne[1] / n_group, dim = n->out->ne[0],
            block = block_behind(p, n->out);
    struct piece run;
    if (run_of(p, n_group, unit_for(group * dim, block), &run)) {
        struct piece heads = {run.first * group, run.count * group};
        wish_pieces(p, n->src[1], 2, &run, 1);
        wish_pieces(p, n->src[2], 2, &run, 1);
        wish_pieces(p, n->src[0], 1, &heads, 1);
    } else if (group * dim % block == 0 && run_of(p, group, unit_for(dim, block), &run)) {
        seed_query_heads(p, n, n_group, group, run);
        for (int j = 1; j <= 2 && !p->rank; j++)
            if (product_before(n->src[j]) && product_before(n->src[j]) != product_before(n->src[0]))
                keep_whole(p->s, product_before(n->src[j])->src[0], "fewer KV heads than devices: all have them");
    } else {
        say_why(p, n, 3, "%lld KV heads for %lld query heads each, in blocks of %lld, are too few for %d devices",
                (long long)n_group, (long long)group, (long long)block, p->s->n_ranks);
    }
}

static void seed_delta(struct pass *p, const struct node *n)
{
    int64_t n_k = n->src[1]->ne[1], n_v = n->src[2]->ne[1], dim = n->src[2]->ne[0], block = block_behind(p, n->out);
    int32_t heads = node_params(n, struct gated_delta_rule_params)->heads;
    int64_t each = n_v / n_k, size = heads == DELTA_GROUPED ? each * dim : dim;
    struct piece run;
    struct split keys, values;
    if ((heads == DELTA_GROUPED || n_k * dim % block == 0) && run_of(p, n_k, unit_for(size, block), &run)) {
        if (!split_make(&keys, p->arena, 1, &run, 1) || !delta_value_heads(&values, p->arena, &keys, heads, n_k, n_v)) {
            pass_memory(p);
            return;
        }
        wish(p, n->src[0], &keys);
        wish(p, n->src[1], &keys);
        wish(p, n->src[2], &values);
    } else if (heads == DELTA_TILED && run_of(p, each, unit_for(n_k * dim, block), &run)) {
        struct piece all = {0, n_k}, tiles = {run.first * n_k, run.count * n_k};
        wish_pieces(p, n->src[0], 1, &all, 1); /* q, k and v are one matrix and one state */
        wish_pieces(p, n->src[1], 1, &all, 1);
        wish_pieces(p, n->src[2], 1, &tiles, 1);
    } else {
        say_why(p, n, 3, "%lld heads of K and %lld of V, in blocks of %lld, are too few for %d devices", (long long)n_k,
                (long long)n_v, (long long)block, p->s->n_ranks);
    }
}

/* The inner width of a feed-forward block, or of each of its experts. */
static void seed_ffn(struct pass *p, const struct node *n)
{
    int64_t total = n->out->ne[0], block = block_behind(p, n->out);
    struct piece run;
    if (block % ROWS && run_of(p, total, block * ROWS / gcd(block, ROWS), &run))
        wish_pieces(p, n->out, 0, &run, 1);
    else if (run_of(p, total, block, &run))
        wish_pieces(p, n->out, 0, &run, 1);
    else
        say_why(p, n, 2, "an inner width of %lld in blocks of %lld is too narrow for %d devices", (long long)total,
                (long long)block, p->s->n_ranks);
}

void seed_head(struct pass *p, const struct node *n)
{
    struct piece run;
    if (run_of(p, n->out->ne[0], ROWS, &run))
        wish_pieces(p, n->out, 0, &run, 1);
}

void (*seed_of(const struct graph *g, const struct node *n))(struct pass *p, const struct node *n)
{
    if (n->op == OP_ATTENTION && n->src[1]->ne[2] > 0)
        return seed_attention;
    if (n->op == OP_GATED_DELTA_RULE)
        return seed_delta;
    if (n->op == OP_GLU && product_before(n->src[0]) && product_before(n->src[1]) && matrix_behind(g, n->out))
        return seed_ffn;
    return NULL;
}
