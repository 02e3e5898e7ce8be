/* test_collectives.c: collectives within graphs: small models in the manner of a tensor-parallel decoder, one graph and one
 * plan a rank, run by ranks of this process. Fused and unfused must give the same bits; each guard, made to fail, a decline
 * with its reason and the same bits; what the planner must refuse it refuses; and the memory that the others read must stay. */
#include "test.h"

#include "base/rng.h"
#include "comm/comm.h"
#include "graph/fuse.h"
#include "graph/guards.h"
#include "graph/plan.h"
#include "lab/collectives.h"
#include "ops/all_gather.h"
#include "ops/quantize.h"
#include "ops/rms_norm.h"
#include "ops/scale.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HONE_SANITIZED
enum { REPEATS = 2, MANY_LAYERS = 8 };
#else
enum { REPEATS = 20, MANY_LAYERS = 64 };
#endif
enum { MAX_RANKS = 4 };

struct shape {
    int64_t width, tokens, outputs;
    int layers;
    bool reshaped, quantized;
};

/* One rank: its graph and plan, and where they run. */
struct rank {
    struct arena arena;
    struct graph graph;
    struct plan *plan;
    struct tensor *x, *outputs, *weight;
    struct pool *pool;
    struct comm *comm;
    void *block, *scratch;
    size_t stride;
    float *result; /* of the last step */
    size_t n_result;
    const struct shape *shape;
    int number, steps, rc;
    struct hone_error error;
};

static struct tensor *summed(struct graph *g, const struct shape *s, struct tensor *partial, const char *name)
{
    graph_name(g, partial, "%s", name);
    struct tensor *sum = graph_name(g, graph_op(g, OP_ALL_REDUCE, NULL, partial), "%s.sum", name);
    if (s->reshaped) {
        int64_t rows = partial->ne[1];
        sum = graph_reshape(g, graph_reshape(g, sum, 1, s->width, rows, 0), s->width, rows, 0, 0);
    }
    return sum;
}

/* Layers of two partial products, a scale each standing for the product, the first followed in the last layer by get_rows. */
static void build(struct rank *r, const struct shape *s)
{
    struct graph *g = &r->graph;
    int64_t ne[2] = {s->width, s->tokens};
    r->x = graph_input(g, "x", FORMAT_F32, 2, ne);
    r->outputs = graph_input(g, "outputs", FORMAT_I32, 1, &s->outputs);
    r->weight = graph_input(g, "norm.weight", FORMAT_F32, 1, &s->width);
    r->weight->kind = TENSOR_WEIGHT;
    r->weight->data = arena_array(&r->arena, (size_t)s->width, sizeof(float));
    struct tensor *x = r->x, *y;
    for (int i = 0; i < s->layers; i++) {
        g->layer = i;
        y = graph_op(g, OP_SCALE,
                     (&(struct scale_params){.scale = 0.25f + 0.125f * (float)r->number, .bias = 0.01f * (float)i}), x);
        y = summed(g, s, y, "attn_output");
        if (i == s->layers - 1) {
            y = graph_op(g, OP_GET_ROWS, NULL, y, r->outputs);
            x = graph_op(g, OP_GET_ROWS, NULL, x, r->outputs);
        }
        x = graph_name(g, i % 2 ? graph_op(g, OP_ADD, NULL, x, y) : graph_op(g, OP_ADD, NULL, y, x), "ffn_inp");
        y = graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-6f}), x), r->weight);
        if (s->quantized)
            graph_op(g, OP_QUANTIZE, (&(struct quantize_params){.format = FORMAT_Q8_0}), y);
        y = graph_op(g, OP_SCALE, (&(struct scale_params){.scale = 0.5f / (float)(1 + r->number)}), y);
        y = summed(g, s, y, "ffn_down");
        x = graph_name(g, graph_op(g, OP_ADD, NULL, y, x), "l_out");
    }
    g->layer = -1;
    g->logits = graph_name(
        g, graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-6f}), x), r->weight), "logits");
}

static void fill(struct rank *r)
{
    struct rng rng = rng_seed(7);
    float *x = r->x->data, *w = r->weight->data;
    int32_t *ids = r->outputs->data;
    for (int64_t i = 0; i < tensor_elements(r->x); i++)
        x[i] = (float)rng_normal(&rng);
    for (int64_t i = 0; i < r->shape->width; i++)
        w[i] = 1 + (float)rng_normal(&rng) / 8;
    for (int64_t i = 0; i < r->shape->outputs; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)r->shape->tokens);
}

