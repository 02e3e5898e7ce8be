/* test_shard.c: models over several ranks in one process.
 *
 * Every model of HONE_DATA/archs runs on two, three and four ranks, with even and uneven shares, on the reference kernels: its
 * logits must be those of the independent implementation, as close as on one device, for two requests, with a rewind, a fork,
 * and a session saved on so many ranks and restored on others; and on fast kernels within the bound of the lab. The same bits
 * come again and again. Then what must be refused, what a rank keeps, what a failing or cancelled rank does to the others, on
 * which cores ranks run, and whether each is watched beside its references. */
#include "tests/subject.h"

#include "base/cpu.h"
#include "comm/comm.h"
#include "graph/fuse.h"
#include "graph/split.h"
#include "lab/shadow.h"
#include "ops/view.h"

/* ---- the arithmetic of parts */

static struct tensor shaped(int n_dims, const int64_t *ne)
{
    struct tensor t = {.kind = TENSOR_VALUE};
    tensor_shape(&t, FORMAT_F32, n_dims, ne);
    return t;
}

static void expect_split(const struct split *s, int axis, const struct piece *pieces, int n)
{
    assert_int_equal(s->axis, axis);
    assert_int_equal(s->n_pieces, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(s->pieces[i].first, pieces[i].first);
        assert_int_equal(s->pieces[i].count, pieces[i].count);
    }
}

static void test_pieces(void **state)
{
    (void)state;
    struct arena a = {0};
    struct split s, t, u;
    assert_true(split_make(&s, &a, 1, (const struct piece[]){{8, 2}, {0, 3}, {3, 1}, {20, 0}}, 4));
    expect_split(&s, 1, (const struct piece[]){{0, 4}, {8, 2}}, 2);
    assert_int_equal(s.count, 6);
    assert_int_equal(split_before(&s, 0), 0);
    assert_int_equal(split_before(&s, 3), 3);
    assert_int_equal(split_before(&s, 8), 4);
    assert_int_equal(split_before(&s, 9), 5);
    assert_int_equal(split_before(&s, 100), 6);
    assert_true(split_make(&t, &a, 1, (const struct piece[]){{4, 4}}, 1));
    assert_true(split_union(&u, &a, &s, &t));
    expect_split(&u, 1, (const struct piece[]){{0, 10}}, 1);
    assert_true(split_scale(&u, &a, &s, 0, 32, 5));
    expect_split(&u, 0, (const struct piece[]){{5, 128}, {261, 64}}, 2);
    assert_true(split_window(&u, &a, &s, 2, 2, 8, 2)); /* [2, 4) and [8, 10), of [2, 10), by twos */
    expect_split(&u, 2, (const struct piece[]){{0, 1}, {3, 1}}, 2);
    assert_false(split_window(&u, &a, &s, 2, 1, 8, 2)); /* [0, 3) is no multiple of two */
    assert_false(split_window(&u, &a, &s, 2, 4, 4, 1)); /* nothing lies there */
    assert_true(split_aligned(&s, 2, 100));
    assert_false(split_aligned(&s, 4, 100));
    assert_true(split_aligned(&s, 4, 10)); /* the axis ends with the last piece, which begins at 8 */
    arena_free(&a);
}

static void test_reshapes(void **state)
{
    (void)state;
    struct arena a = {0};
    struct split s, t, back;
    struct tensor flat = shaped(2, (const int64_t[]){96, 5}), heads = shaped(3, (const int64_t[]){16, 6, 5});
    struct tensor all = shaped(1, (const int64_t[]){480});
    assert_true(split_make(&s, &a, 1, (const struct piece[]){{1, 2}, {5, 1}}, 2));
    assert_true(split_reshape(&t, &a, &s, &heads, &flat));
    expect_split(&t, 0, (const struct piece[]){{16, 32}, {80, 16}}, 2);
    assert_true(split_reshape(&back, &a, &t, &flat, &heads));
    assert_true(split_equal(&back, &s));
    assert_false(split_reshape(&t, &a, &s, &heads, &all)); /* every fifth run: no axis of its own */
    assert_true(split_make(&t, &a, 0, (const struct piece[]){{8, 16}}, 1));
    assert_false(split_reshape(&back, &a, &t, &flat, &heads)); /* half heads */
    arena_free(&a);
}

