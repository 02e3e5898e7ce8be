/* guards.c: the conditions, one function each. What a fused kernel of some backend could do beyond them (a partial in f16, an
 * index split over the ranks) is a row less here, not a test more in the kernel. */
#include "graph/guards.h"

#include <stdio.h>
#include <string.h>

/* What a guard looks at. */
struct guarded {
    const struct graph *g;
    const struct node *fused, *collective; /* the collective: its first part */
    size_t limit;                          /* bytes */
};

static const struct tensor *root_of(const struct tensor *t)
{
    return t->base ? t->base : t;
}

static bool guard_partial_f32(const struct guarded *c, struct reason *r)
{
    const struct tensor *t = c->collective->src[0];
    return t->format == FORMAT_F32 || fits_not(r, "the partial %s is %s, not f32", t->name, format_get(t->format)->name);
}

/* The index tensor of a get_rows among the parts; NULL: none. */
static const struct tensor *indices_of(const struct node *fused)
{
    for (int i = 1; i < fused->n_parts; i++)
        if (fused->parts[i]->op == OP_GET_ROWS)
            return fused->parts[i]->src[1];
    return NULL;
}

static bool guard_indices_i32(const struct guarded *c, struct reason *r)
{
    const struct tensor *t = indices_of(c->fused);
    return !t || t->format == FORMAT_I32 || fits_not(r, "the indices %s are %s, not i32", t->name, format_get(t->format)->name);
}

static bool is_part(const struct node *fused, const struct node *n)
{
    for (int i = 0; i < fused->n_parts; i++)
        if (fused->parts[i] == n)
            return true;
    return n->out == fused->out;
}

static bool guard_one_reader(const struct guarded *c, struct reason *r)
{
    const struct tensor *sum = root_of(c->collective->out);
    if (c->g->logits && root_of(c->g->logits) == sum && root_of(c->fused->out) != sum)
        return fits_not(r, "the sum %s is an output of the graph", sum->name);
    for (int i = 0; i < c->g->n_nodes; i++) {
        const struct node *n = c->g->nodes[i];
        for (int j = 0; j < n->n_src && !is_part(c->fused, n) && !op_get(n->op)->alias; j++)
            if (n->src[j] && root_of(n->src[j]) == sum)
                return fits_not(r, "the sum %s is read by %s too", sum->name, n->out->name);
    }
    return true;
}

/* What the parts behind the collective read besides its sum and weights: a residual, indices. */
static bool guard_operand_mirrored(const struct guarded *c, struct reason *r)
{
    for (int i = 1; i < c->fused->n_src; i++) {
        const struct tensor *t = c->fused->src[i];
        if (t && t->sharding != SHARDING_MIRRORED)
            return fits_not(r, "%s is %s, not mirrored", t->name, t->sharding == SHARDING_SPLIT ? "split" : "partial");
    }
    return true;
}

static bool guard_result_mirrored(const struct guarded *c, struct reason *r)
{
    for (int i = 0; i < c->fused->n_parts; i++) {
        const struct tensor *t = c->fused->parts[i]->out;
        if (t->sharding != SHARDING_MIRRORED)
            return fits_not(r, "the result %s is %s, not mirrored", t->name,
                            t->sharding == SHARDING_SPLIT ? "split" : "partial");
    }
    return true;
}

static bool guard_size_limit(const struct guarded *c, struct reason *r)
{
    size_t bytes = tensor_nbytes(c->collective->src[0]);
    return bytes <= c->limit ||
           fits_not(r, "the partial %s has %zu bytes, more than comm.limit=%zu", c->collective->src[0]->name, bytes, c->limit);
}

static bool guard_output_fits(const struct guarded *c, struct reason *r)
{
    const struct tensor *x = c->collective->src[0], *y = c->fused->out;
    return tensor_nbytes(y) <= tensor_nbytes(x) || fits_not(r, "the output %s is larger than the partial %s", y->name, x->name);
}

static const struct {
    const char *name;
    bool (*holds)(const struct guarded *c, struct reason *r);
} table[N_GUARDS] = {
#define GUARD(name) {#name, guard_##name},
#include "graph/guards.def"
#undef GUARD
};

const char *guard_name(enum guard g)
{
    return table[g].name;
}

int guard_by_name(const char *name, enum guard *g)
{
    for (int i = 0; i < N_GUARDS; i++)
        if (!strcmp(table[i].name, name)) {
            *g = (enum guard)i;
            return 0;
        }
    return -1;
}

bool guards_hold(const struct graph *g, const struct node *fused, const struct gates *gates, int forced, struct reason *r)
{
    struct guarded c = {g, fused, fused->parts[0], gates_comm_limit(gates)};
    for (int i = 0; i < N_GUARDS; i++) {
        if (i == forced)
            return fits_not(r, "guard %s: told to fail by debug.guard", table[i].name);
        struct reason why = {""};
        if (!table[i].holds(&c, &why))
            return fits_not(r, "guard %s: %.100s", table[i].name, why.text);
    }
    return true;
}
