/* test_persistent.c: nodes that a backend runs as a whole (graph/whole.h), on pretended devices: the bits are those of the
 * nodes one by one, what cannot be a whole is its nodes and says why, one that gives up is an error and works again. And which
 * nodes the CUDA backend takes together (persistent_find.c), from nodes made by hand: the library has that file only in builds
 * with CUDA, so it stands here. */
#include "tests/fake_device.h"
#include "tests/feed.h"

#include "backends/cuda/persistent_find.c"
#include "engine/engine.h"
#include "graph/plan.h"

#include <unistd.h>

enum { VOCAB = 160 };
static float base[N * VOCAB], other[N * VOCAB];

static struct hone_model *open_model(const char *name)
{
    char path[4096];
    const char *data = getenv("HONE_DATA");
    struct hone_error e;
    struct hone_model *m;
    snprintf(path, sizeof path, "%s/%s.gguf", data ? data : "", name);
    if (access(path, R_OK)) {
        print_message("skipped: no test data at %s (HONE_DATA)\n", path);
        skip();
    }
    if (hone_model_open(&m, path, &e))
        fail_msg("%s", e.message);
    return m;
}

static struct hone_session *open_session(const struct hone_model *m, const char *gates, const char *devices)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_error e = {0};
    struct hone_session *s;
    p.n_ctx = 64;
    p.gates = gates;
    p.devices = devices;
    p.n_threads = 2;
    p.poll = 0;
    p.type_k = p.type_v = "f16";
    if (hone_session_create(&s, m, &p, &e))
        fail_msg("%s", e.message);
    return s;
}

static const struct plan *plan_of(struct hone_session *s)
{
    const struct plan *p;
    struct hone_error e = {0};
    if (session_plan(s, 1, 1, &p, &e))
        fail_msg("%s", e.message);
    return p;
}

/* A prompt of 18 tokens, six steps. */
static void logits_of(struct hone_session *s, float *out)
{
    struct hone_error e;
    assert_int_equal(hone_session_rewind(s, 0, 0, &e), 0);
    for (int at = 0, n; at < N; at += n) {
        n = at ? 1 : 18;
        feed_ok(s, 0, ids + at, n);
        memcpy(out + at * VOCAB, hone_session_logits(s, 0), (size_t)n * VOCAB * sizeof *out);
    }
}

#define PLAIN "kernel.cpu.mul_mat=ref kernel.fake.mul_mat=plain "

static void test_whole(void **unused)
{
    (void)unused;
    static const char *const archs[] = {"archs/llama", "archs/qwen35"}, *const devices[] = {"fake0", "fake0,fake1"};
    for (int a = 0; a < 4; a++) {
        struct hone_model *m = open_model(archs[a / 2]);
        struct hone_session *s = open_session(m, PLAIN, devices[a % 2]);
        logits_of(s, base);
        assert_null(plan_of(s)->segments[0].whole); /* without the gate */
        hone_session_free(s);
        fake.prepared = fake.whole_launches = 0;
        s = open_session(m, PLAIN "persistent=off persistent.fake=on", devices[a % 2]);
        logits_of(s, other);
        assert_memory_equal(base, other, sizeof base);
        const struct plan *p = plan_of(s);
        assert_true(p->wholes && fake.prepared > 0 && fake.whole_launches > 0);
        for (int i = 0; i < p->n_segments; i++)
            if (p->segments[i].place && p->segments[i].n > 1)
                assert_int_equal(p->segments[i].whole_n, p->segments[i].n - 1);
        logits_of(s, other); /* rewound, and captured */
        assert_memory_equal(base, other, sizeof base);
        hone_session_free(s);
        assert_int_equal(fake.n_wholes, 0);
        hone_model_close(m);
    }
}

static int count_steps(void *user, const struct plan *p, int step, int64_t ns)
{
    (void)p, (void)step, (void)ns;
    ++*(int *)user;
    return 0;
}

static void test_nodes(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("archs/llama");
    struct hone_session *s = open_session(m, PLAIN "persistent=on", "fake0");
    struct hone_error e = {0};
    int steps = 0, launched = fake.whole_launches;
    struct observer o = {&steps, NULL, count_steps};
    session_observe(s, &o); /* who looks sees all nodes */
    feed_ok(s, 0, ids, 1);
    assert_int_equal(steps, plan_of(s)->n_steps);
    assert_int_equal(fake.whole_launches, launched);
    session_observe(s, NULL);
    feed_ok(s, 0, ids + 1, 1);
    assert_int_equal(fake.whole_launches, launched + 1);
    int prepared = fake.prepared;
    fake.whole_fails = true;
    assert_int_equal(feed(s, 0, ids + 2, 1, &e), HONE_EFAULT);
    assert_non_null(strstr(e.message, "gave up"));
    feed_ok(s, 0, ids + 2, 1); /* prepared anew */
    assert_int_equal(fake.prepared, prepared + 1);
    hone_session_free(s);
    fake.no_whole = true;
    s = open_session(m, PLAIN "persistent=on", "fake0");
    assert_null(plan_of(s)->segments[0].whole);
    assert_string_equal(plan_of(s)->segments[0].whole_why.text, "it was told not to");
    hone_session_free(s);
    fake.no_whole = false;
    fake.no_prepare = true;
    s = open_session(m, PLAIN "persistent=on", "fake0");
    feed_ok(s, 0, ids, 1);
    assert_null(plan_of(s)->segments[0].whole);
    fake.no_prepare = false;
    hone_session_free(s);
    assert_int_equal(fake.n_wholes, 0);
    hone_model_close(m);
}