/* Rows of q, k and v in one: q of 4 heads, k of 2, v of 2, of 8 each. */
static void test_views(void **state)
{
    (void)state;
    struct arena a = {0};
    struct split s, t, back;
    struct walk w;
    bool whole;
    struct tensor all = shaped(2, (const int64_t[]){64, 3}), k = shaped(3, (const int64_t[]){8, 2, 3});
    k.nb[1] = 32;
    k.nb[2] = k.nb[3] = all.nb[1];
    assert_true(walk_read(&w, &all, &k, 32 * sizeof(float)));
    assert_true(split_make(&s, &a, 0, (const struct piece[]){{0, 16}, {40, 8}, {56, 8}}, 3)); /* q0 q1, k1, v1 */
    assert_true(split_view(&t, &a, &s, &w, &k, &whole));
    expect_split(&t, 1, (const struct piece[]){{1, 1}}, 1);
    assert_false(whole);
    assert_true(split_view_back(&back, &a, &t, &w, &k));
    expect_split(&back, 0, (const struct piece[]){{40, 8}}, 1);
    assert_true(split_make(&s, &a, 0, (const struct piece[]){{0, 16}, {32, 32}}, 2)); /* q0 q1, all of k and v */
    assert_true(split_view(&t, &a, &s, &w, &k, &whole));
    assert_true(whole);
    assert_true(split_make(&s, &a, 0, (const struct piece[]){{0, 36}}, 1)); /* half of k0 */
    assert_false(split_view(&t, &a, &s, &w, &k, &whole));
    /* A slice of each head: the axis of heads goes through. */
    struct tensor pair = shaped(3, (const int64_t[]){16, 4, 3}), gate = shaped(3, (const int64_t[]){8, 4, 3});
    memcpy(gate.nb, pair.nb, sizeof gate.nb);
    assert_true(walk_read(&w, &pair, &gate, 32));
    assert_true(split_make(&s, &a, 1, (const struct piece[]){{2, 2}}, 1));
    assert_true(split_view(&t, &a, &s, &w, &gate, &whole));
    assert_true(split_equal(&t, &s) && !whole);
    /* One element of what is split, and strides that follow nothing. */
    struct tensor one = shaped(2, (const int64_t[]){16, 1}), odd = shaped(2, (const int64_t[]){8, 2});
    assert_true(walk_read(&w, &pair, &one, pair.nb[1]));
    assert_false(split_view(&t, &a, &s, &w, &one, &whole));
    odd.nb[1] = 20;
    odd.nb[0] = 3;
    assert_false(walk_read(&w, &pair, &odd, 0));
    arena_free(&a);
}

/* ---- whole models */

/* Prompt and greedy continuation, a second request, a rewind within it, a fork. */
static void check_reference(const struct subject *u, const char *mode, const char *shares)
{
    struct hone_session *s = session_over(u->model, mode, shares, "kernel=ref", 2);
    struct hone_error e = {0};
    float *first = rows_new(u), *again = rows_new(u);
    check_requests(u, s, shares, first, again);
    rewind_to(s, 0, 0);
    eval_chunked(u, s, 0, 0, 10, 10, again);
    eval_chunked(u, s, 0, 10, u->n, 1, again);
    hold(u, again, shares, "a token a step");
    rewind_to(s, 0, 10);
    assert_done(hone_session_fork(s, 0, 1, &e), e);
    session_feed(s, 0, u->greedy, 3, 1);
    eval_chunked(u, s, 1, 10, u->n, 7, again);
    hold(u, again, shares, "on a fork");
    hone_session_free(s);
    free(first);
    free(again);
}

