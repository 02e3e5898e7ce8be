/* test_place.c: what the host does for devices: where nodes go, what is copied, that results are right in any split, that
 * nothing is read early, kept or leaked; with a backend of pretended devices (fake_device.h), whose kernels are the references.
 */
#include "tests/fake_device.h"
#include "tests/feed.h"

#include "engine/engine.h"
#include "graph/weights.h"

#include <unistd.h>

enum { VOCAB = 160 };

static struct hone_model *open_model(const char *name)
{
    char path[4096];
    const char *data = getenv("HONE_DATA");
    snprintf(path, sizeof path, "%s/%s.gguf", data ? data : "", name);
    if (access(path, R_OK)) {
        print_message("skipped: no test data at %s (HONE_DATA)\n", path);
        skip();
    }
    struct hone_error e;
    struct hone_model *m;
    if (hone_model_open(&m, path, &e))
        fail_msg("%s", e.message);
    return m;
}

static int try_session(struct hone_session **s, const struct hone_model *m, const char *gates, const char *devices, int ngl,
                       bool strict, struct hone_error *e)
{
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = 64;
    p.gates = gates;
    p.devices = devices;
    p.n_gpu_layers = ngl;
    p.n_threads = 2;
    p.n_seq = 2;
    p.poll = 0;
    p.strict = strict;
    p.type_k = p.type_v = "f16";
    return hone_session_create(s, m, &p, e);
}

static struct hone_session *open_session(const struct hone_model *m, const char *gates, const char *devices, int ngl)
{
    struct hone_error e = {0};
    struct hone_session *s;
    if (try_session(&s, m, gates, devices, ngl, false, &e))
        fail_msg("%s", e.message);
    return s;
}

/* All 24 tokens, in one prefill of 18 and six steps. */
static void logits_of(struct hone_session *s, float *out)
{
    struct hone_error e;
    assert_int_equal(hone_session_rewind(s, 0, 0, &e), 0);
    for (int at = 0; at < N;) {
        int n = at ? 1 : 18;
        feed_ok(s, 0, ids + at, n);
        memcpy(out + at * VOCAB, hone_session_logits(s, 0), (size_t)n * VOCAB * sizeof *out);
        at += n;
    }
}

static float base[N * VOCAB], other[N * VOCAB];

static void nothing_left(void)
{
    assert_int_equal(fake.n_blocks, 0);
    assert_int_equal(fake.n_streams, 0);
    assert_int_equal(fake.n_graphs, 0);
    assert_int_equal(fake.n_host, 0);
}

static const struct plan *plan_of(struct hone_session *s, int n)
{
    const struct plan *p;
    struct hone_error e = {0};
    if (session_plan(s, n, 1, &p, &e))
        fail_msg("%s", e.message);
    return p;
}

/* Steps at places, and copies. */
static int count(const struct plan *p, int place, bool copies)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += p->steps[i].node->place == place && !strcmp(p->steps[i].kernel->variant, "transfer") == copies;
    return n;
}

/* The host's references on the same model. */
static void reference(const struct hone_model *m)
{
    struct hone_session *s = open_session(m, "kernel=ref", "none", -1);
    assert_null(plan_of(s, 1)->placement);
    logits_of(s, base);
    hone_session_free(s);
}

static const char *const archs[] = {"archs/llama",    "archs/gemma3",  "archs/qwen35",
                                    "archs/qwen3moe", "archs/gpt-oss", "quants/llama-Q4_K_M"};
enum { N_ARCHS = sizeof archs / sizeof *archs };
/* Products of the references' bits, here and there. */
static const char plain[] = "kernel.cpu.mul_mat=ref kernel.fake.mul_mat=plain";

/* Whole models on a device, half of them, a layer, on two devices: the bits of the host. The references are the same code. */
static void test_bits(void **unused)
{
    (void)unused;
    static const struct {
        const char *devices;
        int ngl;
    } splits[] = {{"fake0", -1}, {"fake", 1}, {"fake1", 2}, {"fake0,fake1", -1}, {"fake1/fake0", 3}, {"auto", -1}};
    for (int a = 0; a < N_ARCHS; a++) {
        struct hone_model *m = open_model(archs[a]);
        reference(m);
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            struct hone_session *s = open_session(m, plain, splits[i].devices, splits[i].ngl);
            const struct plan *p = plan_of(s, 1);
            assert_non_null(p->placement);
            assert_int_equal(p->n_moved, 0);
            logits_of(s, other);
            bool all = splits[i].ngl < 0;
            if (all && memcmp(base, other, sizeof base))
                fail_msg("%s on %s -ngl %d: other bits", archs[a], splits[i].devices, splits[i].ngl);
            for (int k = 0; k < N * VOCAB; k++)
                if (!(other[k] - base[k] < 0.2f && base[k] - other[k] < 0.2f))
                    fail_msg("%s on %s -ngl %d: logit %d is %g, not %g", archs[a], splits[i].devices, splits[i].ngl, k,
                             (double)other[k], (double)base[k]);
            p = plan_of(s, 1);
            if (all) {
                assert_int_equal(count(p, 0, false), 0);
                /* Nothing comes back but logits, which this kernel writes there; two devices meet once. */
                assert_true(p->n_copies <= (strchr(splits[i].devices, ',') || i == 5 ? 4 : 0));
            }
            hone_session_free(s);
        }
        hone_model_close(m);
        nothing_left();
    }
}

