/* test_ranks_device.c: models split over ranks that run on devices, with pretended ones (fake_device.h), whose kernels are the
 * references: so the logits must have the bits of the same split over threads, whatever ranks share a device, in every way to
 * meet. Then what a step costs, what is left when a session goes, saving, failing, and what must be refused. */
#include "tests/facts.h"
#include "tests/fake_device.h"
#include "tests/feed.h"

#include "base/log.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "graph/weights.h"
#include "lab/trace.h"

#include <dirent.h>
#include <unistd.h>

enum { N_CTX = 64 };
/* The references' bits, there and here. */
static const char plain[] = "kernel.cpu=ref kernel.fake.mul_mat=plain comm.timeout=20 ";

static struct hone_model *open_model(const char *name)
{
    char path[4096];
    const char *data = getenv("HONE_DATA");
    snprintf(path, sizeof path, "%s/archs/%s.gguf", data ? data : "", name);
    if (access(path, R_OK)) {
        print_message("SKIPPED: no test data at %s (HONE_DATA)\n", path);
        skip();
    }
    struct hone_error e = {0};
    struct hone_model *m;
    assert_done(hone_model_open(&m, path, &e), e);
    return m;
}

static int try_session(struct hone_session **s, const struct hone_model *m, const char *gates, const char *devices,
                       const char *shares, struct hone_error *e)
{
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = N_CTX;
    p.n_seq = 2;
    p.n_threads = 2;
    p.poll = 0;
    p.gates = gates;
    p.devices = devices;
    p.tensor_split = shares;
    p.split_mode = devices ? "tensor" : NULL;
    p.n_gpu_layers = devices ? -1 : 0;
    p.type_k = p.type_v = "f16";
    return hone_session_create(s, m, &p, e);
}

static struct hone_session *open_session(const struct hone_model *m, const char *gates, const char *devices, const char *shares)
{
    struct hone_error e = {0};
    struct hone_session *s;
    assert_done(try_session(&s, m, gates, devices, shares, &e), e);
    return s;
}

/* All tokens, in one prefill of 18 and six steps; malloc'd. */
static float *logits_of(struct hone_session *s, const struct hone_model *m)
{
    struct hone_error e = {0};
    size_t row = (size_t)hone_model_n_vocab(m);
    float *out = malloc(N * row * sizeof *out);
    assert_non_null(out);
    assert_done(hone_session_rewind(s, 0, 0, &e), e);
    for (int at = 0, n; at < N; at += n) {
        n = at ? 1 : 18;
        feed_ok(s, 0, ids + at, n);
        memcpy(out + (size_t)at * row, hone_session_logits(s, 0), (size_t)n * row * sizeof *out);
    }
    return out;
}

static void same_bits(const struct hone_model *m, const float *a, const float *b, const char *what)
{
    size_t row = (size_t)hone_model_n_vocab(m);
    for (size_t i = 0; i < N * row; i++)
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("%s: token %zu, id %zu: %.9g and %.9g", what, i / row, i % row, (double)a[i], (double)b[i]);
}

static void nothing_left(void)
{
    assert_int_equal(fake.n_blocks, 0);
    assert_int_equal(fake.n_streams, 0);
    assert_int_equal(fake.n_graphs, 0);
    assert_int_equal(fake.n_host, 0);
    assert_int_equal(fake.n_links, 0);
}

static const struct plan *plan_of(struct hone_session *s)
{
    const struct plan *p;
    struct hone_error e = {0};
    assert_done(session_plan(s, 1, 1, &p, &e), e);
    return p;
}

/* Steps that meet, at the host or not. */
static int meetings(const struct plan *p, bool host)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += node_collective(p->steps[i].node) && !p->steps[i].node->place == host;
    return n;
}

static const char *const splits[][3] = {
    /* on devices, the same on threads, shares */
    {"fake0,fake0", "cpu,cpu", NULL},
    {"fake0,fake1", "cpu,cpu", "3/1"},
    {"fake1/fake0/fake1", "cpu,cpu,cpu", "1/2/1"},
    {"fake0,cpu", "cpu,cpu", "1/1"},
    {"cpu,fake1,fake1", "cpu,cpu,cpu", "1/1/1"},
};
enum { N_SPLITS = sizeof splits / sizeof *splits };