static void check_fast(const struct subject *u, const char *mode, const char *shares)
{
    struct hone_session *s = session_over(u->model, mode, shares, NULL, 1);
    float *rows = rows_new(u), *again = rows_new(u);
    for (int request = 0; request < 2; request++) {
        rewind_to(s, 0, 0);
        eval_chunked(u, s, 0, 0, u->n, 20, request ? again : rows);
    }
    same_bits(u, again, rows, 0, shares, "a second request on fast kernels");
    hold_fast(u, rows, shares);
    hone_session_free(s);
    free(rows);
    free(again);
}

/* Saved on some ranks, restored on others and on one device. */
static void check_saved(const struct subject *u, const char *mode, const char *shares)
{
    char path[] = "/tmp/hone-shard-XXXXXX";
    struct hone_error e = {0};
    float *rows = rows_new(u);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct hone_session *s = session_over(u->model, mode, shares, "kernel=ref", 1);
    eval_chunked(u, s, 0, 0, 10, 10, rows);
    assert_done(hone_session_save(s, path, &e), e);
    hone_session_free(s);
    for (int to = 0; to < 3; to++) {
        s = session_over(u->model, to ? mode : NULL, to == 1 ? shares : "1/1", "kernel=ref", 1);
        session_feed(s, 0, u->greedy, 5, 1);
        assert_done(hone_session_restore(s, path, &e), e);
        assert_int_equal(hone_session_length(s, 0), 10);
        eval_chunked(u, s, 0, 10, u->n, 4, rows);
        hold(u, rows, shares, "saved and restored");
        hone_session_free(s);
    }
    unlink(path);
    free(rows);
}

#ifdef __SANITIZE_THREAD__
static const char *const cuts[] = {"2/1/1"};
#else
static const char *const cuts[] = {"1/1", "1/1/1", "1/1/1/1", "3/1", "1/2/1"};
#endif

/* Fused and plain collectives: the order of sums is the same, and so are the bits. */
static void check_fused(const struct subject *u, const char *shares)
{
    float *plain = rows_new(u), *fused = rows_new(u);
    for (size_t g = 0; g < N_COLLECTIVE_GATES; g++) {
        struct hone_session *s = session_over(u->model, "tensor", shares, collective_gates[g], 1);
        eval_chunked(u, s, 0, 0, 20, 20, g ? fused : plain);
        eval_chunked(u, s, 0, 20, u->n, 1, g ? fused : plain);
        if (g)
            same_bits(u, fused, plain, 0, shares, collective_gates[g]);
        hone_session_free(s);
    }
    free(plain);
    free(fused);
}

static void check_tensor(const struct subject *u)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        check_reference(u, "tensor", cuts[i]);
        check_fast(u, "tensor", cuts[i]);
    }
    check_fused(u, "1/2/1");
    check_saved(u, "tensor", "1/2/1");
}

static void test_tensor(void **state)
{
    (void)state;
    each_arch(check_tensor);
}

static void check_layer(const struct subject *u)
{
    check_reference(u, "layer", "1/1");
    check_fast(u, "layer", "1/1");
    check_saved(u, "layer", "2/1");
}

static void test_layer(void **state)
{
    (void)state;
    each_arch(check_layer);
}

/* A sum whose rows are taken once a bias has been added: the bias is between them. */
static bool biased_rows(const struct plan *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        const struct node *n = p->graph->nodes[i], *add = n->op == OP_GET_ROWS ? n->src[0]->producer : NULL;
        if (add && add->op == OP_ADD && add->src[1]->kind == TENSOR_WEIGHT && add->src[0]->producer &&
            node_collective(add->src[0]->producer))
            return true;
    }
    return false;
}

/* Every architecture takes the rows whose logits are wanted right behind the last layer's attention, so that its sum is of those alone. */
static void check_last_rows(const struct subject *u)
{
    struct hone_session *s = session_of(u->model, "tensor", "1/1", "fuse.all_reduce_get_rows=on", 1, 2);
    struct hone_error e = {0};
    const struct plan *p;
    assert_done(session_plan(s, 5, 1, &p, &e), e);
    if (p->fuse_hits[FUSE_all_reduce_get_rows] != 1 && !biased_rows(p))
        fail_msg("%s: all_reduce+get_rows %d times: %s", u->name, p->fuse_hits[FUSE_all_reduce_get_rows],
                 p->fuse_misses[FUSE_all_reduce_get_rows].text);
    hone_session_free(s);
}

