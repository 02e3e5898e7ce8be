/* trace.c: measuring with the planner's own observer. Watching costs two meetings of the threads and two readings of the clock a node, so
 * the step is also timed whole, unwatched: what the nodes' sum lacks or exceeds is shown, not hidden. Hardware counters would
 * perturb less; they are not to be had in most virtual machines. */
#include "lab/trace.h"

#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "graph/fuse.h"
#include "lab/roof.h"
#include "lab/stats.h"
#include "ops/attention.h"

#include <stdlib.h>
#include <string.h>

struct watch {
    const struct plan *plan; /* what ran */
    const struct comm *comm; /* NULL: one device */
    double *samples, *waits; /* [step][repeat] */
    int repeat, repeats;
    int64_t waited; /* by the end of the step before */
};

/* Of the first step: which plan it took. */
static int first_watched(void *user, const struct plan *p, int step, int64_t ns)
{
    struct watch *w = user;
    (void)step, (void)ns;
    w->plan = p;
    return 0;
}

static int watched(void *user, const struct plan *p, int step, int64_t ns)
{
    struct watch *w = user;
    if (p != w->plan) /* what declines declines every step; else this one is not counted */
        return 0;
    size_t at = (size_t)step * (size_t)w->repeats + (size_t)w->repeat;
    w->samples[at] = (double)ns;
    if (w->comm) {
        int64_t waited = comm_counts(w->comm).wait_ns;
        w->waits[at] = (double)(waited - w->waited);
        w->waited = waited;
    }
    return 0;
}

static void draw_tokens(struct hone_token *tokens, int32_t n, int32_t n_vocab)
{
    struct rng r = rng_seed(20261130);
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){(int32_t)rng_below(&r, (uint64_t)n_vocab), 0, i + 1 == n};
}

/* One step from depth, timed; the sequence is cut back afterwards. */
static int step_once(struct hone_session *s, const struct hone_token *tokens, int32_t n, int32_t depth, double *ns, struct hone_error *e)
{
    int64_t start = clock_ns();
    int rc = hone_session_eval(s, tokens, (size_t)n, e);
    *ns = (double)(clock_ns() - start);
    return rc ? rc : hone_session_rewind(s, 0, depth, e);
}

/* The step that packs, touches and warms; it also shows which plan runs. */
static int warm(struct trace *t, struct hone_session *s, const struct hone_token *tokens, const struct trace_options *o, int32_t depth,
                struct hone_error *e)
{
    struct watch w = {.plan = t->planned};
    struct observer observer = {&w, NULL, first_watched};
    double ignored;
    session_observe(s, &observer);
    int rc = step_once(s, tokens, o->n_tokens, depth, &ignored, e);
    session_observe(s, NULL);
    t->plan = w.plan;
    return rc;
}