static void check_arch(const char *name)
{
    struct hone_model *m = open_model(name);
    for (int i = 0; i < N_SPLITS; i++) {
        char gates[200], what[300];
        struct hone_session *s = open_session(m, "kernel=ref", splits[i][1], splits[i][2] ? splits[i][2] : "1/1");
        float *want = logits_of(s, m), *got;
        bool linked = !strstr(splits[i][0], "cpu");
        hone_session_free(s);
        for (int at_host = 0; at_host <= linked; at_host++) {
            snprintf(gates, sizeof gates, "%s%s", plain, at_host ? "comm.link=host" : "");
            snprintf(what, sizeof what, "%s on %s %s", name, splits[i][0], gates);
            s = open_session(m, gates, splits[i][0], splits[i][2]);
            got = logits_of(s, m);
            same_bits(m, got, want, what);
            const struct plan *p = plan_of(s);
            if (p->placement) {
                assert_int_equal(p->n_moved, 0);
                assert_true(meetings(p, !linked || at_host) > 0);
                assert_int_equal(meetings(p, linked && !at_host), 0);
            }
            free(got);
            got = logits_of(s, m); /* a second request */
            same_bits(m, got, want, what);
            free(got);
            hone_session_free(s);
        }
        free(want);
    }
    hone_model_close(m);
    nothing_left();
}

static void test_archs(void **state)
{
    (void)state;
#ifdef HONE_SANITIZED
    static const char *const archs[] = {"llama", "qwen35"};
#else
    static const char *const archs[] = {"llama", "qwen35", "gemma3", "qwen3moe", "gpt-oss", "olmo2", "qwen35moe", "phi3"};
#endif
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        check_arch(archs[i]);
}

/* Fused collectives have the bits of those that are not, and are counted as on threads. */
static void test_fused(void **state)
{
    (void)state;
    static const char *const fused[] = {"fuse.all_reduce_add=on fuse.all_reduce_get_rows=on",
                                        "fuse.all_reduce_add_rms_norm=on fuse.all_reduce_get_rows=on", "fuse=off"};
    struct hone_model *m = open_model("llama");
    struct hone_session *s = open_session(m, "kernel=ref", "cpu,cpu", NULL);
    float *want = logits_of(s, m);
    hone_session_free(s);
    for (int i = 0; i < 3; i++) {
        char gates[300];
        snprintf(gates, sizeof gates, "%s%s", plain, fused[i]);
        s = open_session(m, gates, "fake0,fake0", NULL);
        float *got = logits_of(s, m);
        same_bits(m, got, want, gates);
        free(got);
        struct trace t;
        struct hone_error e = {0};
        struct trace_options o = {.n_tokens = 1, .repeats = 3, .depth = 4, .n_threads = 1, .timed = i == 0};
        assert_done(trace_run(&t, s, m, &o, &e), e);
        assert_int_equal(t.collectives.n, meetings(t.plan, false));
        assert_int_equal(t.collectives.path[PATH_PLAIN], i == 2 ? t.collectives.n : 0);
        assert_int_equal(t.collectives.path[PATH_GET_ROWS], i < 2);
        assert_int_equal(t.collectives.fallback, 0);
        assert_true(t.collectives.raw_count > t.collectives.n * 6);
        for (int k = 0; k < t.collectives.n; k++)
            assert_true(t.collectives.list[k].ns > 0 && (t.collectives.list[k].wait_ns > 0) == (i == 0));
        trace_free(&t);
        hone_session_free(s);
    }
    free(want);
    hone_model_close(m);
    nothing_left();
}

/* A decode step of two ranks: a replay each, nothing is launched, one wait each; and a new shape elsewhere leaves it so. */
static void test_replay(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    for (int crowded = 0; crowded < 2; crowded++) {
        struct hone_session *s = open_session(m, plain, crowded ? "fake0,fake0" : "fake0,fake1", NULL);
        feed_ok(s, 0, ids, 20);
        int first = fake.syncs;
        feed_ok(s, 0, ids + 3, 1);
        if (!crowded) /* nothing is launched for the first time while a collective waits; who shares a device has run alone before */
            assert_int_equal(fake.syncs - first, 2 * (1 + meetings(plan_of(s), false)));
        feed_ok(s, 0, ids + 4, 1);
        int launches = fake.launches, replays = fake.replays, copies = fake.copies, syncs = fake.syncs, graphs = fake.n_graphs;
        feed_ok(s, 0, ids + 5, 1);
        assert_int_equal(fake.launches, launches);
        assert_int_equal(fake.replays, replays + 2);
        assert_int_equal(fake.syncs, syncs + 2);
        assert_int_equal(fake.copies, copies); /* the map's entry was foreseen */
        feed_ok(s, 0, ids, 3);                 /* smaller: nothing moves, so nothing is captured again */
        launches = fake.launches;
        assert_true(fake.n_graphs >= graphs);
        feed_ok(s, 0, ids + 6, 1);
        assert_int_equal(fake.launches, launches);
        fake.no_capture = true;
        feed_ok(s, 0, ids, 2);
        fake.no_capture = false;
        hone_session_free(s);
    }
    hone_model_close(m);
    nothing_left();
}