/* A rank's graph, planned under gates with some fusions off. */
static void rank_plan(struct rank *r, int number, const struct shape *s, const struct gates *gates, uint32_t off)
{
    *r = (struct rank){.shape = s, .number = number};
    graph_init(&r->graph, &r->arena);
    build(r, s);
    assert_int_equal(plan_create(&r->plan, &r->graph, &(struct plan_options){.gates = gates, .fuse_off = off}, &r->error), 0);
}

static void rank_open(struct rank *r, struct comm *comm, int n_threads)
{
    r->comm = comm;
    r->pool = pool_create(n_threads, 1, &r->error);
    assert_non_null(r->pool);
    r->stride = (r->plan->scratch_bytes + 127) / 64 * 64;
    r->block = aligned_alloc(64, (r->plan->value_bytes + 127) / 64 * 64);
    r->scratch = aligned_alloc(64, r->stride * (size_t)n_threads);
    assert_true(r->block && r->scratch);
    plan_bind(r->plan, r->block);
    r->n_result = (size_t)tensor_elements(r->graph.logits);
    r->result = calloc(r->n_result, sizeof *r->result);
}

static void rank_close(struct rank *r)
{
    pool_free(r->pool);
    free(r->block);
    free(r->scratch);
    free(r->result);
    arena_free(&r->arena);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct run run = {.pool = r->pool, .comm = r->comm, .scratch = r->scratch, .scratch_stride = r->stride};
    for (int i = 0; i < r->steps && !r->rc; i++) {
        r->rc = r->comm ? comm_settle(r->comm, "step") : 0; /* the inputs share a block with what others read */
        fill(r);
        r->rc = r->rc ? r->rc : plan_run(r->plan, &run, &r->error);
    }
    if (r->comm)
        comm_settle(r->comm, "end");
    memcpy(r->result, r->graph.logits->data, r->n_result * sizeof *r->result);
    comm_free(r->comm);
    return NULL;
}

/* Runs n ranks for some steps; result: of all of them, which must agree; malloc'd. */
static float *run_ranks(int n, const struct shape *s, const char *gates_text, uint32_t off, int steps)
{
    static struct rank ranks[MAX_RANKS];
    struct comm *ends[MAX_RANKS];
    struct gates gates = {0};
    struct hone_error e = {0};
    pthread_t threads[MAX_RANKS];
    struct comm_params p = {.n_workers = 2, .poll = 1, .limit_ms = 30000};
    assert_int_equal(gates_parse(&gates, gates_text, "test", &e), 0);
    assert_int_equal(comm_local_create(ends, n, &p, &e), 0);
    for (int i = 0; i < n; i++) {
        rank_plan(&ranks[i], i, s, &gates, off);
        rank_open(&ranks[i], ends[i], 1 + i % 2);
        ranks[i].steps = steps;
    }
    for (int i = 1; i < n; i++)
        assert_true(plan_collectives_hash(ranks[i].plan) == plan_collectives_hash(ranks[0].plan));
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    float *result = calloc(ranks[0].n_result, sizeof *result);
    for (int i = 0; i < n; i++) {
        if (ranks[i].rc)
            fail_msg("rank %d: %s", i, ranks[i].error.message);
        assert_memory_equal(ranks[i].result, ranks[0].result, ranks[0].n_result * sizeof *result);
    }
    memcpy(result, ranks[0].result, ranks[0].n_result * sizeof *result);
    for (int i = 0; i < n; i++)
        rank_close(&ranks[i]);
    gates_free(&gates);
    return result;
}

#define BOTH "fuse.all_reduce_add=on fuse.all_reduce_get_rows=on"
#define NORM "fuse.all_reduce_add_rms_norm=on fuse.all_reduce_get_rows=on"

/* ---- the same bits, whatever is fused, on every repeat and every rank */