/* A decode step is one replay a segment, launches nothing, and synchronises once. */
static void test_replay(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("archs/llama");
    struct hone_session *s = open_session(m, plain, "fake0", -1);
    feed_ok(s, 0, ids, 3);
    feed_ok(s, 0, ids + 3, 1); /* launches */
    feed_ok(s, 0, ids + 4, 1); /* captures */
    int launches = fake.launches, replays = fake.replays, copies = fake.copies, syncs = fake.syncs;
    feed_ok(s, 0, ids + 5, 1);
    assert_int_equal(fake.launches, launches);
    assert_int_equal(fake.replays, replays + 1);
    assert_int_equal(fake.syncs, syncs + 1);
    assert_int_equal(fake.copies, copies); /* the map's entry was foreseen */
    assert_int_equal(fake.n_graphs, 1);
    assert_int_equal(plan_of(s, 1)->n_segments, 1);
    /* A larger plan moves the block; what was captured is forgotten and captured anew. */
    feed_ok(s, 0, ids, 20);
    assert_int_equal(fake.n_graphs, 0);
    hone_session_free(s);
    s = open_session(m, plain, "fake0", -1);
    fake.no_capture = true; /* launched one by one, and right */
    logits_of(s, other);
    fake.no_capture = false;
    hone_session_free(s);
    reference(m);
    assert_memory_equal(base, other, sizeof base);
    hone_model_close(m);
    nothing_left();
}

/* Packed weights and quantised activations there are those of the host's kernels of the same kind: the tolerance of 8 bits. */
static void test_packed(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("quants/llama-Q4_0");
    reference(m);
    struct hone_session *s = open_session(m, "fuse=off", "fake0", -1);
    const struct plan *p = plan_of(s, 1);
    int packed = 0, quantised = 0;
    for (int i = 0; i < p->n_steps; i++) {
        packed += !strcmp(p->steps[i].kernel->variant, "packed");
        quantised += p->steps[i].node->op == OP_QUANTIZE;
    }
    assert_true(packed > 0 && quantised > 0 && quantised < packed); /* readers share one */
    assert_int_equal(p->n_copies, 0);                               /* this kernel writes the logits to the host itself */
    assert_int_equal(plan_of(s, 2)->n_copies, 0);
    logits_of(s, other);
    double error = 0, sum = 0;
    for (int i = 0; i < N * VOCAB; i++) {
        error += (double)(other[i] - base[i]) * (double)(other[i] - base[i]);
        sum += (double)base[i] * (double)base[i];
    }
    assert_true(error / sum < 1e-3 && error > 0);
    /* The host's copies stay in rows, and another session may use them meanwhile. */
    for (int i = 0; i < m->model->n_weights; i++)
        assert_null(m->model->weights[i]->layout);
    struct hone_session *host = open_session(m, "kernel=ref", "none", -1);
    logits_of(host, other);
    assert_memory_equal(base, other, sizeof base);
    hone_session_free(host);
    /* Another session wants them in rows: packed anew, and the first one plans anew. */
    struct hone_session *rows = open_session(m, plain, "fake0", -1);
    logits_of(rows, other);
    assert_memory_equal(base, other, sizeof base);
    float first[VOCAB];
    struct hone_error e;
    logits_of(s, other);
    memcpy(first, other, sizeof first);
    assert_int_equal(hone_session_rewind(s, 0, 0, &e), 0);
    logits_of(s, other);
    assert_memory_equal(first, other, sizeof first);
    hone_session_free(rows);
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
}