/* A rank keeps its own part alone; what both have is there once a device. */
static void test_memory(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    struct hone_session *s = open_session(m, plain, "fake0,fake1", "1/1"), *never;
    struct rank_memory a, b;
    struct hone_error e = {0};
    size_t host = 0;
    feed_ok(s, 0, ids, 4);
    session_rank_memory(s, 0, &a);
    session_rank_memory(s, 1, &b);
    assert_string_equal(a.device, "fake0");
    assert_string_equal(b.device, "fake1");

    assert_true(a.weights > 0 && b.weights > 0 && a.kv == b.kv && a.values > 0 && b.values > 0);
    for (int i = 0; i < m->model->n_weights; i++) {
        const struct tensor *w = m->model->weights[i];
        bool whole[2] = {weight_twin(w, &fake_backend, 0) != NULL, weight_twin(w, &fake_backend, 1) != NULL};
        assert_true(whole[0] == whole[1]);
        if (strstr(w->name, "ffn_") && !strstr(w->name, "norm"))
            assert_false(whole[0]);
        host += w->packed_bytes;
    }
    assert_int_equal(host, 0);
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
    m = open_model("llama");
    fake.limit = 20000;
    assert_int_equal(try_session(&never, m, plain, "fake0,fake0", NULL, &e), HONE_ERESOURCE);
    fake.limit = SIZE_MAX;
    nothing_left();
    s = open_session(m, plain, "fake0,fake0", NULL);
    fake.limit = fake.bytes + 100000;
    int rc = feed(s, 0, ids, 4, &e);
    assert_int_equal(rc, HONE_ERESOURCE);
    fake.limit = SIZE_MAX;
    feed_ok(s, 0, ids, 4); /* and it works once there is memory */
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
}

/* Saved on devices, restored on threads, and the other way; forks. */
static void test_saved(void **state)
{
    (void)state;
    static const char *const where[] = {"fake0,fake0", "cpu,cpu", "fake0,fake1,fake0", NULL};
    for (int a = 0; a < 2; a++) {
        struct hone_model *m = open_model(a ? "qwen35" : "llama");
        size_t row = (size_t)hone_model_n_vocab(m);
        float *want = malloc(row * sizeof *want);
        for (int from = 0; from < 3; from++) {
            char path[] = "/tmp/hone-ranks-XXXXXX";
            struct hone_error e = {0};
            int fd = mkstemp(path);
            assert_true(fd >= 0);
            close(fd);
            struct hone_session *s = open_session(m, plain, where[from], NULL);
            feed_ok(s, 0, ids, 10);
            assert_done(hone_session_fork(s, 0, 1, &e), e);
            feed_ok(s, 1, ids + 10, 1);
            assert_done(hone_session_save(s, path, &e), e);
            feed_ok(s, 1, ids + 11, 1);
            memcpy(want, hone_session_logits(s, 0), row * sizeof *want);
            hone_session_free(s);
            for (int to = 0; to < 4; to++) {
                s = open_session(m, plain, where[to], NULL);
                feed_ok(s, 0, ids + 3, 5);
                assert_done(hone_session_restore(s, path, &e), e);
                feed_ok(s, 1, ids + 11, 1);
                const float *got = hone_session_logits(s, 0);
                bool same = to == from || (from < 2 && to < 2); /* as many ranks */
                for (size_t i = 0; i < row; i++)
                    if (same ? got[i] != want[i] : !(got[i] - want[i] < 0.05f && want[i] - got[i] < 0.05f))
                        fail_msg("from %s to %s: id %zu: %g and %g", where[from], where[to] ? where[to] : "one", i,
                                 (double)got[i], (double)want[i]);
                hone_session_free(s);
            }
            unlink(path);
        }
        free(want);
        hone_model_close(m);
        nothing_left();
    }
}

