/* test_kernels.c: every fast CPU kernel on every case of its op that it fits, on the machine's own instruction sets.
 *
 * The planner's part is played here: the weight is packed and the activation quantised as the kernel wants. Then the reference
 * runs on just these, and the kernel with 1, 2, 3 and 7 threads: within the op's tolerance, the same bits for any number of
 * threads, nothing written outside. Matrix products must also give a token the same bits alone as among others, and kernels of
 * one layout the same bits as each other; quantize kernels the bits of the format's pack. */
#include "backends/backend.h"
#include "base/cpu.h"
#include "ops/cases.h"
#include "ops/quantize.h"

#include "tests/pools.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 41 };
/* ---- running */

struct run {
    const struct kernel *kernel;
    const struct node *node;
    struct pool *pool;
    void *scratch[7], *shared;
    size_t size;
    int rc[7];
};

static void run_worker(void *arg, int ith, int nth)
{
    struct run *r = arg;
    struct exec x = {.worker = {ith, nth, r->pool, r->scratch[ith], r->size}, .shared = r->shared};
    r->rc[ith] = r->kernel->run(&x, r->node);
}

/* Each worker's scratch is memory of its own, so that a sanitizer sees an overrun. */
static void run_kernel(const struct kernel *kernel, const struct node *node, int pool)
{
    struct run r = {.kernel = kernel, .node = node, .pool = pools[pool]};
    size_t shared = kernel->shared ? kernel->shared(node) : 0;
    r.size = kernel->scratch ? kernel->scratch(node) : 0;
    r.shared = aligned_alloc(64, (shared + 127) / 64 * 64);
    assert_non_null(r.shared);
    memset(r.shared, 0xff, shared);
    for (int i = 0; i < thread_counts[pool]; i++) {
        r.scratch[i] = aligned_alloc(64, (r.size + 127) / 64 * 64);
        assert_non_null(r.scratch[i]);
        memset(r.scratch[i], 0xff, r.size);
    }
    pool_run(r.pool, run_worker, &r);
    for (int i = 0; i < thread_counts[pool]; i++) {
        assert_int_equal(r.rc[i], 0);
        free(r.scratch[i]);
    }
    free(r.shared);
}

/* ---- what the planner does between choosing and running */

struct prepared {
    struct case_run *c;
    struct tensor weight, activation;
    struct tensor *old[2];
};

static void prepare(struct prepared *p, struct case_run *c, const struct kernel *kernel)
{
    *p = (struct prepared){.c = c, .old = {c->node.src[0], c->node.src[1]}};
    const struct layout *l = kernel->wants.layout;
    if (l) {
        const struct tensor *w = c->node.src[0];
        p->weight = *w;
        p->weight.layout = l;
        p->weight.data = aligned_alloc(64, (l->bytes(w->ne[0], w->ne[1]) + 63) / 64 * 64);
        assert_non_null(p->weight.data);
        l->pack(w->data, p->weight.data, w->ne[0], w->ne[1], 0, w->ne[1]);
        c->node.src[0] = &p->weight;
    }
    if (kernel->wants.quantized) {
        const struct tensor *x = c->node.src[1];
        float *row = malloc((size_t)(x->ne[0] + 1) * sizeof *row);
        tensor_shape(&p->activation, kernel->wants.activation, MAX_DIMS, x->ne);
        p->activation.data = malloc(tensor_nbytes(&p->activation) + 1);
        assert_true(row && p->activation.data);
        for (int64_t i = 0; i < tensor_rows(x); i++) {
            int64_t at[3];
            tensor_row_index(x, i, at);
            tensor_write_row(&p->activation, at[0], at[1], at[2], tensor_read_row(x, at[0], at[1], at[2], row));
        }
        c->node.src[1] = &p->activation;
        free(row);
    }
}

