/* test_measure.c: what a measurement on a session leaves behind and computes, when warm-up ends, how many bytes a token reads,
 * what a machine says of itself, and processors by mask. Nothing here depends on how fast anything was. */
#include "tests/tiny_model.h"

#include "lab/affinity.h"
#include "lab/bench_model.h"
#include "lab/machine.h"
#include "lab/measure.h"
#include "lab/workload.h"
#include "model/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- warm-up */

struct fake {
    const int64_t *ns;
    int n, at, fail_at;
};

static int fake_round(void *user, int64_t *ns, struct hone_error *e)
{
    struct fake *f = user;
    if (f->at == f->fail_at)
        return err_set(e, HONE_ERESOURCE, "no more");
    *ns = f->ns[f->at++ % f->n];
    return 0;
}

static struct warmth warmed(const int64_t *ns, int n, double tolerance, int max_rounds, int64_t max_ns)
{
    struct fake f = {ns, n, 0, -1};
    struct warm_rule r = {tolerance, max_rounds, max_ns};
    struct warmth w;
    struct hone_error e = {0};
    assert_int_equal(warm_up(&w, &r, fake_round, &f, &e), 0);
    assert_int_equal(w.rounds, f.at);
    return w;
}

static void test_warm_up(void **state)
{
    (void)state;
    struct warmth w = warmed((int64_t[]){1000, 400, 210, 205}, 4, 0.05, 10, INT64_MAX);
    assert_true(w.stable);
    assert_int_equal(w.rounds, 4);
    assert_int_equal(w.ns, 1815);
    w = warmed((int64_t[]){100, 105}, 2, 0.05, 10, INT64_MAX); /* the limit itself agrees */
    assert_true(w.stable);
    assert_int_equal(w.rounds, 2);
    w = warmed((int64_t[]){100, 200}, 2, 0.05, 7, INT64_MAX); /* a machine that swings */
    assert_false(w.stable);
    assert_int_equal(w.rounds, 7);
    assert_true(w.gap > 0.99 && w.gap < 1.01);
    w = warmed((int64_t[]){300, 100, 200}, 3, 0.05, 10, 400); /* no third round beyond the time, but always two */
    assert_false(w.stable);
    assert_int_equal(w.rounds, 2);
    w = warmed((int64_t[]){0, 0}, 2, 0.05, 4, INT64_MAX); /* a clock that stands agrees with nothing */
    assert_false(w.stable);
    assert_int_equal(w.rounds, 4);
    struct fake f = {(int64_t[]){100, 50}, 2, 0, 2};
    struct warm_rule r = {0.05, 10, INT64_MAX};
    struct hone_error e = {0};
    assert_int_equal(warm_up(&w, &r, fake_round, &f, &e), HONE_ERESOURCE);
}

/* ---- a measurement */

static struct hone_model *open_model(void)
{
    struct hone_model *m;
    struct hone_error e = {0};
    if (hone_model_open(&m, model_path, &e))
        fail_msg("%s", e.message);
    return m;
}

static struct hone_session_params small_params(void)
{
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = 128;
    p.n_batch = 8;
    p.n_threads = 2;
    return p;
}

static struct measure_output hash_of(struct hone_session *s, const struct hone_model *m, struct measure_test t,
                                     struct measure_prefix *prefix)
{
    struct hone_session_params p = small_params();
    struct measure *x;
    struct measure_output out;
    struct measure_sample sample;
    struct hone_error e = {0};
    if (measure_open(&x, s, &p, m, &t, prefix, &e) || measure_hash(x, &out, &e) || measure_settle(x, &e) ||
        measure_once(x, &sample, &e))
        fail_msg("%s", e.message);
    assert_true(sample.same);
    assert_true(sample.ns > 0 && sample.first_ns > 0 && sample.first_ns <= sample.ns);
    assert_true(t.n_prompt ? sample.prompt_ns == sample.first_ns : sample.prompt_ns == 0);
    assert_int_equal(hone_session_length(s, 0), t.n_depth);
    assert_false(out.nan);
    measure_close(x);
    return out;
}