static void test_last_rows(void **state)
{
    (void)state;
    each_arch(check_last_rows);
}

/* Twenty times the same step: the order of sums does not depend on who comes first. */
static void test_repeats(void **state)
{
    (void)state;
    struct subject u;
    subject_open(&u, data_folder(), "llama");
    float *first = rows_new(&u), *again = rows_new(&u);
    for (int i = 0; i < 20; i++) {
        struct hone_session *s = session_of(u.model, "tensor", "1/1/1", NULL, 1, 3 + i % 3); /* some ranks of two threads */
        eval_chunked(&u, s, 0, 0, u.n, 5, i ? again : first);
        if (i)
            same_bits(&u, again, first, 0, "1/1/1", "a repeat");
        hone_session_free(s);
    }
    free(first);
    free(again);
    subject_close(&u);
}

/* ---- what a rank has */

static void test_memory(void **state)
{
    (void)state;
    struct subject u;
    subject_open(&u, data_folder(), "llama");
    struct hone_session *one = session_over(u.model, NULL, NULL, NULL, 1), *s = session_over(u.model, "tensor", "1/1", NULL, 1);
    struct rank_memory m[2], all;
    int n_rows;
    const struct shard_row *rows = shard_rows(session_shard(s), &n_rows);
    double split = 0, mirrored = 0;
    assert_int_equal(session_ranks(one), 1);
    assert_null(session_shard(one));
    assert_int_equal(session_ranks(s), 2);
    session_rank_memory(one, 0, &all);
    for (int r = 0; r < 2; r++)
        session_rank_memory(s, r, &m[r]);
    for (int i = 0; i < n_rows; i++) {
        if (rows[i].parts || strcmp(rows[i].why, "looked up by row") != 0)
            *(rows[i].parts ? &split : &mirrored) += rows[i].bytes;
        if (rows[i].parts)
            assert_int_equal(rows[i].parts[0] + rows[i].parts[1], rows[i].total);
    }
    assert_true(split > 0);
    assert_true(fabs(m[0].weights + m[1].weights - split) < 1);
    assert_true(m[0].mirrored >= mirrored && m[0].mirrored == m[1].mirrored);
    assert_int_equal(m[0].kv + m[1].kv, all.kv);
    assert_int_equal(session_kv_bytes(s), all.kv);
    assert_int_equal(m[0].threads, 1);
    hone_session_free(one);
    hone_session_free(s);
    subject_close(&u);
}

/* ---- refusals */

static void refused(const struct hone_model *m, const char *mode, const char *shares, const char *devices, const char *word)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = 64;
    p.split_mode = mode;
    p.tensor_split = shares;
    p.devices = devices;
    assert_int_equal(hone_session_create(&s, m, &p, &e), HONE_EUSAGE);
    assert_null(s);
    if (!strstr(e.message, word))
        fail_msg("-sm %s -ts %s -dev %s: '%s' does not say '%s'", mode, shares, devices, e.message, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct subject u;
    char many[2000] = "1";
    subject_open(&u, data_folder(), "llama");
    refused(u.model, "rows", "1/1", NULL, "-sm rows");
    refused(u.model, "tensor", NULL, NULL, "over which devices");
    refused(u.model, "tensor", "1", NULL, "one device");
    refused(u.model, "tensor", "1/0", NULL, "'0' is no share");
    refused(u.model, "tensor", "1/-1", NULL, "'-1' is no share");
    refused(u.model, "tensor", "1/nan", NULL, "'nan' is no share");
    refused(u.model, "tensor", "1/x", NULL, "'x' is no share");
    refused(u.model, "tensor", "1/0x10", NULL, "'0x10' is no share");
    refused(u.model, "tensor", "1/1e30", NULL, "'1e30' is a billion or more");
    refused(u.model, "tensor", "1//1", NULL, "-ts 1//1: an empty word");
    refused(u.model, "tensor", "1/1/", NULL, "-ts 1/1/: an empty word");
    refused(u.model, "tensor", "1/1", "cpu,cpu,cpu", "2 shares");
    refused(u.model, "tensor", NULL, "cpu:0,cpu", "'cpu:0'");
    refused(u.model, "tensor", NULL, "cpu:1x,cpu", "'cpu:1x'");
    refused(u.model, "tensor", NULL, "gpu0,gpu1", "no device 'gpu0': this build has no backend for it; there are: cpu");
    refused(u.model, "layer", "1/1/1/1/1/1/1/1/1/1/1/1/1/1/1/1", NULL, "layers cannot be shared out over 16");
    for (int i = 0; i < 250; i++)
        strcat(many, "/1");
    refused(u.model, "tensor", many, NULL, "nothing of this model can be split over 251");
    for (int i = 0; i < 10; i++)
        strcat(many, "/1");
    refused(u.model, "tensor", many, NULL, "more than 256");
    subject_close(&u);
}