static void unprepare(struct prepared *p)
{
    if (p->weight.data)
        free(p->weight.data);
    free(p->activation.data);
    p->c->node.src[0] = p->old[0];
    p->c->node.src[1] = p->old[1];
}

/* ---- checks */

static void reset_output(struct case_run *c)
{
    struct case_memory *m = &c->memory[MAX_SRC];
    memcpy(m->bytes, m->before, m->size);
}

/* Token t of a product, alone: the same bits as in `all`, the whole output's memory. */
static void check_alone(const struct kernel *kernel, struct case_run *c, const unsigned char *all, int64_t t)
{
    struct node n = c->node;
    struct tensor x = *n.src[1], out = *n.out;
    x.ne[1] = out.ne[1] = 1;
    x.data = tensor_row(&x, t, 0, 0);
    out.data = tensor_row(&out, t, 0, 0);
    n.src[1] = &x;
    n.out = &out;
    run_kernel(kernel, &n, 0);
    for (int64_t i3 = 0; i3 < out.ne[3]; i3++)
        for (int64_t i2 = 0; i2 < out.ne[2]; i2++) {
            const unsigned char *row = tensor_row(&out, 0, i2, i3);
            assert_memory_equal(row, all + (row - c->memory[MAX_SRC].bytes), (size_t)out.ne[0] * sizeof(float));
        }
}

/* Output bytes of the last kernel that ran with this layout, for the case at hand. */
struct seen {
    const struct layout *layout;
    unsigned char *bytes;
};

static void check_case(const struct kernel *kernel, struct case_run *c, const char *name, struct seen *seen)
{
    const struct op_desc *desc = op_get(kernel->op);
    const struct case_memory *m = &c->memory[MAX_SRC];
    struct hone_error e = {0};
    struct prepared p;
    prepare(&p, c, kernel);
    assert_int_equal(case_reference(c, pools[0], &e), 0);
    unsigned char *first = malloc(m->size + 1), *expected = malloc(m->size + 1);
    struct tensor reference = c->out;
    assert_true(first && expected);
    memcpy(expected, m->bytes, m->size);
    reference.data = expected + ((unsigned char *)c->out.data - m->bytes);
    for (int pool = 0; pool < N_POOLS; pool++) {
        reset_output(c);
        run_kernel(kernel, &c->node, pool);
        if (case_damage(c, &e))
            fail_msg("%s %s with %d threads: %s", kernel->variant, name, thread_counts[pool], e.message);
        if (pool == 0)
            memcpy(first, m->bytes, m->size);
        else if (memcmp(first, m->bytes, m->size) != 0)
            fail_msg("%s %s: %d threads give other bits than one", kernel->variant, name, thread_counts[pool]);
    }
    int64_t worst = 0;
    double error = tensor_nmse(&c->out, &reference, &worst);
    if (!(error <= desc->tolerance))
        fail_msg("%s %s (seed %d): error %.3g, allowed %.3g, worst at element %lld", kernel->variant, name, SEED, error,
                 desc->tolerance, (long long)worst);
    if (kernel->op == OP_QUANTIZE && memcmp(first, expected, m->size) != 0)
        fail_msg("%s %s: not the bits of the format's pack", kernel->variant, name);
    if (kernel->op == OP_MUL_MAT && c->out.ne[1] > 1) {
        check_alone(kernel, c, first, 0);
        check_alone(kernel, c, first, c->out.ne[1] - 1);
    }
    if (kernel->wants.layout && seen->layout == kernel->wants.layout && memcmp(seen->bytes, first, m->size) != 0)
        fail_msg("%s %s: other bits than the kernel before it on %s", kernel->variant, name, seen->layout->name);
    reset_output(c);
    unprepare(&p);
    free(expected);
    free(seen->bytes);
    *seen = (struct seen){kernel->wants.layout, first};
}