/* A larger step for which some rank has no memory is an error; those that had moved theirs by then go on with the plans that they had. */
static void test_no_room_for_more(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    struct hone_session *s = open_session(m, plain, "fake0,fake1,fake0", NULL);
    struct hone_error e = {0};
    size_t row = (size_t)hone_model_n_vocab(m);
    float *want = malloc(row * sizeof *want);
    feed_ok(s, 0, ids, 1);
    memcpy(want, hone_session_logits(s, 0), row * sizeof *want);
    int refused = 0;
    for (size_t more = 0;; more += 4096) {
        assert_done(hone_session_rewind(s, 0, 0, &e), e);
        fake.limit = fake.bytes + more;
        int rc = feed(s, 0, ids, N, &e);
        fake.limit = SIZE_MAX;
        if (!rc)
            break;
        assert_int_equal(rc, HONE_ERESOURCE);
        refused++;
        e = (struct hone_error){0};
        assert_done(hone_session_rewind(s, 0, 0, &e), e);
        feed_ok(s, 0, ids, 1);
        assert_memory_equal(want, hone_session_logits(s, 0), row * sizeof *want);
    }
    assert_true(refused > 2);
    free(want);
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
}

/* A rank that fails ends the step for all, is named, and the session goes on. */
static void test_failing(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    for (int crowded = 0; crowded < 2; crowded++) {
        struct hone_session *s = open_session(m, plain, crowded ? "fake0,fake0,fake0" : "fake0,fake1,fake0", NULL);
        struct hone_error e = {0};
        float *want = logits_of(s, m), *got;
        for (int rank = 0; rank < 3; rank++) {
            char who[16];
            fake.fail_op = OP_ATTENTION;
            fake.fail_rank = rank;
            fake.no_capture = true; /* a replay launches nothing that could fail */
            assert_int_equal(feed(s, 0, ids, 5 + rank, &e), HONE_EFAULT);
            fake.fail_op = fake.fail_rank = -1;
            fake.no_capture = false;
            snprintf(who, sizeof who, "rank %d", rank);
            if (!strstr(e.message, who) || !strstr(e.message, "told to fail"))
                fail_msg("'%s' does not name %s and why", e.message, who);
            assert_int_equal(hone_session_length(s, 0), N);
            got = logits_of(s, m);
            same_bits(m, got, want, "after a failure");
            free(got);
        }
        hone_session_cancel(s);
        assert_int_equal(feed(s, 1, ids, 1, &e), HONE_ECANCELED);
        got = logits_of(s, m);
        same_bits(m, got, want, "after a cancel");
        free(got);
        free(want);
        hone_session_free(s);
    }
    hone_model_close(m);
    nothing_left();
}

/* A rank whose kernels fail in the self-test is the one that is named, with what it says, and not who misses it. */
static void test_self_test(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    for (int rank = 0; rank < 3; rank++) {
        struct hone_session *s = NULL;
        struct hone_error e = {0};
        char want[100];
        fake.fail_op = OP_ALL_REDUCE;
        fake.fail_rank = rank;
        assert_int_equal(try_session(&s, m, plain, "fake0,fake1,fake0", NULL, &e), HONE_EFAULT);
        fake.fail_op = fake.fail_rank = -1;
        snprintf(want, sizeof want, "self-test, rank %d: the fake kernel was told to fail", rank);
        if (!strstr(e.message, want))
            fail_msg("'%s' is not '%s'", e.message, want);
        nothing_left();
    }
    hone_model_close(m);
}

/* What no kernel there can do runs at the host on every rank, collectives too; references are threads. */
static void test_fallback(void **state)
{
    (void)state;
    static const enum op gone[] = {OP_ALL_REDUCE, OP_RMS_NORM, OP_MUL_MAT};
    struct hone_model *m = open_model("llama");
    struct hone_session *s = open_session(m, "kernel=ref", "cpu,cpu", NULL);
    float *want = logits_of(s, m), *got;
    hone_session_free(s);
    for (int i = 0; i < 3; i++) {
        char gates[300];
        fake.absent = 1ull << gone[i];
        snprintf(gates, sizeof gates, "%sfuse=off kernel.cpu.rms_norm=ref", plain);
        s = open_session(m, gates, "fake0,fake0", NULL);
        got = logits_of(s, m);
        same_bits(m, got, want, op_get(gone[i])->name);
        assert_true(plan_of(s)->n_moved > 0);
        free(got);
        hone_session_free(s);
        fake.absent = 0;
    }
    s = open_session(m, "kernel=ref", "fake0,fake0", NULL);
    assert_null(plan_of(s)->placement);
    got = logits_of(s, m);
    same_bits(m, got, want, "references");
    free(got);
    free(want);
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
}

