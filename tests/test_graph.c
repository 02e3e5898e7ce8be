/* test_graph.c: gates, the planner's choices and their reasons, and the layout of values in memory. */
#include "test.h"

#include "graph/plan.h"
#include "ops/rms_norm.h"
#include "ops/scale.h"

#include <stdlib.h>
#include <string.h>

/* ---- gates */

static void refused(const char *text, const char *says)
{
    struct gates g = {0};
    struct hone_error e = {0};
    assert_int_equal(gates_parse(&g, "kernel=ref", "here", &e), 0);
    assert_int_equal(gates_parse(&g, text, "there", &e), HONE_EUSAGE);
    if (!strstr(e.message, says) || !strstr(e.message, "there"))
        fail_msg("'%s' gives: %s", text, e.message);
    assert_int_equal(g.n, 1); /* what was there before stays, nothing of the wrong list does */
    gates_free(&g);
}

static void test_gates_refused(void **unused)
{
    (void)unused;
    refused("kernel", "name=value");
    refused("kernel=", "name=value");
    refused("skip=mul_mat kernle=ref", "unknown gate");
    refused("kernel.mulmat=ref", "no op 'mulmat'");
    refused("kernel.cpu.mul_mat.q4_9=ref", "no such weight format");
    refused("kernel.mul_mat.cpu=ref", "no such weight format");
    refused("kernel.cpu.mul_mat.q4_K.x=ref", "at most");
    refused("kernel.mul_mat@=ref", "nothing behind");
    refused("kernel=avx2", "only 'ref'");
    refused("kernel.=ref", "between the dots");
    refused("kernel.mul_mat.=ref", "between the dots");
    refused("skip=,", "at least one op");
    refused("skip=add,nope", "no op 'nope'");
}

static void test_gates_match(void **unused)
{
    (void)unused;
    struct gates g = {0};
    struct hone_error e = {0};
    assert_int_equal(gates_parse(&g, "kernel.mul_mat.q4_K=a ; kernel.mul_mat@ffn_*=b\n# a comment ; kernel=ref\nskip=add,rope", "--set", &e), 0);
    assert_int_equal(g.n, 4);
    struct tensor w = {.format = FORMAT_Q4_K}, out = {.name = "attn_q-0"};
    struct node n = {.op = OP_MUL_MAT, .out = &out, .src = {&w}, .n_src = 2};
    assert_string_equal(gates_for_node(&g, "cpu", &n)->variant, "a");
    strcpy(out.name, "ffn_up-0"); /* the later match wins, however specific */
    assert_string_equal(gates_for_node(&g, "cpu", &n)->variant, "b");
    strcpy(out.name, "attn_q-0");
    w.format = FORMAT_F32;
    assert_null(gates_for_node(&g, "cpu", &n));
    n.op = OP_ROPE;
    assert_string_equal(gates_for_node(&g, "cpu", &n)->variant, "ref");
    assert_false(gates_all_reference(&g));
    assert_int_equal(gates_parse(&g, "kernel=ref", "--set", &e), 0);
    assert_true(gates_all_reference(&g));
    assert_int_equal(gates_parse(&g, "skip=add", "--set", &e), 0);
    assert_true(gates_all_reference(&g));
    assert_int_equal(gates_parse(&g, "kernel.add=fast", "--set", &e), 0);
    assert_false(gates_all_reference(&g));
    gates_free(&g);
}

/* ---- planning: a chain with a long-lived value, y = scale(norm(x)) + x many times over */

static struct tensor *chain(struct graph *g, int links)
{
    struct tensor *x = graph_input(g, "x", FORMAT_F32, 2, (int64_t[]){64, 3});
    struct tensor *t = x;
    for (int i = 0; i < links; i++) {
        g->layer = i;
        struct tensor *residual = t;
        t = graph_op(g, OP_RMS_NORM, &(struct rms_norm_params){1e-6f}, t);
        t = graph_name(g, graph_op(g, OP_SCALE, &(struct scale_params){.scale = 0.5f}, t), "half");
        t = graph_op(g, OP_ADD, NULL, t, residual);
    }
    g->logits = t;
    return x;
}