/* A test computes the same bits alone and behind others, whichever depths came before. */
static void test_measure(void **state)
{
    (void)state;
    struct hone_model *m = open_model();
    struct hone_session_params p = small_params();
    struct measure_prefix prefix = {0};
    struct hone_error e = {0};
    struct hone_session *s, *fresh;
    static const int32_t depths[] = {0, 5, 21, 40, 13, 13, 0, 32};
    assert_int_equal(hone_session_create(&s, m, &p, &e), 0);
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        for (int kind = 0; kind < 3; kind++) {
            struct measure_test t = {kind == 1 ? 0 : 20, kind == 0 ? 0 : 3, depths[i], 16};
            struct measure_output swept = hash_of(s, m, t, &prefix);
            assert_int_equal(swept.n, kind == 0 ? 2 : kind == 1 ? 3 : 5); /* 16 + 4, each with logits of its last */
            assert_int_equal(hone_session_create(&fresh, m, &p, &e), 0);
            struct measure_output alone = hash_of(fresh, m, t, NULL);
            assert_string_equal(swept.output.hex, alone.output.hex);
            assert_string_equal(swept.tokens.hex, alone.tokens.hex);
            hone_session_free(fresh);
        }
    struct measure *x;
    struct measure_test beyond = {120, 0, 9, 16}, nothing = {0, 0, 1, 16};
    assert_int_equal(measure_open(&x, s, &p, m, &beyond, &prefix, &e), HONE_EUSAGE);
    e = (struct hone_error){0};
    assert_int_equal(measure_open(&x, s, &p, m, &nothing, &prefix, &e), HONE_EUSAGE);
    assert_null(x);
    hone_session_free(s);
    hone_model_close(m);
}

static double file_bytes(const struct hone_model *m)
{
    struct bench_model b;
    bench_model_of(&b, m);
    assert_string_equal(b.type, "llama ?B Q8_0");
    return (double)b.size;
}

/* Bytes a token by hand: every weight once a step, of the embedding one row a token (it is tied, and read whole for the
 * logits); the cache by the positions that each token sees. */
static void test_workload(void **state)
{
    (void)state;
    struct hone_model *m = open_model();
    struct hone_session_params p = small_params();
    struct hone_error e = {0};
    struct hone_session *s;
    struct workload w;
    double all = file_bytes(m), row = 34.0 / 32 * m->model->n_embd, frequencies = 0, kv = 0;
    const struct gguf_tensor *f = gguf_tensor(m->model->gguf, "rope_freqs.weight");
    if (f)
        frequencies = (double)f->bytes; /* read by every layer */
    for (int i = 0; i < m->model->n_layer; i++)
        kv += 2.0 * m->model->memory[i].n_kv_head * (m->model->memory[i].head_dim_k + m->model->memory[i].head_dim_v);
    double step = all + frequencies * (m->model->n_layer - 1);
    assert_int_equal(hone_session_create(&s, m, &p, &e), 0);
    assert_int_equal(workload_of(&w, s, m, &(struct measure_test){0, 4, 10, 16}, 8, &e), 0);
    assert_float_equal(w.weights, step + row, 1);
    assert_float_equal(w.kv, kv * (11 + 12 + 13 + 14) / 4.0, 0.01);
    assert_int_equal(json_array_size(w.fallbacks), 0);
    assert_true(json_array_size(w.kernels) > 3);
    workload_free(&w);
    assert_int_equal(workload_of(&w, s, m, &(struct measure_test){20, 0, 0, 16}, 8, &e), 0); /* steps of 8, 8 and 4 */
    assert_float_equal(w.weights, (3 * step + 20 * row) / 20, 1);
    assert_float_equal(w.kv, kv * (8 + 16 + 20) / 20.0, 0.01);
    workload_free(&w);
    hone_session_free(s);
    p.gates = "kernel=ref";
    assert_int_equal(hone_session_create(&s, m, &p, &e), 0);
    assert_int_equal(workload_of(&w, s, m, &(struct measure_test){0, 1, 0, 16}, 8, &e), 0);
    assert_true(json_array_size(w.fallbacks) == json_array_size(w.kernels) && w.references > 10);
    workload_free(&w);
    hone_session_free(s);
    hone_model_close(m);
}