static void test_gate(void **unused)
{
    (void)unused;
    struct gates g = {0};
    struct hone_error e = {0};
    assert_int_equal(gates_parse(&g, "persistent.fake=on", "test", &e), 0);
    assert_true(gates_persistent(&g, "fake") && !gates_persistent(&g, "cpu"));
    assert_int_equal(gates_parse(&g, "persistent=off", "test", &e), 0);
    assert_false(gates_persistent(&g, "fake"));
    static const char *const wrong[] = {"persistent.nobody=on", "persistent=perhaps", "persistent.fake", "persistently=on"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e.code = 0;
        assert_int_equal(gates_parse(&g, wrong[i], "test", &e), HONE_EUSAGE);
    }
    gates_free(&g);
}

/* ---- which nodes */

enum { MOST = 40 };
static struct tensor tensors[8 * MOST];
static struct node nodes[8 * MOST];
static struct node *parts[8 * MOST][4];
static const struct node *run[MOST];
static int n_tensors, n_nodes, n_run;

static struct tensor *tensor_of(enum tensor_kind kind, enum format_id format, int64_t n, int64_t rows)
{
    struct tensor *t = &tensors[n_tensors];
    *t = (struct tensor){.kind = kind};
    snprintf(t->name, sizeof t->name, "t%d", n_tensors++);
    tensor_shape(t, format, 2, (int64_t[]){n, rows});
    return t;
}

static struct node *node_of(enum op op, struct tensor *out, struct tensor *a, struct tensor *b, struct tensor *c)
{
    struct node *n = &nodes[n_nodes];
    *n = (struct node){.op = op, .out = out, .src = {a, b, c}, .n_src = c ? 3 : b ? 2 : 1, .parts = parts[n_nodes]};
    n_nodes++;
    out->producer = n;
    return n;
}

static struct node *product_of(struct tensor *x, int64_t rows)
{
    return node_of(OP_MUL_MAT, tensor_of(TENSOR_VALUE, FORMAT_F32, rows, 1),
                   tensor_of(TENSOR_WEIGHT, FORMAT_Q4_0, x->ne[0], rows), x, NULL);
}

static struct tensor *add_run(struct node *n)
{
    run[n_run++] = n;
    return n->out;
}

static struct tensor *normed(struct tensor *x)
{
    return add_run(node_of(OP_RMS_NORM_MUL_QUANTIZE, tensor_of(TENSOR_VALUE, FORMAT_A8, x->ne[0], 1), x,
                           tensor_of(TENSOR_WEIGHT, FORMAT_F32, x->ne[0], 1), NULL));
}

static struct tensor *with_residual(struct tensor *x, struct tensor *to)
{
    struct node *m = product_of(x, to->ne[0]),
                *n = node_of(OP_MUL_MAT_ADD, tensor_of(TENSOR_VALUE, FORMAT_F32, to->ne[0], 1), m->src[0], x, to);
    n->parts[0] = m;
    n->parts[1] = node_of(OP_ADD, n->out, m->out, to, NULL);
    n->n_parts = 2;
    return add_run(n);
}

/* A layer of seven nodes. */
static struct tensor *add_layer(struct tensor *x)
{
    struct tensor *in = normed(x);
    struct node *group = node_of(OP_MUL_MAT_GROUP, tensor_of(TENSOR_VALUE, FORMAT_F32, 256, 1), in, in, NULL);
    for (int i = 0; i < 3; i++)
        group->parts[i] = product_of(in, 256);
    group->out = group->parts[2]->out;
    group->n_parts = 3;
    group->also[0] = group->parts[0]->out;
    group->also[1] = group->parts[1]->out;
    group->n_also = 2;
    add_run(group);
    struct tensor *y = add_run(node_of(OP_ROPE_KV_ATTENTION_QUANTIZE, tensor_of(TENSOR_VALUE, FORMAT_A8, 256, 1),
                                       group->parts[0]->out, group->parts[1]->out, group->parts[2]->out));
    x = with_residual(y, x);
    in = normed(x);
    struct node *up = product_of(in, 512), *gate = product_of(in, 512),
                *pair =
                    node_of(OP_GATE_UP_GLU_QUANTIZE, tensor_of(TENSOR_VALUE, FORMAT_A8, 512, 1), gate->src[0], in, up->src[0]);
    pair->parts[0] = up; /* in this order: the gate is what the glu says */
    pair->parts[1] = gate;
    pair->parts[2] = node_of(OP_GLU, tensor_of(TENSOR_VALUE, FORMAT_F32, 512, 1), gate->out, up->out, NULL);
    pair->parts[3] = node_of(OP_QUANTIZE, pair->out, pair->parts[2]->out, NULL, NULL);
    pair->n_parts = 4;
    return with_residual(add_run(pair), x);
}