static int measure(struct trace *t, struct hone_session *s, const struct hone_token *tokens, const struct trace_options *o, int32_t depth,
                   struct hone_error *e)
{
    size_t n = (size_t)t->plan->n_steps, repeats = (size_t)o->repeats;
    struct watch w = {.plan = t->plan, .comm = session_comm(s), .samples = calloc(n * repeats + 1, sizeof(double)),
                      .waits = calloc(n * repeats + 1, sizeof(double)), .repeats = o->repeats};
    double *whole = calloc(repeats, sizeof *whole), ignored;
    int rc = w.samples && w.waits && whole ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %zu samples", n * repeats);
    for (size_t r = 0; r < repeats && !rc; r++)
        rc = step_once(s, tokens, o->n_tokens, depth, &whole[r], e);
    struct observer observer = {&w, NULL, watched};
    session_observe(s, &observer);
    session_set_timed(s, o->timed);
    w.waited = w.comm ? comm_counts(w.comm).wait_ns : 0;
    for (w.repeat = 0; w.repeat < o->repeats && !rc; w.repeat++)
        rc = step_once(s, tokens, o->n_tokens, depth, &ignored, e);
    session_set_timed(s, false);
    session_observe(s, NULL);
    for (size_t i = 0; i < n && !rc; i++) {
        t->nodes[i].ns = stats_median(w.samples + i * repeats, repeats);
        t->nodes[i].wait_ns = stats_median(w.waits + i * repeats, repeats);
    }
    if (!rc && !(t->steps = malloc(repeats * sizeof *t->steps)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for %zu samples", repeats);
    if (!rc) {
        memcpy(t->steps, whole, repeats * sizeof *whole);
        t->step_ns = stats_median(whole, repeats);
    }
    free(w.samples);
    free(w.waits);
    free(whole);
    return rc;
}

/* Attention reads the positions that there are, not the whole map that its op must assume. */
static struct cost cost_at(const struct node *whole, int64_t n_tokens, int64_t depth)
{
    const struct node *n = node_part(whole, OP_ATTENTION);
    struct cost cost = node_cost(whole);
    if (!n)
        return cost;
    int64_t window = node_params(n, struct attention_params)->window, pairs = 0, first = depth;
    for (int64_t t = 0; t < n_tokens; t++) {
        int64_t seen = depth + t + 1;
        if (window && seen > window)
            seen = window;
        if (depth + t + 1 - seen < first)
            first = depth + t + 1 - seen;
        pairs += seen;
    }
    struct cost all = node_cost(n), some = attention_cost_at(n, depth + n_tokens - first, pairs);
    cost.read += some.read - all.read;
    cost.flops += some.flops - all.flops;
    return cost;
}

/* What the collectives of the step did, and this rank's counts so far, which hold warm-ups and every step before. */
static int find_collectives(struct trace *t, const struct hone_session *s, struct hone_error *e)
{
    const struct comm *comm = session_comm(s);
    int rc = collectives_find(&t->collectives, t->planned, t->plan, comm ? comm_size(comm) : 1, e);
    for (int i = 0; i < t->collectives.n; i++) {
        struct collective *c = &t->collectives.list[i];
        c->ns = t->nodes[c->step].ns;
        c->wait_ns = t->nodes[c->step].wait_ns;
    }
    if (rc || !comm)
        return rc;
    struct comm_counts counts = comm_counts(comm);
    t->collectives.raw_count = counts.collectives;
    t->collectives.raw_bytes = counts.bytes;
    t->collectives.graphs = session_graphs(s);
    return 0;
}

static int read_roof(struct trace *t, int n_threads, struct hone_error *e)
{
    const struct place *at = roof_place(t->plan);
    return at ? roof_device(at, &t->roof, e) : bandwidth_read(n_threads, &t->roof, e);
}

int trace_run(struct trace *t, struct hone_session *s, const struct hone_model *m, const struct trace_options *o, struct hone_error *e)
{
    *t = (struct trace){.repeats = o->repeats, .spin = session_spin(s), .skips = session_skips_all_reduce(s), .timed = o->timed};
    _Static_assert(N_FUSIONS <= sizeof t->declines / sizeof *t->declines, "more fusions than declines");
    int32_t before = hone_session_length(s, 0), depth = before + o->depth;
    size_t n = (size_t)o->n_tokens, n_fill = (size_t)o->depth;
    struct hone_token *tokens = calloc(n + n_fill + 1, sizeof *tokens);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n + n_fill);
    draw_tokens(tokens, o->n_tokens, hone_model_n_vocab(m));
    int rc = 0;
    if (o->depth && o->repeats) {
        draw_tokens(tokens + n, o->depth, hone_model_n_vocab(m));
        rc = hone_session_eval(s, tokens + n, n_fill, e);
    }
    if (!rc)
        rc = session_plan(s, o->n_tokens, 1, &t->planned, e);
    t->plan = t->planned;
    if (!rc && o->repeats)
        rc = warm(t, s, tokens, o, depth, e);
    if (!rc) {
        t->nodes = calloc((size_t)t->plan->n_steps + 1, sizeof *t->nodes);
        rc = t->nodes ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %d nodes", t->plan->n_steps);
    }
    for (int i = 0; !rc && i < t->plan->n_steps; i++) {
        kernel_name(t->plan->steps[i].backend, t->plan->steps[i].kernel, t->nodes[i].kernel, sizeof t->nodes[i].kernel);
        t->nodes[i].cost = cost_at(t->plan->steps[i].node, o->n_tokens, depth);
    }
    if (!rc && o->repeats) {
        rc = measure(t, s, tokens, o, depth, e);
        if (!rc)
            rc = read_roof(t, o->n_threads, e);
        memcpy(t->declines, session_declines(s), N_FUSIONS * sizeof *t->declines);
    }
    if (!rc)
        rc = find_collectives(t, s, e);
    struct hone_error ignored = {0};
    hone_session_rewind(s, 0, before, &ignored);
    free(tokens);
    if (rc)
        trace_free(t);
    return rc;
}

void trace_free(struct trace *t)
{
    free(t->nodes);
    free(t->steps);
    collectives_free(&t->collectives);
    t->nodes = NULL;
    t->steps = NULL;
}

const char *trace_layer_kind(const struct trace *t, int step)
{
    if (t->plan->steps[step].node->layer >= 0)
        return "block";
    for (int i = 0; i < step; i++)
        if (t->plan->steps[i].node->layer >= 0)
            return "head";
    return "embedding";
}

static void add(struct trace_sum *s, const struct trace_node *n)
{
    s->count++;
    s->ns += n->ns;
    s->bytes += n->cost.read + n->cost.written;
    s->flops += n->cost.flops;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct trace_sum *)a)->ns, y = ((const struct trace_sum *)b)->ns;
    return x < y ? 1 : x > y ? -1 : ((const struct trace_sum *)b)->count - ((const struct trace_sum *)a)->count;
}

int trace_by_op(const struct trace *t, struct trace_sum *sums)
{
    struct trace_sum all[N_OPS] = {{0}};
    int n = 0;
    for (int i = 0; i < t->plan->n_steps; i++)
        add(&all[t->plan->steps[i].node->op], &t->nodes[i]);
    for (int op = 0; op < N_OPS; op++)
        if (all[op].count) {
            sums[n] = all[op];
            sums[n++].name = op_get((enum op)op)->name;
        }
    qsort(sums, (size_t)n, sizeof *sums, by_time);
    return n;
}