/* ---- a rank that fails */

static _Atomic int fail_on; /* the rank that fails, plus one */

static int run_failing(const struct exec *x, const struct node *n)
{
    if (x->worker.comm && fail_on == comm_rank(x->worker.comm) + 1 && n->layer == 1)
        return HONE_EFAULT;
    node_reference(n, &x->worker);
    return 0;
}

static size_t scratch_failing(const struct node *n)
{
    return node_scratch(n);
}

static const struct kernel failing = {.op = OP_RMS_NORM,
                                      .variant = "failing",
                                      .by_name_only = true,
                                      .wants = {.any_layout = true},
                                      .scratch = scratch_failing,
                                      .run = run_failing};

static void test_failing_rank(void **state)
{
    (void)state;
    struct subject u;
    struct hone_error e = {0};
    const struct kernel *const list[] = {&failing};
    subject_open(&u, data_folder(), "llama");
    assert_done(backend_register(backend_by_name("cpu"), list, 1, &e), e);
    struct hone_session *s = session_over(u.model, "tensor", "1/1/1", "kernel=ref;kernel.rms_norm=failing", 1);
    float *rows = rows_new(&u);
    eval_chunked(&u, s, 0, 0, u.n, u.n, rows);
    hold(&u, rows, "1/1/1", "before a failure");
    for (int rank = 0; rank < 3; rank++) {
        struct hone_token t = {u.tokens[0], 0, true};
        char who[32];
        fail_on = rank + 1;
        assert_int_equal(hone_session_eval(s, &t, 1, &e), HONE_EFAULT);
        fail_on = 0;
        snprintf(who, sizeof who, "rank %d", rank);
        if (!strstr(e.message, who) || !strstr(e.message, "rms_norm_failing"))
            fail_msg("'%s' names neither %s nor its kernel", e.message, who);
        assert_int_equal(hone_session_length(s, 0), (int32_t)u.n);
        rewind_to(s, 0, 0);
        eval_chunked(&u, s, 0, 0, u.n, 3, rows);
        hold(&u, rows, "1/1/1", "after a failure");
    }
    hone_session_cancel(s);
    struct hone_token t = {u.tokens[0], 0, true};
    assert_int_equal(hone_session_eval(s, &t, 1, &e), HONE_ECANCELED);
    rewind_to(s, 0, 0);
    eval_chunked(&u, s, 0, 0, u.n, u.n, rows);
    hold(&u, rows, "1/1/1", "after a cancel");
    hone_session_free(s);
    free(rows);
    subject_close(&u);
}

/* ---- ranks on cores of their own */

static cpu_set_t seen_on[4]; /* where the threads of each rank were */

static int run_seeing(const struct exec *x, const struct node *n)
{
    cpu_set_t now;
    if (x->worker.comm && x->worker.ith == 0 && !sched_getaffinity(0, sizeof now, &now))
        CPU_OR(&seen_on[comm_rank(x->worker.comm)], &seen_on[comm_rank(x->worker.comm)], &now);
    node_reference(n, &x->worker);
    return 0;
}