static struct tensor *begin(void)
{
    n_tensors = n_nodes = n_run = 0;
    struct tensor *x = tensor_of(TENSOR_VALUE, FORMAT_F32, 256, 1);
    add_run(node_of(OP_GET_ROWS, x, tensor_of(TENSOR_WEIGHT, FORMAT_Q4_0, 256, 100), tensor_of(TENSOR_INPUT, FORMAT_I32, 1, 1),
                    NULL));
    return x;
}

static struct persist_item items[2 * MOST];

static int found(int *first, int *n, struct reason *r)
{
    return persist_find(run, n_run, 0, n_run, items, first, n, r);
}

static void test_find(void **unused)
{
    (void)unused;
    struct reason r;
    int first, n;
    struct tensor *x = add_layer(add_layer(begin()));
    add_run(product_of(normed(x), 100));
    assert_int_equal(found(&first, &n, &r), 11);
    assert_int_equal(first, 1); /* behind the lookup */
    assert_int_equal(n, n_run - 1);
    assert_string_equal(r.text, "");
    assert_true(items[0].norm == run[1] && items[0].product == run[2] && !items[0].attention);
    assert_true(items[1].attention == run[3] && !items[1].product);
    assert_true(items[2].attention == run[3] && items[2].product == run[4]);
    assert_true(items[4].product == run[7] && !items[4].norm && !items[4].attention);
    struct persist_product p;
    persist_product_of(run[6], &p);
    assert_true(p.n == 2 && p.matrix[0] == run[6]->parts[1] && p.quantized == run[6]->out && p.glu == run[6]->parts[2]);
    persist_product_of(run[4], &p);
    assert_true(p.n == 1 && p.out == run[4]->out && p.add == run[1]->src[0]);
    persist_product_of(run[2], &p);
    assert_true(p.n == 3 && p.matrix[2] == run[2]->parts[2]);
    assert_int_equal(persist_find(run, n_run, 1, 5, items, &first, &n, &r), 3); /* of a segment */
    assert_int_equal(n, 4);
}

/* What is not known parts two stretches, of which the longer one is taken; values that others read, or that a node leaves, do
 * so too. */
static void test_not_found(void **unused)
{
    (void)unused;
    struct reason r;
    int first, n;
    struct tensor *x = add_layer(begin());
    x = add_run(node_of(OP_SCALE, tensor_of(TENSOR_VALUE, FORMAT_F32, 256, 1), x, NULL, NULL));
    add_layer(add_layer(x));
    assert_int_equal(found(&first, &n, &r), 10);
    assert_int_equal(first, 9);
    assert_int_equal(n, 14);
    x = add_layer(begin());
    add_run(node_of(OP_COPY, tensor_of(TENSOR_VALUE, FORMAT_A8, 256, 1), run[1]->out, NULL, NULL)); /* the first norm's row */
    assert_int_equal(found(&first, &n, &r), 5);
    assert_int_equal(first, 2); /* the products alone, from what the norm leaves */
    assert_non_null(strstr(r.text, "is no part of a phase"));
    add_layer(begin());
    nodes[run[6] - nodes].also[0] = run[6]->parts[2]->out;
    nodes[run[6] - nodes].n_also = 1;
    assert_int_equal(found(&first, &n, &r), 3);
    assert_non_null(strstr(r.text, "beside"));
    x = begin();
    x->ne[1] = 2; /* tokens */
    tensor_shape(x, FORMAT_F32, 2, (int64_t[]){256, 2});
    struct tensor *two = tensor_of(TENSOR_VALUE, FORMAT_A8, 256, 2);
    add_run(node_of(OP_RMS_NORM_MUL_QUANTIZE, two, x, tensor_of(TENSOR_WEIGHT, FORMAT_F32, 256, 1), NULL));
    add_run(product_of(two, 100));
    assert_int_equal(found(&first, &n, &r), 0);
    n_run = 0;
    assert_int_equal(found(&first, &n, &r), 0);
}

static int add_backend(void **state)
{
    (void)state;
    struct hone_error e = {0};
    return backend_add(&fake_backend, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_nodes), cmocka_unit_test(test_gate),
                                       cmocka_unit_test(test_find), cmocka_unit_test(test_not_found)};
    return cmocka_run_group_tests(tests, add_backend, NULL);
}