static void test_plan_reasons(void **unused)
{
    (void)unused;
    struct arena arena = {0};
    struct graph g;
    struct gates gates = {0};
    struct hone_error e = {0};
    struct plan *p;
    graph_init(&g, &arena);
    chain(&g, 2);
    assert_int_equal(gates_parse(&gates, "kernel.add=no_such", "--set", &e), 0);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates}, &e), 0);
    assert_int_equal(p->n_steps, 6);
    assert_int_equal(p->n_gates_unfit, 2);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates, .strict = true}, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "there is no such kernel"));
    e.code = 0;
    gates.n = 0;
    assert_int_equal(gates_parse(&gates, "kernel.add@no_such_node=ref", "--set", &e), 0);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates}, &e), 0);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates, .strict = true}, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "no node is named so"));
    e.code = 0;
    gates.n = 0;
    assert_int_equal(gates_parse(&gates, "kernel=ref", "--set", &e), 0);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates, .strict = true}, &e), 0);
    for (int i = 0; i < p->n_steps; i++) {
        assert_string_equal(p->steps[i].kernel->variant, "ref");
        for (int j = 0; j < p->steps[i].n_passed; j++)
            assert_true(p->steps[i].passed[j].reason.text[0] != 0);
    }
    gates_free(&gates);
    arena_free(&arena);
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    return a->offset < b->offset + tensor_nbytes(b) && b->offset < a->offset + tensor_nbytes(a);
}

/* While a node runs, its sources, its output and the inputs must all be apart; and memory must be reused at all. */
static void test_memory(void **unused)
{
    (void)unused;
    struct arena arena = {0};
    struct graph g;
    struct gates gates = {0};
    struct hone_error e = {0};
    struct plan *p;
    graph_init(&g, &arena);
    struct tensor *x = chain(&g, 50);
    assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates}, &e), 0);
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *n = p->steps[i].node;
        for (int j = 0; j < n->n_src; j++)
            assert_false(overlap(n->out, n->src[j]));
        assert_false(overlap(n->out, x));
    }
    /* The residual of a link lives through the link: what is written meanwhile must not touch it. */
    for (int i = 0; i < p->n_steps; i++)
        for (int r = 0; r < i; r++) {
            int last = -1;
            for (int k = 0; k < p->n_steps; k++)
                for (int j = 0; j < p->steps[k].node->n_src; j++)
                    if (p->steps[k].node->src[j] == p->steps[r].node->out)
                        last = k;
            if (last >= i)
                assert_false(overlap(p->steps[i].node->out, p->steps[r].node->out));
        }
    assert_true(p->value_bytes < 8 * (tensor_nbytes(x) + 64));
    arena_free(&arena);
}

static int count_steps(void *user, const struct plan *p, int step, int64_t ns)
{
    (void)p;
    (void)step;
    (void)ns;
    ++*(int *)user;
    return 0;
}

static int fail_at_four(void *user, const struct plan *p, int step)
{
    (void)user;
    (void)p;
    return step == 4 ? HONE_ECHECK : 0;
}

static void test_run_and_stop(void **unused)
{
    (void)unused;
    for (int threads = 1; threads <= 3; threads++) {
        struct arena arena = {0};
        struct graph g;
        struct gates gates = {0};
        struct hone_error e = {0};
        struct plan *p;
        graph_init(&g, &arena);
        struct tensor *x = chain(&g, 10);
        assert_int_equal(plan_create(&p, &g, &(struct plan_options){.gates = &gates}, &e), 0);
        void *block = aligned_alloc(64, (p->value_bytes + 63) / 64 * 64);
        plan_bind(p, block);
        for (int i = 0; i < 64 * 3; i++)
            ((float *)x->data)[i] = (float)(i % 7) - 3;
        int steps = 0;
        struct observer count = {&steps, NULL, count_steps};
        struct run run = {.pool = pool_create(threads, 10, &e), .scratch = aligned_alloc(64, (size_t)threads * 1024),
                          .scratch_stride = 1024, .observer = &count};
        assert_true(p->scratch_bytes <= 1024);
        assert_int_equal(plan_run(p, &run, &e), 0);
        assert_int_equal(steps, p->n_steps);
        struct observer failing = {&steps, fail_at_four, count_steps};
        run.observer = &failing;
        steps = 0;
        assert_int_equal(plan_run(p, &run, &e), HONE_ECHECK);
        assert_non_null(strstr(e.message, "half-1"));
        assert_int_equal(steps, 5);
        atomic_int cancel = 1;
        run.observer = NULL;
        run.cancel = &cancel;
        e.code = 0;
        assert_int_equal(plan_run(p, &run, &e), HONE_ECANCELED);
        pool_free(run.pool);
        free(run.scratch);
        free(block);
        arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gates_refused), cmocka_unit_test(test_gates_match), cmocka_unit_test(test_plan_reasons),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_run_and_stop),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
