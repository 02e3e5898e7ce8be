/* fuse_cases.c: the cases of each fusion, by its row in fuse.def, and how one is built. fuse_cases_<kind>.c have the graphs.
 *
 * Cases as data, in the manner of an op's, were the alternative; but a fused node is what the pattern makes of its parts, with
 * sources in an order and readers outside, and the honest way to get one is to let the fusion fire. */
#include "graph/fuse_parts.h"

#include "ops/quantize.h"
#include "ops/scale.h"

#include <string.h>

#define FUSION(name, stage, on) extern const struct fuse_cases fuse_cases_##name;
#include "graph/fuse.def"
#undef FUSION

static const struct fuse_cases *const table[N_FUSIONS] = {
#define FUSION(name, stage, on) [FUSE_##name] = &fuse_cases_##name,
#include "graph/fuse.def"
#undef FUSION
};

struct tensor *case_leaf(struct fuse_case *c, enum tensor_kind kind, const char *name, struct case_src spec)
{
    struct graph *g = &c->graph;
    for (int i = 0; i < MAX_DIMS; i++)
        spec.ne[i] += spec.ne[i] == 0;
    struct tensor *t = graph_input(g, name, spec.format, MAX_DIMS, spec.ne);
    if (!t)
        return NULL;
    INVARIANT(c->n_leaves < FUSE_MAX_LEAVES);
    t->kind = kind;
    c->leaves[c->n_leaves++] = (struct fuse_leaf){t, spec};
    return t;
}

void case_read(struct fuse_case *c, struct tensor *t)
{
    graph_op(&c->graph, OP_SCALE, (&(struct scale_params){.scale = 2}), t);
}

struct tensor *case_quantized(struct fuse_case *c, struct tensor *t, enum format_id format)
{
    return graph_op(&c->graph, OP_QUANTIZE, (&(struct quantize_params){.format = (int32_t)format}), t);
}

int fuse_n_cases(enum fusion_id f)
{
    return table[f]->n;
}

/* Applies fusion f wherever it fires; the last node that it made. */
static struct node *fuse_all(struct graph *g, enum fusion_id f, struct reason *r)
{
    struct node *made = NULL;
    for (int i = g->n_nodes; i-- > 0;) {
        struct reason why = {""};
        struct node *n = i < g->n_nodes ? fuse_try(g, fusion_get(f), i, &why) : NULL;
        if (n) {
            n->fusion = (int)f;
            fuse_apply(g, n);
            made = n;
        } else if (why.text[0]) {
            *r = why;
        }
    }
    return made;
}

int fuse_case_build(struct fuse_case *c, enum fusion_id f, int i, struct arena *arena, struct hone_error *e)
{
    const char *row = (const char *)table[f]->rows + (size_t)i * table[f]->size;
    struct reason r = {""};
    memset(c, 0, sizeof *c);
    memcpy(&c->name, row, sizeof c->name);
    graph_init(&c->graph, arena);
    table[f]->build(c, row);
    if (graph_error(&c->graph, e))
        return e ? e->code : c->graph.error.code;
    if (fusion_get(f)->stage == FUSE_LATE) /* its parts are fused nodes themselves, made by those before it */
        for (int earlier = 0; earlier < (int)f; earlier++)
            if (earlier != FUSE_mul_mat_group || f == FUSE_norm_group)
                fuse_all(&c->graph, (enum fusion_id)earlier, &r);
    c->fused = fuse_all(&c->graph, f, &r);
    return c->fused
               ? 0
               : err_set(e, HONE_EFAULT, "fusion %s does not fire in its case %s: %s", fusion_get(f)->name, c->name, r.text);
}