static void refused(const struct hone_model *m, const char *gates, const char *devices, const char *shares, int32_t ngl,
                    const char *word)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = N_CTX;
    p.split_mode = "tensor";
    p.gates = gates;
    p.devices = devices;
    p.tensor_split = shares;
    p.n_gpu_layers = ngl;
    assert_int_equal(hone_session_create(&s, m, &p, &e), HONE_EUSAGE);
    if (!strstr(e.message, word))
        fail_msg("-dev %s: '%s' does not say '%s'", devices, e.message, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    struct hone_error e = {0};
    refused(m, NULL, "fake0,fake7", NULL, -1, "'fake7'");
    refused(m, NULL, "fake0", NULL, -1, "one device");
    refused(m, NULL, "fake0,fake1", "1/1/1", -1, "3 shares");
    refused(m, NULL, "fake0,fake1", NULL, 0, "-ngl 0");
    refused(m, NULL, "fake0,fake1", NULL, 1, "-ngl 1: a split by tensors");
    refused(m, "comm.link=string", "fake0,fake1", NULL, -1, "string");
    refused(m, "comm.link=fake", "fake0,cpu", NULL, -1, "not all on devices");
    /* Without names: all devices, where there are as many as shares; else threads. */
    for (int shares = 0; shares < 3; shares++) {
        struct hone_session_params p = hone_session_defaults();
        struct hone_session *s;
        struct rank_memory mine;
        p.n_ctx = N_CTX;
        p.split_mode = "tensor";
        p.tensor_split = shares == 2 ? "1/1/1" : shares ? "2/1" : NULL;
        assert_done(hone_session_create(&s, m, &p, &e), e);
        session_rank_memory(s, 1, &mine);
        assert_string_equal(mine.device, shares == 2 ? "cpu" : "fake1");
        hone_session_free(s);
    }
    hone_model_close(m);
    nothing_left();
}

static int add_backend(void **state)
{
    (void)state;
    struct hone_error e = {0};
    return backend_add(&fake_backend, &e);
}

/* ---- under mpirun (tests/mpi_test.sh) */

static int n_warned;

static void count_warnings(void *user, enum log_level level, const char *line)
{
    (void)user;
    n_warned += level == LOG_WARN && strstr(line, "2 GPU(s) here stay idle");
}

/* A session that is not split has the devices that it would have alone; one that is runs on its threads, and that devices stay idle is said. */
static void test_mpi(void **state)
{
    (void)state;
    struct hone_model *m = open_model("llama");
    log_to(count_warnings, NULL, LOG_WARN);
    for (int split = 0; split < 3; split++) {
        struct hone_session_params p = hone_session_defaults();
        struct hone_session *s;
        struct hone_error e = {0};
        struct rank_memory mine;
        p.n_ctx = N_CTX;
        p.n_threads = 1;
        p.poll = 0;
        p.split_mode = split ? "tensor" : NULL;
        p.n_gpu_layers = split > 1 ? 0 : -1;
        assert_done(hone_session_create(&s, m, &p, &e), e);
        session_rank_memory(s, 0, &mine);
        assert_string_equal(mine.device, split ? "cpu" : "fake0");
        assert_int_equal(n_warned, split > 0); /* -ngl 0 asks for no GPU */
        feed_ok(s, 0, ids, 5);
        hone_session_free(s);
    }
    hone_model_close(m);
    nothing_left();
}

static int main_mpi(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpi)};
    struct hone_error e = {0};
    int rc = 0;
    if (follow_start(&(struct follow_params){0}, &e))
        fprintf(stderr, "%s\n", e.message);
    else if (comm_rank(follow_comm()) == 0)
        rc = cmocka_run_group_tests(tests, add_backend, NULL);
    else if (follow_run(&e))
        fprintf(stderr, "%s\n", e.message);
    follow_end();
    return rc || e.code;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "mpi"))
        return main_mpi();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_archs),    cmocka_unit_test(test_fused),
                                       cmocka_unit_test(test_replay),   cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_saved),    cmocka_unit_test(test_no_room_for_more), cmocka_unit_test(test_failing),
                                       cmocka_unit_test(test_self_test), cmocka_unit_test(test_fallback), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, add_backend, NULL);
}