/* An op without a kernel there runs on the host, and says why; under strict it is an error. */
static void test_fallback(void **unused)
{
    (void)unused;
    static const enum op gone[] = {OP_RMS_NORM, OP_ATTENTION, OP_KV_WRITE,         OP_ROPE,
                                   OP_GET_ROWS, OP_SSM_CONV,  OP_GATED_DELTA_RULE, OP_ADD};
    for (int a = 0; a < 2; a++) {
        struct hone_model *m = open_model(a ? "archs/qwen35" : "archs/llama");
        reference(m);
        for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
            for (int absent = 0; absent < 2; absent++) {
                *(absent ? &fake.absent : &fake.missing) = 1ull << gone[i];
                char gates[400];
                snprintf(gates, sizeof gates, "%s fuse=off kernel.cpu.%s=ref", plain, op_get(gone[i])->name);
                struct hone_session *s = open_session(m, gates, "fake0", -1), *never = NULL;
                const struct plan *p = plan_of(s, 1);
                struct hone_error e = {0};
                bool there = false, said = false;
                for (int k = 0; k < p->n_steps; k++) {
                    const struct step *step = &p->steps[k];
                    there |= step->node->op == gone[i];
                    said |= step->node->op == gone[i] && step->moved &&
                            strstr(step->moved, absent ? "none of this op" : "told not to fit");
                    if (step->node->op == gone[i])
                        assert_true(step->backend->host);
                }
                bool bound =
                    absent && gone[i] != OP_RMS_NORM && gone[i] != OP_ROPE && gone[i] != OP_GET_ROWS && gone[i] != OP_ADD;
                assert_true(said || !there || bound); /* bound: its state stays at the host, and so do its nodes */
                logits_of(s, other);
                if (!bound && memcmp(base, other, sizeof base))
                    fail_msg("%s without %s: other bits", a ? "qwen35" : "llama", op_get(gone[i])->name);
                hone_session_free(s);
                if (there && !bound) {
                    assert_int_equal(try_session(&never, m, gates, "fake0", -1, true, &e), 0);
                    assert_int_equal(session_plan(never, 1, 1, &p, &e), HONE_EUSAGE);
                    assert_non_null(strstr(e.message, op_get(gone[i])->name));
                    hone_session_free(never);
                }
                fake.missing = fake.absent = 0;
            }
        hone_model_close(m);
        nothing_left();
    }
}

/* Gates: everything on the reference is everything on the host; one op there takes its state along. */
static void test_gates(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("archs/llama");
    reference(m);
    struct hone_session *s = open_session(m, "kernel=ref", "fake0", -1);
    assert_null(plan_of(s, 1)->placement);
    hone_session_free(s);
    s = open_session(m, "fuse=off kernel.fake.mul_mat=plain skip=rms_norm,attention,kv_write", "fake0", -1);
    const struct plan *p = plan_of(s, 1);
    for (int i = 0; i < p->n_steps; i++) {
        enum op op = p->steps[i].node->op;
        if (op == OP_RMS_NORM || op == OP_ATTENTION || op == OP_KV_WRITE)
            assert_string_equal(p->steps[i].kernel->variant, "ref");
        else if (op != OP_COPY)
            assert_int_equal(p->steps[i].node->place, 1);
    }
    assert_int_equal(p->n_moved, 0);
    logits_of(s, other);
    assert_memory_equal(base, other, sizeof base);
    hone_session_free(s);
    /* One about a device that nothing runs on was written for another machine. */
    for (int ref = 0; ref < 2; ref++) {
        struct hone_error e = {0};
        const char *gates = ref ? "kernel.fake.mul_mat=plain kernel=ref" : "kernel.fake.mul_mat=plain";
        assert_int_equal(try_session(&s, m, gates, ref ? "fake0" : "none", -1, true, &e), 0);
        assert_int_equal(session_plan(s, 1, 1, &p, &e), ref ? 0 : HONE_EUSAGE);
        assert_true(ref || strstr(e.message, "nothing runs on that backend"));
        hone_session_free(s);
    }
    hone_model_close(m);
    nothing_left();
}

/* Sequences, forks, rewinds, saved sessions, failures: as on the host. */
static void test_session(void **unused)
{
    (void)unused;
    for (int a = 0; a < 2; a++) {
        struct hone_model *m = open_model(a ? "archs/qwen35" : "archs/llama");
        struct hone_session *s = open_session(m, plain, "fake0,fake1", -1);
        struct hone_error e = {0};
        char path[] = "/tmp/hone-place-XXXXXX";
        float want[VOCAB];
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        feed_ok(s, 0, ids, 10);
        assert_int_equal(hone_session_fork(s, 0, 1, &e), 0);
        feed_ok(s, 1, ids + 10, 1);
        memcpy(want, hone_session_logits(s, 0), sizeof want);
        assert_int_equal(hone_session_save(s, path, &e), 0);
        feed_ok(s, 0, ids + 10, 1);
        assert_memory_equal(hone_session_logits(s, 0), want, sizeof want);
        assert_int_equal(hone_session_rewind(s, 0, 10, &e), 0);
        fake.fail_op = OP_ATTENTION;
        assert_int_equal(feed(s, 0, ids + 12, 4, &e), HONE_EFAULT);
        assert_non_null(strstr(e.message, "told to fail"));
        fake.fail_op = -1;
        assert_int_equal(hone_session_length(s, 0), 10);
        feed_ok(s, 0, ids + 10, 1);
        assert_memory_equal(hone_session_logits(s, 0), want, sizeof want);
        hone_session_free(s);
        s = open_session(m, plain, "fake0", -1); /* what two devices held, one may hold */
        e.code = 0;
        if (hone_session_restore(s, path, &e))
            fail_msg("%s", e.message);
        assert_int_equal(hone_session_length(s, 1), 11);
        feed_ok(s, 0, ids + 10, 1);
        assert_memory_equal(hone_session_logits(s, 0), want, sizeof want);
        hone_session_free(s);
        unlink(path);
        hone_model_close(m);
        nothing_left();
    }
}