/* A recurrent layer's state is read once a step, however many tokens share it; a measurement goes back to its depth all the
 * same. */
static void test_recurrent(void **state)
{
    (void)state;
    char path[256];
    struct hone_error e = {0};
    struct synth_params sp = {.shape = "qwen3.5-0.8b", .type = "Q8_0", .layers = 4, .width = 128, .vocab = 320, .seed = 1};
    struct hone_model *m;
    struct hone_session *s, *fresh;
    struct hone_session_params p = small_params();
    struct measure_prefix prefix = {0};
    struct workload w;
    double one = 0;
    snprintf(path, sizeof path, "%s/recurrent.gguf", folder);
    if (model_synth(path, &sp, NULL, NULL, &e) || hone_model_open(&m, path, &e) || hone_session_create(&s, m, &p, &e))
        fail_msg("%s", e.message);
    for (int i = 0; i < m->model->n_layer; i++) {
        const struct layer_memory *y = &m->model->memory[i];
        one += 4.0 * (y->conv_rows * y->conv_channels + y->n_state_head * y->state_dim_k * y->state_dim_v);
    }
    assert_true(one > 0);
    assert_int_equal(workload_of(&w, s, m, &(struct measure_test){0, 4, 10, 16}, 8, &e), 0);
    assert_float_equal(w.state, one, 0.01);
    workload_free(&w);
    assert_int_equal(workload_of(&w, s, m, &(struct measure_test){20, 0, 0, 16}, 8, &e), 0);
    assert_float_equal(w.state, one * 3 / 20, 0.01);
    workload_free(&w);
    static const int32_t depths[] = {0, 10, 24, 5, 10};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct measure_test t = {6, 3, depths[i], 16};
        struct measure_output swept = hash_of(s, m, t, &prefix);
        assert_int_equal(hone_session_create(&fresh, m, &p, &e), 0);
        struct measure_output alone = hash_of(fresh, m, t, NULL);
        assert_string_equal(swept.output.hex, alone.output.hex);
        hone_session_free(fresh);
    }
    hone_session_free(s);
    hone_model_close(m);
}

/* ---- the machine */

static void put(const char *root, const char *path, const char *text)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(full, 0777);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool warned(json_t *list, const char *part)
{
    size_t i;
    json_t *w;
    json_array_foreach(list, i, w) if (strstr(json_string_value(w), part)) return true;
    return false;
}