static void test_same_bits(void **unused)
{
    (void)unused;
    static const struct shape shapes[] = {
        {576, 1, 1, 3, false, false},
        {1001, 3, 2, 2, false, false},
        {256, 5, 1, 3, true, false},
        {320, 2, 1, 3, false, true},
    };
    static const char *const gates[] = {BOTH, NORM, "fuse.all_reduce_get_rows=on", "fuse=on", "fuse=off"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 2; n <= 3; n++) {
            const struct shape *s = &shapes[i];
            size_t bytes = (size_t)(s->width * s->outputs) * sizeof(float);
            float *plain = run_ranks(n, s, "", 0, 1);
            for (size_t j = 0; j < sizeof gates / sizeof *gates; j++) {
                float *fused = run_ranks(n, s, gates[j], 0, REPEATS / 4 + 1);
                assert_memory_equal(plain, fused, bytes);
                free(fused);
            }
            float *again = run_ranks(n, s, "", 0, REPEATS);
            assert_memory_equal(plain, again, bytes);
            free(again);
            free(plain);
        }
}

/* One rank's sums are what it brings, with a group of one and without any. */
static void test_alone(void **unused)
{
    (void)unused;
    static const struct shape s = {64, 2, 1, 2, false, false};
    struct gates gates = {0};
    static struct rank r;
    float *one = run_ranks(1, &s, "", 0, 1);
    assert_int_equal(gates_parse(&gates, BOTH, "test", &r.error), 0);
    rank_plan(&r, 0, &s, &gates, 0);
    rank_open(&r, NULL, 2);
    r.steps = 1;
    rank_main(&r);
    assert_int_equal(r.rc, 0);
    assert_memory_equal(one, r.result, r.n_result * sizeof *one);
    rank_close(&r);
    gates_free(&gates);
    free(one);
}

/* ---- counts and labels */

static void test_counts(void **unused)
{
    (void)unused;
    static const struct shape s = {5120, 1, 1, MANY_LAYERS, false, false};
    static const struct {
        const char *gates;
        int add, get_rows, norm;
    } rows[] = {
        {"", 0, 0, 0},
        {BOTH, 2 * MANY_LAYERS - 1, 1, 0},
        {NORM " fuse.all_reduce_add=on", MANY_LAYERS - 1, 1, MANY_LAYERS}, /* no norm between one layer and the next */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct rank r;
        struct gates gates = {0};
        struct collectives c;
        char text[400], want[400], norm[40] = "";
        int count = 2 * MANY_LAYERS, plain = count - rows[i].add - rows[i].get_rows - rows[i].norm;
        assert_int_equal(gates_parse(&gates, rows[i].gates, "test", &r.error), 0);
        rank_plan(&r, 0, &s, &gates, 0);
        assert_int_equal(r.plan->n_collectives, count);
        assert_int_equal(collectives_find(&c, r.plan, r.plan, 3, &r.error), 0);
        if (rows[i].norm)
            snprintf(norm, sizeof norm, " add_rms_norm=%d", rows[i].norm);
        snprintf(want, sizeof want,
                 "allreduce summary devices=3 graphs=1 count=%d total_bytes=%d path add=%d get_rows=%d%s plain=%d fallback=0",
                 count, count * 20480, rows[i].add, rows[i].get_rows, norm, plain);
        assert_string_equal(collectives_summary(&c, text, sizeof text), want);
        snprintf(want, sizeof want,
                 "partial_probe name=attn_output-%d op=SCALE nbytes=20480 next=GET_ROWS next_nbytes=20480 plan=%s outcome=%s",
                 MANY_LAYERS - 1, rows[i].get_rows ? "get_rows" : "plain", rows[i].get_rows ? "get_rows" : "plain");
        assert_string_equal(collectives_probe(&c, count - 2, text, sizeof text), want);
        json_t *json = collectives_json(&c, false);
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(json_object_get(json, "per_graph"), "path"), "add")),
            rows[i].add);
        json_decref(json);
        collectives_free(&c);
        arena_free(&r.arena);
        gates_free(&gates);
    }
}

/* ---- guards, made to fail one at a time */

/* Plans as a session does: with the fusions off that declined. Returns the mask; *n and *why of the declines. */
static uint32_t settle_declines(const struct shape *s, const struct gates *gates, int *n, struct reason *why,
                                struct collectives *c)
{
    static struct rank first, r;
    uint32_t off = 0;
    rank_plan(&first, 0, s, gates, 0);
    rank_plan(&r, 0, s, gates, 0);
    for (*n = 0;; ++*n) {
        struct reason now;
        int step = plan_declines(r.plan, gates, &now);
        if (step < 0)
            break;
        *why = now;
        off |= 1u << r.plan->steps[step].node->fusion;
        arena_free(&r.arena);
        rank_plan(&r, 0, s, gates, off);
    }
    assert_int_equal(collectives_find(c, first.plan, r.plan, 2, &r.error), 0);
    for (int i = 0; i < c->n; i++) /* the names are the graph's */
        c->list[i].name = "";
    arena_free(&first.arena);
    arena_free(&r.arena);
    return off;
}

