/* shard_layers.c: the other way to divide: each rank runs a stretch of layers, whole.
 *
 * Stretches are measured in bytes of weights, which is what a decode step reads, the head counting with the last. What one
 * stretch leaves to a later one goes to all ranks by a node of its own at the border: an all_gather to which one rank brings
 * everything and the others nothing, so that all ranks meet in the same order whatever they run. A send from one rank to the
 * next would spare the others 20 KB a border; it would be a second kind of meeting to make safe. Only one rank works at a time:
 * this divides memory, not time. */
#include "graph/shard_pass.h"

#include "ops/all_gather.h"

#include <stdio.h>
#include <string.h>

bool shard_runs_layer(const struct shard *s, int rank, int layer)
{
    return s->mode == SHARD_TENSOR || (layer >= 0 && layer < s->n_layer && s->layer_rank[layer] == rank);
}

/* Which rank runs node i: that of its layer; before the first layer the first, behind the last the last. */
static int owner_of(const struct shard *s, const struct graph *g, int i)
{
    if (g->nodes[i]->layer >= 0)
        return s->layer_rank[g->nodes[i]->layer];
    for (int j = i; j-- > 0;)
        if (g->nodes[j]->layer >= 0)
            return s->n_ranks - 1;
    return 0;
}

static bool is_new_weight(struct pass *seen, const struct tensor *t)
{
    if (!t || t->kind != TENSOR_WEIGHT)
        return false;
    struct mark *m = mark_of(seen, t);
    return !m->listed++;
}

/* Bytes of each layer's weights, behind them those of the head. */
static bool weigh(const struct graph *g, int n_layer, double *bytes)
{
    struct arena scratch = {0};
    struct shard none = {0};
    struct pass seen;
    bool good = pass_init(&seen, &none, g, &scratch, 0), behind = false;
    for (int i = 0; i < g->n_nodes && good; i++) {
        const struct node *n = g->nodes[i];
        behind |= n->layer >= 0;
        for (int j = 0; j < n->n_src; j++)
            if (n->op != OP_GET_ROWS && is_new_weight(&seen, n->src[j]) && (behind || n->layer >= 0))
                bytes[n->layer < 0 ? n_layer : n->layer] += op_stored_bytes(n->src[j]);
    }
    arena_free(&scratch);
    return good;
}

static void deal(struct shard *s, const double *bytes)
{
    double total = bytes[s->n_layer], before = 0;
    for (int i = 0; i < s->n_layer; i++)
        total += bytes[i];
    for (int i = 0, at = 0; i < s->n_layer; i++) {
        int least = s->n_ranks - (s->n_layer - i), rank = at;
        double middle = before + bytes[i] / 2;
        if (i && rank + 1 < s->n_ranks &&
            (middle >= s->ends[rank] * total || rank < least)) /* never past one: each has a layer */
            rank++;
        s->layer_rank[i] = at = rank;
        s->layer_bytes[rank] += bytes[i];
        before += bytes[i];
    }
    s->layer_bytes[s->n_ranks - 1] += bytes[s->n_layer];
}

int layers_cut(struct shard *s, const struct graph *whole, struct hone_error *e)
{
    for (int i = 0; i < whole->n_nodes; i++)
        s->n_layer = whole->nodes[i]->layer >= s->n_layer ? whole->nodes[i]->layer + 1 : s->n_layer;
    if (s->n_layer < s->n_ranks)
        return err_set(e, HONE_EUSAGE, "%d layers cannot be shared out over %d devices", s->n_layer, s->n_ranks);
    double *bytes = arena_array(&s->arena, (size_t)s->n_layer + 1, sizeof *bytes);
    int64_t *parts = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *parts);
    struct piece *none = arena_array(&s->arena, 1, sizeof *none), *all = arena_array(&s->arena, 1, sizeof *all);
    s->rows = arena_array(&s->arena, 1, sizeof *s->rows);
    s->layer_rank = arena_array(&s->arena, (size_t)s->n_layer, sizeof *s->layer_rank);
    s->layer_bytes = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *s->layer_bytes);
    if (!bytes || !parts || !none || !all || !s->rows || !s->layer_rank || !s->layer_bytes || !weigh(whole, s->n_layer, bytes))
        return err_set(e, HONE_ERESOURCE, "no memory to share layers out");
    deal(s, bytes);
    for (int i = 0; i < s->n_layer; i++)
        parts[s->layer_rank[i]]++;
    *all = (struct piece){0, whole->logits->ne[0]};
    for (int r = 0; r < s->n_ranks; r++)
        s->logits[r] = r + 1 < s->n_ranks ? (struct split){0, 0, none, 0} : (struct split){0, 1, all, all->count};
    s->rows[0] = (struct shard_row){
        .name = "layers", .how = "layers", .why = "", .total = s->n_layer, .parts = parts, .n_tensors = s->n_layer};
    for (int r = 0; r < s->n_ranks; r++)
        s->rows[0].bytes += s->layer_bytes[r];
    s->n_rows = 1;
    return 0;
}