static const struct kernel seeing = {.op = OP_RMS_NORM,
                                     .variant = "seeing",
                                     .by_name_only = true,
                                     .wants = {.any_layout = true},
                                     .scratch = scratch_failing,
                                     .run = run_seeing};

static void see(const struct subject *u, const char *gates)
{
    struct hone_session *s = session_over(u->model, "tensor", "1/1", gates, 1);
    float *rows = rows_new(u);
    memset(seen_on, 0, sizeof seen_on);
    eval_chunked(u, s, 0, 0, u->n, u->n, rows);
    hone_session_free(s);
    free(rows);
}

static void test_cores(void **state)
{
    (void)state;
    static const struct kernel *const list[] = {&seeing};
    struct subject u;
    struct hone_error e = {0};
    cpu_set_t before, after, both, sets[3];
    assert_false(cpu_deal((const int[]){100000, 1}, 2, sets));
    if (cpu_processors() < 2) {
        print_message("skipped: one processor\n");
        skip();
    }
    assert_true(cpu_deal((const int[]){1, 1}, 2, sets));
    CPU_AND(&both, &sets[0], &sets[1]);
    assert_true(CPU_COUNT(&sets[0]) && CPU_COUNT(&sets[1]) && !CPU_COUNT(&both));
    subject_open(&u, data_folder(), "llama");
    assert_done(backend_register(backend_by_name("cpu"), list, 1, &e), e);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    see(&u, "kernel=ref;kernel.rms_norm=seeing");
    CPU_AND(&both, &seen_on[0], &seen_on[1]);
    assert_true(CPU_COUNT(&seen_on[0]) && CPU_COUNT(&seen_on[1]));
    assert_int_equal(CPU_COUNT(&both), 0);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0); /* the caller's thread is where it was */
    assert_true(CPU_EQUAL(&before, &after));
    see(&u, "kernel=ref;kernel.rms_norm=seeing;comm.pin=off");
    assert_true(CPU_EQUAL(&before, &seen_on[0]) && CPU_EQUAL(&before, &seen_on[1]));
    subject_close(&u);
}

/* ---- every device beside its references */

static int run_wrong(const struct exec *x, const struct node *n)
{
    node_reference(n, &x->worker);
    if (x->worker.comm && comm_rank(x->worker.comm) == 1 && n->layer == 1 && x->worker.ith == 0)
        *(float *)n->out->data += 1;
    return 0;
}

static const struct kernel wrong = {.op = OP_GLU,
                                    .variant = "wrong",
                                    .by_name_only = true,
                                    .wants = {.any_layout = true},
                                    .scratch = scratch_failing,
                                    .run = run_wrong};

static void test_shadow(void **state)
{
    (void)state;
    static const struct kernel *const list[] = {&wrong};
    static struct shadow found;
    struct subject u;
    struct hone_error e = {0};
    struct shadow_options o = {.n_prefill = 6, .n_decode = 1};
    subject_open(&u, data_folder(), "llama");
    assert_done(backend_register(backend_by_name("cpu"), list, 1, &e), e);
    struct hone_session *s = session_over(u.model, "tensor", "1/1", "fuse=off", 1);
    assert_done(shadow_run(&found, s, u.model, &o, &e), e);
    int compared = found.n_compared;
    assert_int_equal(found.n_devices, 2);
    assert_int_equal(found.n_watched, 2);
    assert_true(compared > 0);
    hone_session_free(s);
    s = session_over(u.model, "tensor", "1/1", "fuse=off;kernel.glu=wrong", 1);
    assert_int_equal(shadow_run(&found, s, u.model, &o, &e), HONE_ECHECK);
    assert_int_equal(found.n_faults, 6); /* a node of one layer in each of six steps */
    for (int i = 0; i < found.n_faults; i++)
        assert_int_equal(found.faults[i].device, 1);
    hone_session_free(s);
    subject_close(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_reshapes), cmocka_unit_test(test_views),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_memory),   cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_failing_rank), cmocka_unit_test(test_cores), cmocka_unit_test(test_shadow), cmocka_unit_test(test_last_rows), cmocka_unit_test(test_tensor),   cmocka_unit_test(test_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