/* Fusions under some gates: all decline, one after the other, and what was planned fused runs plain. */
static void check_guards(const char *set, int n_fusions, uint32_t fusions, const float *plain, const struct shape *s)
{
    for (int g = 0; g < N_GUARDS; g++) {
        char text[200];
        struct gates gates = {0};
        struct hone_error e = {0};
        struct reason why = {""};
        struct collectives c;
        int declines;
        snprintf(text, sizeof text, "%s debug.guard=%s", set, guard_name((enum guard)g));
        assert_int_equal(gates_parse(&gates, text, "test", &e), 0);
        uint32_t off = settle_declines(s, &gates, &declines, &why, &c);
        assert_int_equal(declines, n_fusions);
        assert_int_equal(off, fusions);
        assert_non_null(strstr(why.text, guard_name((enum guard)g)));
        assert_true(c.fallback > 0);
        assert_int_equal(c.fallback + c.path[PATH_PLAIN], c.n);
        assert_int_equal(c.path[PATH_PLAIN], fusions & 1u << FUSE_all_reduce_add ? 0 : 1); /* one add has no norm behind it */
        collectives_free(&c);
        float *same = run_ranks(2, s, text, off, 1);
        assert_memory_equal(plain, same, (size_t)s->width * sizeof *plain);
        free(same);
        gates_free(&gates);
    }
}

static void test_guards(void **unused)
{
    (void)unused;
    static const struct shape s = {576, 1, 1, 2, false, false};
    const uint32_t add = 1u << FUSE_all_reduce_add, rows = 1u << FUSE_all_reduce_get_rows, norm = 1u << FUSE_all_reduce_add_rms_norm;
    float *plain = run_ranks(2, &s, "", 0, 1);
    check_guards(BOTH, 2, add | rows, plain, &s);
    check_guards(NORM, 2, norm | rows, plain, &s);
    check_guards(NORM " fuse.all_reduce_add=on", 3, add | norm | rows, plain, &s); /* what has no norm any more has an add */
    free(plain);
}

/* What the planner itself must refuse, with the guard's name in the reason. */
static void refused_by(const char *guard, const struct shape *s, const char *gates_text, void (*spoil)(struct rank *r),
                       enum fusion_id f)
{
    static struct rank r;
    struct gates gates = {0};
    assert_int_equal(gates_parse(&gates, gates_text, "test", &r.error), 0);
    r = (struct rank){.shape = s};
    graph_init(&r.graph, &r.arena);
    build(&r, s);
    if (spoil)
        spoil(&r);
    assert_int_equal(plan_create(&r.plan, &r.graph, &(struct plan_options){.gates = &gates}, &r.error), 0);
    if (guard && !strstr(r.plan->fuse_misses[f].text, guard))
        fail_msg("%s: the reason is '%s'", guard, r.plan->fuse_misses[f].text);
    if (guard)
        assert_int_equal(r.plan->fuse_hits[f], 0);
    else
        assert_true(r.plan->fuse_hits[f] > 0);
    arena_free(&r.arena);
    gates_free(&gates);
}

static struct node *node_of(struct rank *r, enum op op)
{
    for (int i = 0; i < r->graph.n_nodes; i++)
        if (r->graph.nodes[i]->op == op)
            return r->graph.nodes[i];
    return NULL;
}

static void split_residual(struct rank *r)
{
    r->x->sharding = SHARDING_SPLIT;
}

static void split_indices(struct rank *r)
{
    r->outputs->sharding = SHARDING_SPLIT;
}

static void partial_result(struct rank *r)
{
    node_of(r, OP_ADD)->out->sharding = SHARDING_PARTIAL;
}

static void half_partial(struct rank *r)
{
    node_of(r, OP_ALL_REDUCE)->src[0]->format = FORMAT_F16;
}

static void float_indices(struct rank *r)
{
    r->outputs->format = FORMAT_F32;
}