static void check_op(enum op op)
{
    const struct op_desc *desc = op_get(op);
    int n, ran = 0;
    const struct kernel *const *kernels = backend_by_name("cpu")->kernels(&n);
    bool *used = calloc((size_t)n, sizeof *used);
    assert_non_null(used);
    for (int i = 0; i < desc->n_cases; i++) {
        struct case_run c;
        struct hone_error e = {0};
        struct seen seen = {0};
        if (case_create(&c, op, i, SEED + (uint64_t)i, &e))
            fail_msg("%s %s: %s", desc->name, desc->cases[i].name, e.message);
        c.src[0].kind = TENSOR_WEIGHT;
        for (int k = 0; k < n; k++) {
            struct reason reason = {""};
            if (kernels[k]->op != op || !strcmp(kernels[k]->variant, "ref") || (kernels[k]->needs & ~cpu_features()) != 0)
                continue;
            if (!kernels[k]->fits(&c.node, &reason)) {
                assert_true(reason.text[0]);
                continue;
            }
            check_case(kernels[k], &c, desc->cases[i].name, &seen);
            used[k] = true;
            ran++;
        }
        free(seen.bytes);
        case_free(&c);
    }
    for (int k = 0; k < n; k++) {
        if (kernels[k]->op != op || !strcmp(kernels[k]->variant, "ref") || used[k])
            continue;
        if ((kernels[k]->needs & ~cpu_features()) == 0)
            fail_msg("%s fits no case of %s", kernels[k]->variant, desc->name);
        printf("skipped: %s needs instructions that this processor lacks\n", kernels[k]->variant);
    }
    assert_true(ran > 0 || cpu_features() == 0);
    printf("%s: %d runs of a kernel on a case\n", desc->name, ran);
    free(used);
}

static void test_mul_mat(void **state)
{
    (void)state;
    check_op(OP_MUL_MAT);
}

static void test_quantize(void **state)
{
    (void)state;
    check_op(OP_QUANTIZE);
}

/* Refusals name what is wrong, and what a kernel refuses is what it could not run. */
static void test_refusals(void **state)
{
    (void)state;
    int n;
    const struct kernel *const *kernels = backend_by_name("cpu")->kernels(&n), *q4 = NULL;
    for (int i = 0; i < n; i++)
        if (!strcmp(kernels[i]->variant, "q4_0_avx2"))
            q4 = kernels[i];
    assert_non_null(q4);
    struct tensor w = {.kind = TENSOR_WEIGHT}, x = {.kind = TENSOR_VALUE}, out = {.kind = TENSOR_VALUE};
    tensor_shape(&w, FORMAT_Q4_0, 2, (const int64_t[]){64, 5});
    tensor_shape(&x, FORMAT_F32, 2, (const int64_t[]){64, 3});
    tensor_shape(&out, FORMAT_F32, 2, (const int64_t[]){5, 3});
    struct node node = {.op = OP_MUL_MAT, .out = &out, .src = {&w, &x}, .n_src = 2};
    struct reason r = {""};
    assert_true(q4->fits(&node, &r));
    w.layout = q4->wants.layout; /* as it is once packed, and X once quantised */
    tensor_shape(&x, FORMAT_A8, 2, (const int64_t[]){64, 3});
    assert_true(q4->fits(&node, &r));
    static const struct layout other = {.name = "other"};
    w.layout = &other;
    assert_true(!q4->fits(&node, &r) && strstr(r.text, "other"));
    w.layout = NULL;
    w.nb[1] += 18;
    assert_true(!q4->fits(&node, &r) && strstr(r.text, "one behind the other"));
    w.nb[1] -= 18;
    w.kind = TENSOR_VALUE;
    assert_true(!q4->fits(&node, &r) && strstr(r.text, "no weight"));
    w.kind = TENSOR_WEIGHT;
    w.format = FORMAT_Q4_1;
    assert_true(!q4->fits(&node, &r) && strstr(r.text, "Q4_1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mul_mat),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("kernels", tests, start_pools, stop_pools);
}