static json_t *sum_json(const struct trace *t, const struct trace_sum *s)
{
    double rate = s->ns > 0 ? s->bytes / s->ns * 1e9 : 0;
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "name", s->name, "count", s->count, "ns", s->ns, "bytes", s->bytes, "flops",
                     s->flops, "bytes_per_second", rate, "share_of_roof", t->roof > 0 ? rate / t->roof : 0);
}

static json_t *passed_json(const struct step *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_passed; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "variant", s->passed[i].kernel->variant, "reason", s->passed[i].reason.text));
    return list;
}

static json_t *node_json(const struct trace *t, int i)
{
    const struct step *s = &t->plan->steps[i];
    const struct trace_node *n = &t->nodes[i];
    char shape[128], source[128] = "";
    double bytes = n->cost.read + n->cost.written, rate = n->ns > 0 ? bytes / n->ns * 1e9 : 0;
    if (s->node->n_src)
        tensor_describe(s->node->src[0], source, sizeof source);
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:o}", "name", s->node->out->name, "op",
                     op_get(s->node->op)->name, "layer", s->node->layer, "kind", trace_layer_kind(t, i), "source", source, "out",
                     tensor_describe(s->node->out, shape, sizeof shape), "kernel", n->kernel, "reason",
                     s->moved ? s->moved : s->gate ? s->gate->text : "the fastest that fits", "ns", n->ns, "bytes", bytes, "flops", n->cost.flops,
                     "bytes_per_second", rate, "share_of_roof", t->roof > 0 ? rate / t->roof : 0, "passed_over", passed_json(s));
}

static json_t *fusions_json(const struct trace *t)
{
    json_t *list = json_array();
    for (int f = 0; f < N_FUSIONS; f++) {
        struct trace_sum s = {.name = fusion_get((enum fusion_id)f)->name};
        for (int i = 0; i < t->plan->n_steps; i++)
            if (t->plan->steps[i].node->n_parts && t->plan->steps[i].node->fusion == f)
                add(&s, &t->nodes[i]);
        json_t *one = sum_json(t, &s);
        json_object_set_new(one, "hits", json_integer(t->planned->fuse_hits[f]));
        json_object_set_new(one, "miss", json_string(t->planned->fuse_misses[f].text));
        json_object_set_new(one, "declined", json_integer(t->declines[f].count));
        json_object_set_new(one, "decline_reason", json_string(t->declines[f].reason.text));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *kinds_json(const struct trace *t)
{
    struct trace_sum kinds[3] = {{.name = "embedding"}, {.name = "block"}, {.name = "head"}};
    json_t *list = json_array();
    for (int i = 0; i < t->plan->n_steps; i++)
        for (int k = 0; k < 3; k++)
            if (!strcmp(trace_layer_kind(t, i), kinds[k].name))
                add(&kinds[k], &t->nodes[i]);
    for (int k = 0; k < 3; k++)
        json_array_append_new(list, sum_json(t, &kinds[k]));
    return list;
}

json_t *trace_json(const struct trace *t)
{
    struct trace_sum ops[N_OPS];
    int n_ops = trace_by_op(t, ops);
    json_t *nodes = json_array(), *by_op = json_array();
    double sum = 0;
    for (int i = 0; i < t->plan->n_steps; i++) {
        json_array_append_new(nodes, node_json(t, i));
        sum += t->nodes[i].ns;
    }
    for (int i = 0; i < n_ops; i++)
        json_array_append_new(by_op, sum_json(t, &ops[i]));
    json_t *all = json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "schema_version", 1, "repeats", t->repeats, "step_ns", t->step_ns,
                     "debug_spin", t->spin, "nodes_ns", sum, "read_roof", t->roof, "gates_unfit", t->plan->n_gates_unfit, "copies", t->plan->n_copies, "moved_to_host", t->plan->n_moved, "ops", by_op, "kinds", kinds_json(t),
                     "fusions", fusions_json(t), "nodes", nodes);
    if (t->collectives.n || t->collectives.devices > 1)
        json_object_set_new(all, "collectives", collectives_json(&t->collectives, t->timed));
    if (t->skips)
        json_object_set_new(all, "debug_skip_all_reduce", json_true());
    return all;
}

json_t *trace_chrome(const struct trace *t)
{
    json_t *events = json_array();
    double at = 0;
    for (int i = 0; i < t->plan->n_steps; i++) {
        const struct node *n = t->plan->steps[i].node;
        json_array_append_new(events, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:{s:s, s:f}}", "name", n->out->name, "cat",
                                                op_get(n->op)->name, "ph", "X", "ts", at / 1e3, "dur", t->nodes[i].ns / 1e3, "pid", 1, "tid",
                                                1, "args", "kernel", t->nodes[i].kernel, "bytes",
                                                t->nodes[i].cost.read + t->nodes[i].cost.written));
        at += t->nodes[i].ns;
    }
    return json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ns");
}