static void read_twice(struct rank *r)
{
    graph_op(&r->graph, OP_SCALE, (&(struct scale_params){.scale = 2}), node_of(r, OP_ALL_REDUCE)->out);
}

static void test_refusals(void **unused)
{
    (void)unused;
    static const struct shape one = {64, 1, 1, 1, false, false}, large = {576, 100, 2, 1, false, false},
                              grows = {64, 2, 5, 1, false, false}, two = {64, 1, 1, 1, false, false};
    refused_by(NULL, &one, BOTH, NULL, FUSE_all_reduce_add);
    refused_by(NULL, &one, BOTH, NULL, FUSE_all_reduce_get_rows);
    refused_by("partial_f32", &one, BOTH, half_partial, FUSE_all_reduce_get_rows);
    refused_by("indices_i32", &one, BOTH, float_indices, FUSE_all_reduce_get_rows);
    refused_by("operand_mirrored", &one, BOTH, split_indices, FUSE_all_reduce_get_rows);
    refused_by("one_reader", &one, BOTH, read_twice, FUSE_all_reduce_get_rows);
    refused_by("size_limit", &large, BOTH, NULL, FUSE_all_reduce_get_rows);
    refused_by(NULL, &large, BOTH " comm.limit=1000000", NULL, FUSE_all_reduce_get_rows);
    refused_by("size_limit", &one, BOTH " comm.limit=255", NULL, FUSE_all_reduce_get_rows);
    refused_by(NULL, &one, BOTH " comm.limit=256", NULL, FUSE_all_reduce_get_rows);
    refused_by("output_fits", &grows, BOTH, NULL, FUSE_all_reduce_get_rows);
    refused_by("off by its gate", &two, "", NULL, FUSE_all_reduce_add);
    static const struct shape first = {64, 1, 1, 2, false, false}; /* its first collective is followed by an add */
    static struct rank r;
    void (*spoils[])(struct rank *) = {split_residual, partial_result, read_twice};
    static const int left[] = {2, 1, 2}; /* of three adds: a partial sum is the residual of the next one too */
    for (int i = 0; i < 3; i++) {
        struct gates gates = {0};
        assert_int_equal(gates_parse(&gates, BOTH, "test", &r.error), 0);
        r = (struct rank){.shape = &first};
        graph_init(&r.graph, &r.arena);
        build(&r, &first);
        spoils[i](&r);
        assert_int_equal(plan_create(&r.plan, &r.graph, &(struct plan_options){.gates = &gates}, &r.error), 0);
        assert_int_equal(r.plan->fuse_hits[FUSE_all_reduce_add], left[i]);
        arena_free(&r.arena);
        gates_free(&gates);
    }
}

static void test_gates(void **unused)
{
    (void)unused;
    static const char *const wrong[] = {"comm.limit=x", "comm.limit=-1",  "comm.timeout=0",         "comm.timeout=nan",
                                        "comm.speed=1", "debug.guard=no", "debug.skip_all_reduce=1"};
    struct gates g = {0};
    struct hone_error e;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e.code = 0;
        assert_int_equal(gates_parse(&g, wrong[i], "test", &e), HONE_EUSAGE);
    }
    assert_int_equal(gates_comm_limit(&g), 65536);
    assert_int_equal(gates_comm_timeout_ms(&g), 0);
    assert_int_equal(gates_guard(&g), -1);
    assert_false(gates_skip_all_reduce(&g));
    assert_null(gates_diagnostic(&g));
    e.code = 0;
    assert_int_equal(
        gates_parse(&g, "comm.limit=1024 comm.timeout=2.5 debug.guard=size_limit debug.skip_all_reduce=on", "test", &e), 0);
    assert_int_equal(gates_comm_limit(&g), 1024);
    assert_int_equal(gates_comm_timeout_ms(&g), 2500);
    assert_int_equal(gates_guard(&g), GUARD_size_limit);
    assert_true(gates_skip_all_reduce(&g));
    assert_string_equal(gates_diagnostic(&g), "debug.skip_all_reduce=on");
    assert_int_equal(gates_parse(&g, "debug.guard=none debug.skip_all_reduce=off", "test", &e), 0);
    assert_int_equal(gates_guard(&g), -1);
    assert_null(gates_diagnostic(&g));
    gates_free(&g);
}