/* A value of one rank on all of them. */
static bool hand_over(struct pass *p, const struct tensor *t, int owner)
{
    struct mark *m = mark_of(p, t);
    struct tensor *part = m->local;
    if (owner != p->rank) {
        int64_t ne[MAX_DIMS] = {0, t->ne[1], t->ne[2], t->ne[3]};
        part = graph_input(p->local, "nothing", FORMAT_F32, MAX_DIMS, ne);
    }
    if (!part)
        return false;
    part->sharding = SHARDING_SPLIT;
    p->local->layer = -1;
    m->local = graph_op(p->local, OP_ALL_GATHER, (&(struct all_gather_params){(int32_t)t->ne[0]}), part);
    if (!m->local)
        return false;
    snprintf(m->local->name, sizeof m->local->name, "%.*s.handover", NAME_SIZE - 12, t->name);
    return true;
}

/* Notes of every value which rank is the last to read it, plus one. */
static void note_readers(struct pass *p)
{
    for (int i = 0; i < p->whole->n_nodes; i++) {
        unsigned rank = (unsigned)owner_of(p->s, p->whole, i) + 1;
        for (int j = 0; j < p->whole->nodes[i]->n_src; j++) {
            struct mark *m = p->whole->nodes[i]->src[j] ? mark_of(p, p->whole->nodes[i]->src[j]) : NULL;
            if (m && m->listed < rank)
                m->listed = rank;
        }
    }
}

/* All that nodes [first, end) of one rank leave to later ones. */
static bool border(struct pass *p, int first, int end, int owner)
{
    for (int i = first; i < end; i++) {
        const struct tensor *t = p->whole->nodes[i]->out;
        if ((int)mark_of(p, t)->listed > owner + 1 && !hand_over(p, t, owner))
            return false;
    }
    return true;
}

static bool copy_node(struct pass *p, const struct node *n)
{
    struct tensor *src[MAX_SRC] = {NULL};
    for (int j = 0; j < n->n_src; j++)
        if (n->src[j])
            src[j] = n->src[j]->kind == TENSOR_WEIGHT ? n->src[j] : mark_of(p, n->src[j])->local;
    return emit(p, n, (struct spread){SHARDING_MIRRORED, {0}, -1}, src);
}

int layers_graph(struct shard *s, int rank, const struct graph *whole, const struct shard_pair *pairs, int n_pairs,
                 struct graph *local)
{
    struct pass p;
    int owner = 0, first = 0;
    if (graph_error(whole, &local->error) || !pass_init(&p, s, whole, local->arena, rank))
        return err_set(&local->error, HONE_ERESOURCE, "no memory for a rank's graph");
    p.local = local;
    for (int i = 0; i < n_pairs; i++)
        mark_of(&p, pairs[i].whole)->local = pairs[i].local;
    bool good = true;
    note_readers(&p);
    for (int i = 0; i < whole->n_nodes && good; i++) {
        int mine = owner_of(s, whole, i);
        if (mine != owner) {
            good = border(&p, first, i, owner);
            first = i;
            owner = mine;
        }
        if (good && mine == rank)
            good = copy_node(&p, whole->nodes[i]);
    }
    if (good && s->gather_logits)
        good = hand_over(&p, whole->logits, s->n_ranks - 1);
    local->logits = mark_of(&p, whole->logits)->local;
    if (good && !local->logits) /* of a rank that has none: something that lives to the end */
        local->logits = local->nodes[local->n_nodes - 1]->out;
    if (!good && !local->error.code)
        err_set(&local->error, HONE_EFAULT, "rank %d's graph: %s", rank, p.why);
    return local->error.code;
}