static void test_machine(void **state)
{
    (void)state;
    char root[256];
    struct machine m;
    struct machine_state a, b;
    snprintf(root, sizeof root, "%s/root", folder);
    mkdir(root, 0777);
    machine_describe(&m, root); /* a machine that says nothing */
    assert_string_equal(m.governor, "");
    assert_true(m.quota == 0 && m.cores > 0 && m.processors > 0);
    machine_look(&a, root);
    assert_true(a.busy == -1 && a.throttled == -1 && a.swapped == -1 && a.quota_throttled == -1);
    struct machine_change c = machine_between(&a, &a);
    assert_true(c.steal == -1 && c.others == -1 && c.throttled == -1);

    pid_t child = fork(); /* a child's time is this program's, not another's */
    for (volatile double x = 0; !child && x < 1e8; x++)
        ;
    if (!child)
        _exit(0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    struct rusage spent;
    getrusage(RUSAGE_CHILDREN, &spent);
    machine_look(&b, root);
    assert_true(b.own - a.own >= (spent.ru_utime.tv_sec * 1000000 + spent.ru_utime.tv_usec) * 1000);

    put(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    put(root, "/proc/self/cgroup", "3:cpu:/x\n0::/outer/inner\n");
    put(root, "/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    put(root, "/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
    put(root, "/sys/fs/cgroup/outer/inner/cpu.stat", "usage_usec 5\nthrottled_usec 1000\n");
    put(root, "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n");
    put(root, "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4\n");
    put(root, "/proc/stat", "cpu  100 0 100 1000 0 0 0 50 0 0\ncpu0 1 1 1\n");
    put(root, "/proc/vmstat", "nr_free_pages 1\npswpin 5\npswpout 6\n");
    put(root, "/proc/meminfo", "MemTotal:  1024 kB\nMemAvailable: 512 kB\n");
    put(root, "/proc/loadavg", "1.50 1 1 1/1 1\n");
    machine_describe(&m, root);
    assert_string_equal(m.governor, "powersave");
    assert_string_equal(m.huge_pages, "never");
    assert_true(m.quota == 1.5);
    assert_int_equal(m.memory_total, 1 << 20);
    machine_look(&a, root);
    put(root, "/proc/stat", "cpu  150 0 150 1050 0 0 0 100 0 0\n"); /* 100 ticks busy, 50 stolen, 50 idle */
    put(root, "/proc/vmstat", "pswpin 5\npswpout 9\n");
    put(root, "/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "6\n");
    put(root, "/sys/fs/cgroup/outer/inner/cpu.stat", "throttled_usec 1500\n");
    machine_look(&b, root);
    b.ns = a.ns + 1000000000;
    b.own = a.own + 600000000; /* 60 of the 100 are ours */
    c = machine_between(&a, &b);
    assert_float_equal(c.steal, 0.25, 1e-9);
    assert_float_equal(c.others, 0.2, 1e-9);
    assert_int_equal(c.throttled, 2);
    assert_int_equal(c.quota_throttled, 500000);
    assert_int_equal(c.swapped, 3);
    json_t *w = machine_warnings(&m, &c, "0.1.0 (x, gcc, -O0 -fsanitize=address)", m.processors + 1);
    static const char *const parts[] = {"25.0 %",
                                        "20.0 %",
                                        "throttled 2 times",
                                        "quota stopped",
                                        "swapped 3",
                                        "powersave",
                                        "huge pages are off",
                                        "processors: they wait",
                                        "under a quota of 1.50",
                                        "without optimisation",
                                        "with sanitizers"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!warned(w, parts[i]))
            fail_msg("no warning has '%s'", parts[i]);
    json_decref(w);
    c.seconds = 0.05; /* five ticks prove nothing */
    w = machine_warnings(&m, &c, "0.1.0 (x, gcc, -O3)", 1);
    assert_false(warned(w, "25.0 %") || warned(w, "20.0 %") || warned(w, "processors:"));
    json_decref(w);
}

static void test_affinity(void **state)
{
    (void)state;
    struct affinity a;
    struct hone_error e = {0};
    cpu_set_t before, now;
    sched_getaffinity(0, sizeof before, &before);
    assert_int_equal(affinity_enter(&a, "0x0", &e), 0);
    affinity_leave(&a);
    int first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    char mask[140] = "0x1";
    for (int i = 0; i < first / 4; i++)
        strcat(mask, "0");
    mask[2] = (char)('0' + (1 << first % 4));
    assert_int_equal(affinity_enter(&a, mask, &e), 0);
    sched_getaffinity(0, sizeof now, &now);
    assert_true(CPU_COUNT(&now) == 1 && CPU_ISSET(first, &now));
    assert_int_equal(affinity_pin(&a, &e), 0);
    affinity_leave(&a);
    sched_getaffinity(0, sizeof now, &now);
    assert_true(CPU_EQUAL(&before, &now));
    static const char *const wrong[] = {"", "0x", "0xg", "-1",
                                        "80000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
                                        "000000000000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* the last: processor 511, which is not there */
        e = (struct hone_error){0};
        assert_int_equal(affinity_enter(&a, wrong[i], &e), HONE_EUSAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_up),   cmocka_unit_test(test_measure), cmocka_unit_test(test_workload),
        cmocka_unit_test(test_recurrent), cmocka_unit_test(test_machine), cmocka_unit_test(test_affinity),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