/* ---- memory: what a rank has brought stays until the next collective is over, and the last until the step's end */

static struct tensor *root(struct tensor *t)
{
    return t->base ? t->base : t;
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    return a->offset < b->offset + tensor_nbytes(b) && b->offset < a->offset + tensor_nbytes(a);
}

static void test_memory(void **unused)
{
    (void)unused;
    static const struct shape s = {576, 3, 2, 4, false, false};
    static const char *const gates_texts[] = {"", BOTH, NORM};
    for (int k = 0; k < 3; k++) {
        static struct rank r;
        struct gates gates = {0};
        assert_int_equal(gates_parse(&gates, gates_texts[k], "test", &r.error), 0);
        rank_plan(&r, 0, &s, &gates, 0);
        struct tensor *brought = NULL, *before = NULL;
        int checked = 0;
        for (int i = 0; i < r.plan->n_steps; i++) {
            const struct node *n = r.plan->steps[i].node;
            const struct tensor *out = root(n->out);
            if (node_collective(n)) {
                before = brought;
                brought = root(n->src[0]);
            }
            if (brought && out != brought && out->kind == TENSOR_VALUE) {
                assert_false(overlap(out, brought));
                checked++;
            }
            if (node_collective(n) && before) /* still read while the ranks meet */
                assert_false(overlap(out, before));
        }
        assert_true(checked > 8);
        arena_free(&r.arena);
        gates_free(&gates);
    }
}

/* ---- all_gather, with parts of different sizes */

struct gatherer {
    struct comm *comm;
    int number, rc;
};

enum { TOTAL = 11, ROWS = 3 };
static const int64_t parts[] = {4, 0, 7};
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* plans are made so */

static void *gather_main(void *arg)
{
    struct gatherer *t = arg;
    struct arena arena = {0};
    struct graph g;
    struct plan *p;
    struct gates gates = {0};
    struct hone_error e = {0};
    int64_t ne[2] = {parts[t->number], ROWS}, before = 0;
    for (int i = 0; i < t->number; i++)
        before += parts[i];
    graph_init(&g, &arena);
    struct tensor *x = graph_input(&g, "x", FORMAT_F32, 2, ne);
    g.logits = graph_op(&g, OP_ALL_GATHER, (&(struct all_gather_params){TOTAL}), x);
    pthread_mutex_lock(&one_at_a_time);
    t->rc = plan_create(&p, &g, &(struct plan_options){.gates = &gates}, &e);
    pthread_mutex_unlock(&one_at_a_time);
    struct pool *pool = pool_create(1 + t->number, 1, &e);
    void *block = aligned_alloc(64, 4096), *scratch = aligned_alloc(64, 4096);
    if (!t->rc && p->value_bytes <= 4096 && p->scratch_bytes <= 1024) {
        plan_bind(p, block);
        for (int64_t row = 0; row < ROWS; row++)
            for (int64_t i = 0; i < ne[0]; i++)
                ((float *)x->data)[row * ne[0] + i] = (float)(100 * row + before + i);
        struct run run = {.pool = pool, .comm = t->comm, .scratch = scratch, .scratch_stride = 1024};
        t->rc = plan_run(p, &run, &e);
        for (int64_t i = 0; i < ROWS * TOTAL && !t->rc; i++)
            t->rc = ((float *)g.logits->data)[i] == (float)(100 * (i / TOTAL) + i % TOTAL) ? 0 : HONE_ECHECK;
    } else {
        t->rc = HONE_EFAULT;
    }
    comm_settle(t->comm, "end");
    comm_free(t->comm);
    pool_free(pool);
    free(block);
    free(scratch);
    arena_free(&arena);
    return NULL;
}

static void test_gather(void **unused)
{
    (void)unused;
    struct comm *ends[3];
    struct gatherer t[3];
    pthread_t threads[3];
    struct hone_error e = {0};
    assert_int_equal(comm_local_create(ends, 3, &(struct comm_params){.n_workers = 3, .poll = 1}, &e), 0);
    for (int i = 0; i < 3; i++)
        t[i] = (struct gatherer){ends[i], i, 0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, gather_main, &t[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(t[i].rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_alone),    cmocka_unit_test(test_counts),
        cmocka_unit_test(test_guards),    cmocka_unit_test(test_refusals), cmocka_unit_test(test_gates),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