/* Cells that were foreseen for one sequence and taken by another: the map goes up again, and only then. */
static void test_foreseen(void **unused)
{
    (void)unused;
    static const int8_t turns[] = {0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0};
    static float want[sizeof turns * VOCAB], got[sizeof turns * VOCAB];
    struct hone_model *m = open_model("archs/llama");
    for (int device = 0; device < 2; device++) {
        struct hone_session *s = device ? open_session(m, plain, "fake0", -1) : open_session(m, "kernel=ref", "none", -1);
        feed_ok(s, 0, ids, 3);
        feed_ok(s, 1, ids + 3, 2);
        for (size_t i = 0; i < sizeof turns; i++) {
            int copies = fake.copies;
            feed_ok(s, turns[i], ids + 5 + i, 1);
            memcpy((device ? got : want) + i * VOCAB, hone_session_logits(s, 0), VOCAB * sizeof *got);
            /* From the third step on replays, whose copies are not counted: of the map, where the other sequence has taken cells. */
            if (i > 2 && device)
                assert_int_equal(fake.copies, copies + (turns[i] != turns[i - 1]));
        }
        hone_session_free(s);
    }
    assert_memory_equal(want, got, sizeof want);
    hone_model_close(m);
    nothing_left();
}

static int count_steps(void *user, const struct plan *p, int step, int64_t ns)
{
    (void)p, (void)step;
    assert_true(ns >= 0);
    ++*(int *)user;
    return 0;
}

/* An observer sees every step, of both kinds. */
static void test_observer(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("archs/llama");
    struct hone_session *s = open_session(m, plain, "fake0", 1);
    int steps = 0;
    struct observer o = {&steps, NULL, count_steps};
    session_observe(s, &o);
    feed_ok(s, 0, ids, 1);
    assert_int_equal(steps, plan_of(s, 1)->n_steps);
    hone_session_free(s);
    hone_model_close(m);
    nothing_left();
}

/* Too little memory says what would fit, wherever it ends; nothing is left of what failed. */
static void test_memory(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("archs/llama");
    struct hone_session *s;
    struct hone_error e = {0};
    fake.limit = 1000;
    assert_int_equal(try_session(&s, m, NULL, "fake0", -1, false, &e), HONE_ERESOURCE);
    assert_non_null(strstr(e.message, "-ngl"));
    nothing_left();
    for (int denied = 0; denied < 40; denied++) { /* after so many kilobytes */
        e.code = 0;
        fake.limit = SIZE_MAX;
        assert_int_equal(try_session(&s, m, plain, "fake0", -1, false, &e), 0);
        fake.limit = fake.bytes + (size_t)denied * 8192;
        int rc = feed(s, 0, ids, 4, &e);
        assert_true(!rc || rc == HONE_ERESOURCE);
        fake.limit = SIZE_MAX;
        e.code = 0;
        feed_ok(s, 0, ids, 4); /* and it works once there is memory */
        hone_session_free(s);
    }
    e.code = 0;
    assert_int_equal(try_session(&s, m, NULL, "fake7", -1, false, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "fake0, fake1"));
    e.code = 0;
    assert_int_equal(try_session(&s, m, NULL, "fake0,fake0", -1, false, &e), HONE_EUSAGE);
    hone_model_close(m);
    nothing_left();
}

static int add_backend(void **state)
{
    (void)state;
    struct hone_error e = {0};
    return backend_add(&fake_backend, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),     cmocka_unit_test(test_replay), cmocka_unit_test(test_packed),
        cmocka_unit_test(test_fallback), cmocka_unit_test(test_gates),  cmocka_unit_test(test_session),
        cmocka_unit_test(test_foreseen),
        cmocka_unit_test(test_observer), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, add_backend, NULL);
}
