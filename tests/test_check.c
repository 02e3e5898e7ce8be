/* test_check.c: the check itself. Poisoned kernels (tests/poison/, plug-ins that are built here) must each be caught, named by
 * op, case and place, while their right twins pass; a crash, a hang or an exit must not hide the cases behind it; the shadow
 * must name the poisoned node of a running model, leave the run as it was and find nothing where nothing is wrong; a captured
 * node must come back the same from its file, and a file that is broken in any byte must be refused or be harmless. */
#include "tests/test.h"

#include "base/rng.h"
#include "engine/engine.h"
#include "lab/case_file.h"
#include "lab/check.h"
#include "lab/difference.h"
#include "lab/shadow.h"
#include "lab/texts.h"
#include "model/synth.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], model_path[96];
static const struct kernel *poisoned[128];
static int n_poisoned;

/* ---- plug-ins */

static void load_poison(const char *name)
{
    char path[96], command[400];
    struct hone_error e = {0};
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    snprintf(command, sizeof command,
             "cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared -Iinclude tests/poison/%s.c -o %s -lm", name, path);
    if (system(command) != 0)
        fail_msg("cannot build tests/poison/%s.c; this test is to be run from the project's folder", name);
    if (hone_plugin_load(path, &e))
        fail_msg("%s", e.message);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hone-check-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(model_path, sizeof model_path, "%s/model.gguf", folder);
    struct synth_params p = {.shape = "llama3.2-1b",
                             .type = "Q4_0",
                             .layers = 2,
                             .width = 512,
                             .vocab = 320,
                             .ctx = 128,
                             .seed = 3,
                             .no_vocab = true};
    struct hone_error e = {0};
    if (model_synth(model_path, &p, NULL, NULL, &e)) {
        print_error("%s\n", e.message);
        return -1;
    }
    load_poison("products");
    load_poison("values");
    load_poison("attention");
    load_poison("recurrent");
    int n_backends, n;
    const struct kernel *const *kernels = backend_list(&n_backends)[0]->kernels(&n);
    for (int i = 0; i < n; i++)
        if (kernels[i]->by_name_only)
            poisoned[n_poisoned++] = kernels[i];
    return 0;
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- the judgement */

enum { MANY = 1 << 20, WIDE = 4096 };

struct pair {
    float got[MANY], want[MANY];
    struct tensor g, w;
    struct difference d;
};

/* A million normal values, and the same once more. */
static struct pair *pair_make(void)
{
    struct pair *p = calloc(1, sizeof *p);
    struct rng r = rng_seed(5);
    for (int i = 0; i < MANY; i++)
        p->got[i] = p->want[i] = (float)rng_normal(&r);
    tensor_shape(&p->g, FORMAT_F32, 2, (int64_t[]){WIDE, MANY / WIDE});
    p->w = p->g;
    p->g.data = p->got;
    p->w.data = p->want;
    return p;
}

static void test_one_wrong_value(void **state)
{
    (void)state;
    struct pair *p = pair_make();
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NONE);
    p->got[3 * WIDE + 17] += 5e-4f; /* the bound of one value is 64 * 1e-5 */
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NONE);
    p->got[3 * WIDE + 17] += 5e-3f;
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_VALUE);
    assert_true(p->d.nmse < 1e-10); /* which the mean alone would pass */
    assert_int_equal(p->d.row[0], 3);
    assert_int_equal(p->d.column, 17);
    free(p);
}

static void test_small_error_of_all(void **state)
{
    (void)state;
    struct pair *p = pair_make();
    for (int i = 0; i < MANY; i++)
        p->got[i] *= 1 + 2e-5f;
    difference_find(&p->d, &p->g, &p->w, 1e-10); /* each is far within its bound, all together are not */
    assert_int_equal(p->d.kind, DIFFERENCE_NMSE);
    assert_true(p->d.nmse > 3.9e-10 && p->d.nmse < 4.1e-10);
    difference_find(&p->d, &p->g, &p->w, 5e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NONE);
    free(p);
}

static void test_nan_and_place(void **state)
{
    (void)state;
    struct pair *p = pair_make();
    char text[200];
    p->got[5 * WIDE + 7] = NAN;
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NAN);
    snprintf(p->g.name, sizeof p->g.name, "out");
    difference_text(&p->d, &p->g, "the reference gives", text, sizeof text);
    assert_int_equal(fnmatch("row 5, column 7 of out is nan, the reference gives *", text, 0), 0);
    p->want[5 * WIDE + 7] = NAN; /* a NaN that the reference has too is none of the kernel's doing */
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NONE);
    p->want[100] = INFINITY;
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NAN);
    assert_int_equal(p->d.column, 100);
    free(p);
}

static void test_exact_is_exact(void **state)
{
    (void)state;
    struct pair *p = pair_make();
    p->want[9] = 0.0f;
    p->got[9] = -0.0f;
    difference_find(&p->d, &p->g, &p->w, 1e-10);
    assert_int_equal(p->d.kind, DIFFERENCE_NONE);
    difference_find(&p->d, &p->g, &p->w, 0);
    assert_int_equal(p->d.kind, DIFFERENCE_BITS);
    assert_int_equal(p->d.column, 9);
    free(p);
}

/* The next step toward zero, or away from it. */
static void shift_code(unsigned char *at)
{
    *at = (unsigned char)(*at + ((int8_t)*at > 0 ? -1 : 1));
}

/* An output in 8 bits: a value on a border may take either side, many may not; and no field may differ under equal values. */
static void test_borders(void **state)
{
    (void)state;
    const struct format *f = format_get(FORMAT_A8);
    enum { N = 3200 };
    float *x = malloc(N * sizeof *x);
    unsigned char *got = malloc(format_row_bytes(f, N)), *want = malloc(format_row_bytes(f, N));
    struct rng r = rng_seed(8);
    for (int i = 0; i < N; i++)
        x[i] = (float)rng_normal(&r);
    f->pack(x, got, N);
    f->pack(x, want, N);
    struct tensor g = {0}, w;
    tensor_shape(&g, FORMAT_A8, 1, (int64_t[]){N});
    w = g;
    g.data = got;
    w.data = want;
    struct difference d;
    difference_find(&d, &g, &w, 1e-9);
    assert_int_equal(d.kind, DIFFERENCE_NONE);
    for (int i = 0; i < 20; i++) /* a code each of 20 blocks, of 3200 */
        shift_code(got + i * f->bytes + 8 + i);
    difference_find(&d, &g, &w, 1e-9);
    assert_int_equal(d.border, 20);
    assert_int_equal(d.kind, DIFFERENCE_NONE);
    for (int i = 20; i < 100; i++)
        shift_code(got + i * f->bytes + 8 + i % 32);
    difference_find(&d, &g, &w, 1e-9);
    assert_int_equal(d.kind, DIFFERENCE_NMSE);
    memcpy(got, want, format_row_bytes(f, N));
    shift_code(got + 3 * f->bytes + 12);
    shift_code(got + 3 * f->bytes + 12);
    shift_code(got + 3 * f->bytes + 12); /* two steps at least */
    difference_find(&d, &g, &w, 1e-9);
    assert_int_equal(d.kind, DIFFERENCE_VALUE);
    assert_int_equal(d.column, 3 * 32 + 4);
    memcpy(got, want, format_row_bytes(f, N));
    got[7 * f->bytes + 4] ^= 1; /* a sum of codes */
    difference_find(&d, &g, &w, 1e-9);
    assert_int_equal(d.kind, DIFFERENCE_BITS);
    assert_int_equal(d.column, 7 * 32);
    free(x);
    free(got);
    free(want);
}

/* ---- the check */

static struct check run_check(const struct check_options *o, int expected)
{
    struct check c;
    struct hone_error e = {0};
    int rc = check_run(&c, o, &e);
    if (rc != expected)
        fail_msg("the check ended with %d, not %d: %s", rc, expected, e.message);
    return c;
}

/* The real kernels, on one op each of some kinds, are right: the whole check is `make check`. */
static void test_right_kernels_pass(void **state)
{
    (void)state;
#ifdef HONE_SANITIZED /* test_kernels runs the others there */
    static const char *const ops[] = {"rms_norm", "kv_write"};
#else
    static const char *const ops[] = {"rms_norm", "quantize", "kv_write", "add_rms_norm_mul", "rope_kv"};
#endif
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        int n, n_own = 0;
        const struct kernel *own[256], *const *all = backend_list(&n)[0]->kernels(&n);
        for (int k = 0; k < n; k++)
            if (!all[k]->by_name_only)
                own[n_own++] = all[k];
        struct check_options o = {.op = ops[i], .masks = "none,full", .seed = 11, .kernels = own, .n_kernels = n_own};
        struct check c = run_check(&o, 0);
        assert_true(c.n_ok > 10);
        assert_int_equal(c.n_faults + c.n_not_run + c.n_untested, 0);
        check_free(&c);
    }
}

/* op, variant, the faults that may be found ("" : none, it is right), a case that must be among those it is found by. */
static const struct {
    const char *op, *variant, *faults, *found_by;
} poison[] = {
    {"mul_mat", "right", "", ""},
    {"mul_mat", "prints", "", ""},
    {"mul_mat", "nibble_order", "value", "decode_q4_0"},
    {"mul_mat", "missed_tail", "value", "one_block_q4_0"},
    {"mul_mat", "missed_rows", "nan", "decode_q4_0"},
    {"mul_mat", "missed_token", "nan", "batch_q4_0"},
    {"mul_mat", "stale_scale", "value", "batch_q4_0"},
    {"mul_mat", "row_zero", "value", "wide_q4_0"},
    {"mul_mat", "three_threads", "threads", "wide_q4_0"},
    {"mul_mat", "second_call", "repeat value", "decode_q4_0"},
    {"mul_mat", "kept_pointer", "value", "decode_q4_0"},
    {"mul_mat", "one_nan", "nan", "batch_q4_0"},
    {"mul_mat", "past_the_end", "damage", "decode_q4_0"},
    {"mul_mat", "source_written", "damage", "decode_q4_0"},
    {"mul_mat", "accumulates", "nan", "decode_q4_0"},
    {"mul_mat", "refuses_late", "refused", "batch_q4_0"},
    {"mul_mat", "crashes", "crash", "decode_q4_0"},
    {"mul_mat", "exits", "crash", "decode_q4_0"},
    {"mul_mat", "old_layout", "nan value", "decode_q4_0"},
    {"mul_mat", "any_layout", "nan value", "decode_q4_0"},
    {"rms_norm", "right", "", ""},
    {"rms_norm", "other_epsilon", "value nmse", "padded"},
    {"rms_norm", "sum_misplaced", "value", "heads"},
    {"rms_norm", "flat_stride", "nan value", "padded"},
    {"rms_norm", "half_thread", "threads", "one_row"},
    {"rms_norm", "scratch_overrun", "scratch", "one_row"},
    {"add_rms_norm_mul", "fused_right", "", ""},
    {"add_rms_norm_mul", "fused_epsilon", "value nmse", "decode_576"},
    {"add_rms_norm_mul", "sum_not_left", "nan", "decode_576"},
    {"add_rms_norm_mul", "summand_lost", "value", "decode_576"},
    {"add", "add_right", "", ""},
    {"add", "add_flat", "nan value", "padded"},
    {"add", "add_broadcast", "value", "repeat_all"},
    {"copy", "copy_right", "", ""},
    {"copy", "negative_zero", "bits", "f32_odd_tail"},
    {"copy", "half_denormal", "bits", "f32_from_f16"},
    {"get_rows", "get_right", "", ""},
    {"get_rows", "get_unchecked", "nan value", "id_below_zero"},
    {"get_rows", "get_denormal", "value nmse", "table_f16"},
    {"quantize", "quantize_right", "", ""},
    {"quantize", "quantize_sums", "bits", "a8_rows"},
    {"quantize", "quantize_down", "nmse", "a8_rows"},
    {"attention", "right", "", ""},
    {"attention", "window_off_by_one", "value", "window"},
    {"attention", "kv_head_mapping", "value", "group_3"},
    {"attention", "last_token_missed", "value", "decode"},
    {"attention", "first_token_missed", "value", "decode"},
    {"attention", "scale_missing", "value", "decode"},
    {"attention", "map_ignored", "value nan", "shuffled"},
    {"attention", "sequence_ignored", "value nan", "sequences"},
    {"kv_write", "write_right", "", ""},
    {"kv_write", "cell_unchecked", "damage bits", "cell_below_zero"},
    {"kv_write", "heads_swapped", "bits", "batch_f16"},
    {"kv_write", "half_truncated", "bits", "batch_f16"},
    {"gated_delta_rule", "rule_right", "", ""},
    {"gated_delta_rule", "border_decay", "value nmse", "77_tokens_128"},
    {"gated_delta_rule", "chunk_stale", "value nmse", "begins_90"},
    {"gated_delta_rule", "self_missed", "value nmse", "decode_128"},
    {"gated_delta_rule", "heads_grouped", "value nmse", "batch_64"},
    {"gated_delta_rule", "slot_unchecked", "value nmse", "begins"},
    {"gated_delta_rule", "slot_exchanged", "value nmse repeat damage", "decode_128"},
    {"gated_delta_rule", "strays_left", "nan", "stray_sequences"},
    {"gated_delta_rule", "order_lost", "value nmse", "two_tokens"},
};
enum { N_POISON = sizeof poison / sizeof *poison };

static bool named(const struct check *c, const struct check_job *j)
{
    const struct trial_result *r = &j->result;
    bool ended = r->fault == FAULT_CRASH || r->fault == FAULT_HANG || r->fault == FAULT_REFUSED;
    bool place = r->fault == FAULT_SCRATCH || ended ? r->threads > 0 : r->tensor[0] && r->row[0] >= 0;
    return c->cases[j->tried].name[0] && r->message[0] && place;
}

/* Counts the kernel's faults; each must be of a kind that is expected, and have its place. */
static int count_faults(const struct check *c, int i, bool *by_case)
{
    int n = 0;
    *by_case = false;
    for (int j = 0; j < c->n_jobs; j++) {
        const struct check_job *job = &c->jobs[j];
        const struct kernel *k = c->kernels[job->kernel].kernel;
        if (strcmp(k->variant, poison[i].variant) != 0 || strcmp(op_get(k->op)->name, poison[i].op) != 0 ||
            job->result.status != TRIAL_FAULT)
            continue;
        n++;
        bool expected = strstr(poison[i].faults, fault_word(job->result.fault)) != NULL;
#ifdef HONE_SANITIZED
        expected |= job->result.fault == FAULT_CRASH; /* the sanitizer ends the process at the first wrong access */
#endif
        if (!expected || !named(c, job))
            fail_msg("%s %s, case %s: fault %s: %s", poison[i].op, poison[i].variant, c->cases[job->tried].name,
                     fault_word(job->result.fault), job->result.message);
        *by_case |= !strcmp(c->cases[job->tried].name, poison[i].found_by);
    }
    return n;
}

static void test_poison_is_caught(void **state)
{
    (void)state;
    const struct kernel *list[128];
    int n = 0, caught = 0, wrong = 0;
    for (int i = 0; i < n_poisoned; i++)
        if (strcmp(poisoned[i]->variant, "hangs") != 0)
            list[n++] = poisoned[i];
    assert_int_equal(n, N_POISON);
    /* Without the long prompts and rows, which are there for kernels that cut them into tiles. */
    struct check_options o = {.case_name = "[!l]*", .seed = 20261130, .kernels = list, .n_kernels = n};
    struct check c = run_check(&o, HONE_ECHECK);
    for (int i = 0; i < N_POISON; i++) {
        bool by_case;
        int faults = count_faults(&c, i, &by_case);
        wrong += poison[i].faults[0] != 0;
        caught += poison[i].faults[0] && faults && by_case;
        if (!poison[i].faults[0] != !faults || (faults && !by_case))
            fail_msg("%s %s: %d faults, %sfound by %s", poison[i].op, poison[i].variant, faults, by_case ? "" : "not ",
                     poison[i].found_by);
    }
    assert_int_equal(c.n_not_run, 0);
    print_message("poison: %d of %d caught, each with op, case and place\n", caught, wrong);
    assert_int_equal(caught, wrong);
    check_free(&c);
}

static const struct kernel *poisoned_kernel(const char *variant)
{
    for (int i = 0; i < n_poisoned; i++)
        if (!strcmp(poisoned[i]->variant, variant))
            return poisoned[i];
    fail_msg("no kernel %s", variant);
    return NULL;
}

/* A hang is ended after its time; what comes behind it runs all the same, and so does what comes behind a crash. */
static void test_hang_and_crash_hide_nothing(void **state)
{
    (void)state;
    const struct kernel *list[] = {poisoned_kernel("hangs"), poisoned_kernel("crashes"), poisoned_kernel("right")};
    struct check_options o = {
        .op = "mul_mat", .case_name = "[bdow]*_q4_0", .seed = 1, .kernels = list, .n_kernels = 3, .limit_ms = 1500, .n_workers = 1};
    struct check c = run_check(&o, HONE_ECHECK);
    int hangs = 0, crashes = 0, right = 0;
    for (int i = 0; i < c.n_jobs; i++) {
        const struct trial_result *r = &c.jobs[i].result;
        hangs += r->fault == FAULT_HANG && r->threads == 3;
        crashes += r->fault == FAULT_CRASH && strstr(r->message, "ABRT");
        right += c.jobs[i].kernel == 2 && r->status == TRIAL_OK;
    }
    assert_int_equal(c.n_not_run, 0);
    assert_true(hangs > 2); /* each waits its time out */
    assert_int_equal(crashes, 1);
    assert_int_equal(right, hangs);
    check_free(&c);
}

static int stop_at_once(void *user, float done)
{
    (void)user;
    (void)done;
    return 1;
}

static void test_cancelled_is_told(void **state)
{
    (void)state;
    struct check_options o = {.op = "attention", .seed = 1, .progress = stop_at_once};
    struct check c = run_check(&o, HONE_ECANCELED);
    assert_true(c.n_not_run > 0);
    check_free(&c);
}

static void test_options(void **state)
{
    (void)state;
    static const struct check_options wrong[] = {
        {.masks = "none,sse9"},         {.masks = ","},       {.masks = ""},
        {.op = "no_such_op"},           {.kernel = "nobody"}, {.op = "add", .case_name = "no*such"},
        {.case_file = "/no/such/file"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct check c;
        struct hone_error e = {0};
        int rc = check_run(&c, &wrong[i], &e);
        if ((rc != HONE_EUSAGE && rc != HONE_EINPUT) || !e.message[0])
            fail_msg("options %zu: %d, '%s'", i, rc, e.message);
    }
}

/* The same seed, the same data; another, other data. A mask that lacks what a kernel needs leaves it out. */
static void test_seed_and_mask(void **state)
{
    (void)state;
    double nmse[3];
    for (int i = 0; i < 3; i++) {
        struct check_options o = {
            .kernel = "cpu_rms_norm_ref", .case_name = "odd_tail", .seed = i == 2 ? 8 : 7, .masks = "full"};
        struct check c = run_check(&o, 0);
        struct specimen s;
        struct hone_error e = {0};
        assert_int_equal(c.n_ok, 1);
        check_free(&c);
        assert_int_equal(specimen_from_case(&s, OP_RMS_NORM, &op_get(OP_RMS_NORM)->cases[2], o.seed, &e), 0);
        nmse[i] = (double)*(const float *)s.node->src[0]->data;
        specimen_free(&s);
    }
    assert_true(nmse[0] == nmse[1] && nmse[0] != nmse[2]);
    static const struct kernel lacking = {.op = OP_ADD, .variant = "lacking", .needs = 1u << 30};
    const struct kernel *list[] = {&lacking};
    struct check_options o = {.op = "add", .masks = "none,full", .kernels = list, .n_kernels = 1};
    struct check c = run_check(&o, 0);
    assert_int_equal(c.n_jobs, 0);
    assert_true(c.lacks[0] && c.lacks[1]);
    assert_int_equal(c.n_untested, 0);
    check_free(&c);
}

static bool fits_nothing(const struct node *n, struct reason *r)
{
    return fits_not(r, "nothing suits it, not even %s", n->out->name);
}

static void test_untested_kernel_is_a_fault(void **state)
{
    (void)state;
    static const struct kernel picky = {.op = OP_ADD, .variant = "picky", .fits = fits_nothing};
    const struct kernel *list[] = {&picky};
    struct check_options o = {.op = "add", .kernels = list, .n_kernels = 1};
    struct check c = run_check(&o, HONE_ECHECK);
    assert_int_equal(c.n_untested, 1);
    assert_int_equal(c.n_unfit, c.n_jobs);
    assert_string_equal(c.jobs[0].result.message, "nothing suits it, not even out");
    check_free(&c);
}

static void test_json_and_perf(void **state)
{
    (void)state;
    const struct kernel *list[] = {poisoned_kernel("sum_misplaced")};
    struct check_options o = {.op = "rms_norm",
                              .case_name = "real_*",
                              .perf = true,
                              .n_threads = 1,
                              .kernels = list,
                              .n_kernels = 1,
                              .seed = 2,
                              .replay = "--plugin x.so"};
    struct check c = run_check(&o, HONE_ECHECK);
    assert_int_equal(c.n_jobs, 2);
    for (int i = 0; i < 2; i++) { /* one row is right and has its time; 128 rows are wrong and have none */
        json_t *j = check_job_json(&c, &c.jobs[i]);
        bool ok = !strcmp(json_string_value(json_object_get(j, "status")), "ok");
        assert_true(ok == !strcmp(json_string_value(json_object_get(j, "case")), "real_decode"));
        json_t *perf = json_object_get(j, "perf");
        assert_true(ok == (perf != NULL));
        if (ok) {
            assert_true(json_real_value(json_object_get(perf, "cold_ns")) > 0);
            assert_true(json_real_value(json_object_get(perf, "warm_ns")) > 0);
            assert_true(json_real_value(json_object_get(perf, "bytes")) == 2 * 2048 * 4);
        } else {
            assert_non_null(
                strstr(json_string_value(json_object_get(j, "replay")), "--case real_prefill --seed 2 --plugin x.so"));
            assert_true(json_integer_value(json_array_get(json_object_get(j, "row"), 0)) > 0);
        }
        json_decref(j);
    }
    json_t *all = check_json(&c);
    assert_int_equal(json_array_size(json_object_get(all, "results")), 2);
    assert_string_equal(json_string_value(json_object_get(all, "seed")), "2");
    json_decref(all);
    check_free(&c);
}

/* ---- in the running graph */

static struct hone_model *open_model(void)
{
    struct hone_model *m;
    struct hone_error e = {0};
    if (hone_model_open(&m, model_path, &e))
        fail_msg("%s", e.message);
    return m;
}

static struct hone_session *open_session(const struct hone_model *m, const char *gates)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s;
    struct hone_error e = {0};
    p.n_ctx = 64;
    p.n_threads = 2;
    p.gates = gates;
    if (hone_session_create(&s, m, &p, &e))
        fail_msg("%s", e.message);
    return s;
}

enum { N_PREFILL = 13, N_DECODE = 2 };

static struct shadow *run_shadow(const char *gates, const char *capture, const char *path, int expected)
{
    struct hone_model *m = open_model();
    struct hone_session *s = open_session(m, gates);
    struct shadow_options o = {.n_prefill = N_PREFILL, .n_decode = N_DECODE, .capture = capture, .capture_path = path};
    struct shadow *found = malloc(sizeof *found);
    struct hone_error e = {0};
    int rc = shadow_run(found, s, m, &o, &e);
    if (rc != expected)
        fail_msg("the shadow with '%s' ended with %d, not %d: %s", gates ? gates : "", rc, expected, e.message);
    assert_int_equal(hone_session_length(s, 0), 0);
    hone_session_free(s);
    hone_model_close(m);
    return found;
}

static void test_shadow_of_right_kernels(void **state)
{
    (void)state;
    static const char *const gates[] = {NULL, "fuse=off", "kernel=ref", "kernel.mul_mat=right kernel.attention=right fuse=off"};
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        struct shadow *s = run_shadow(gates[i], NULL, NULL, 0);
        assert_true(s->n_kernels >= 8);
        assert_true(i == 2 ? s->n_compared == 0 : s->n_compared > 50);
        assert_int_equal(s->n_faults, 0);
        assert_true(!s->nan.node[0]);
        free(s);
    }
}

/* gates, op and a glob of the nodes at fault, kinds. No other node may be at fault: each is judged on what it was given. */
static const struct {
    const char *gates, *op, *nodes, *faults;
} shadow_poison[] = {
    {"fuse=off kernel.rms_norm=other_epsilon", "rms_norm", "*", "value nmse"},
    {"fuse=off kernel.rms_norm=sum_misplaced", "rms_norm", "*", "value"},
    {"fuse=off kernel.mul_mat@*ffn_up-1=nibble_order", "mul_mat", "ffn_up-1", "value"},
    {"fuse=off kernel.mul_mat@*ffn_up-0=one_nan", "mul_mat", "ffn_up-0", "nan"},
    {"fuse=off kernel.mul_mat@*ffn_up-0=missed_token", "mul_mat", "ffn_up-0", "value nmse nan"},
    {"fuse=off kernel.mul_mat@*ffn_up-0=source_written", "mul_mat", "ffn_up-0", "damage value nmse"},
    {"fuse=off kernel.attention=last_token_missed", "attention", "*", "value"},
    {"fuse=off kernel.attention=kv_head_mapping", "attention", "*", "value"},
    {"fuse=off kernel.kv_write=heads_swapped", "kv_write", "*", "bits"},
    {"fuse=off kernel.kv_write=half_truncated", "kv_write", "*", "bits"},
    {"kernel.add_rms_norm_mul=fused_epsilon fuse.norm_quantize=off", "add_rms_norm_mul", "*", "value nmse"},
    {"kernel.add_rms_norm_mul=sum_not_left fuse.norm_quantize=off", "add_rms_norm_mul", "*", "value nan nmse"},
};

static void test_shadow_names_the_poison(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shadow_poison / sizeof *shadow_poison; i++) {
        struct shadow *s = run_shadow(shadow_poison[i].gates, NULL, NULL, HONE_ECHECK);
        assert_true(s->n_faults > 0);
        /* Once there is a NaN, a kernel that hides it where its reference does not is at fault too. */
        bool nan = strstr(shadow_poison[i].gates, "one_nan");
        for (int f = 0; f < (nan ? 1 : s->n_faults) && f < SHADOW_FAULTS; f++) {
            const struct shadow_node *n = &s->faults[f];
            if (strcmp(op_get(n->op)->name, shadow_poison[i].op) != 0 || fnmatch(shadow_poison[i].nodes, n->node, 0) ||
                !strstr(shadow_poison[i].faults, fault_word(n->fault)))
                fail_msg("%s: fault %s of %s, %s: %s", shadow_poison[i].gates, fault_word(n->fault), n->node, n->kernel,
                         n->message);
        }
        if (nan && strcmp(s->nan.tensor, "ffn_up-0") != 0)
            fail_msg("the first NaN is in ffn_up-0, not '%s'", s->nan.tensor);
        json_t *j = shadow_json(s);
        assert_int_equal(json_integer_value(json_object_get(j, "n_faults")), s->n_faults);
        json_decref(j);
        free(s);
    }
}

/* The plan of the prefill is spoilt: a product's output now lies over its input. */
static void test_shadow_sees_an_overlap(void **state)
{
    (void)state;
    struct hone_model *m = open_model();
    struct hone_session *s = open_session(m, "fuse=off kernel=ref");
    const struct plan *plan;
    struct hone_error e = {0};
    assert_int_equal(session_plan(s, N_PREFILL, 1, &plan, &e), 0);
    for (int i = 0; i < plan->n_steps; i++) {
        struct node *n = plan->steps[i].node;
        if (!strcmp(n->out->name, "ffn_up-0"))
            n->out->data = n->src[1]->data;
    }
    struct shadow_options o = {.n_prefill = N_PREFILL};
    struct shadow *found = malloc(sizeof *found);
    assert_int_equal(shadow_run(found, s, m, &o, &e), HONE_ECHECK);
    assert_int_equal(found->faults[0].fault, FAULT_OVERLAP);
    assert_string_equal(found->faults[0].tensor, "ffn_up-0");
    assert_non_null(strstr(found->faults[0].message, "over ffn_norm-0"));
    free(found);
    hone_session_free(s);
    hone_model_close(m);
}

/* A run that was watched ends in the bits of one that was not, right or poisoned. */
static void test_shadow_leaves_the_run(void **state)
{
    (void)state;
    static const char *const gates[] = {NULL, "fuse=off kernel.attention=scale_missing kernel.kv_write=half_truncated"};
    for (size_t g = 0; g < sizeof gates / sizeof *gates; g++) {
        struct hone_model *m = open_model();
        struct hone_session *watched = open_session(m, gates[g]), *alone = open_session(m, gates[g]);
        struct shadow_options o = {.n_prefill = N_PREFILL, .n_decode = N_DECODE};
        struct shadow *s = malloc(sizeof *s);
        struct hone_error e = {0};
        struct sequence *texts;
        assert_int_equal(shadow_run(s, watched, m, &o, &e), g ? HONE_ECHECK : 0);
        assert_int_equal(texts_encode(&texts, 3, N_PREFILL, m, &e), 0);
        struct hone_token tokens[N_PREFILL];
        for (size_t i = 0; i < texts[2].n; i++)
            tokens[i] = (struct hone_token){texts[2].ids[i], 0, i + 1 == texts[2].n};
        assert_int_equal(hone_session_eval(alone, tokens, texts[2].n, &e), 0);
        for (int i = 0; i < N_DECODE; i++)
            assert_int_equal(hone_session_eval(alone, &(struct hone_token){hone_greedy(alone), 0, true}, 1, &e), 0);
        assert_memory_equal(hone_session_logits(watched, 0), hone_session_logits(alone, 0),
                            sizeof(float) * (size_t)hone_model_n_vocab(m));
        texts_free(texts, 3);
        free(s);
        hone_session_free(watched);
        hone_session_free(alone);
        hone_model_close(m);
    }
}

/* ---- captured cases */

static char *case_path(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s.case", folder, name);
    return path;
}

static void test_capture_and_replay(void **state)
{
    (void)state;
    static const struct {
        const char *gates, *node, *op;
        const char *poison; /* a variant that must be caught on it; NULL: none */
    } nodes[] = {
        {"fuse=off", "ffn_up-0", "mul_mat", NULL},
        {"fuse=off kernel.mul_mat=right", "ffn_up-0", "mul_mat", "stale_scale"},
        {"kernel=ref", "ffn_up-0", "mul_mat", "nibble_order"},
        {"fuse=off", "kqv_out-0", "attention", "kv_head_mapping"},
        {"kernel.add_rms_norm_mul=fused_right fuse.norm_quantize=off", "ffn_norm-1", "add_rms_norm_mul", "sum_not_left"},
        {NULL, "ffn_norm-1*", NULL, NULL},
        {"fuse=off", "attn_norm_rms-0", "rms_norm", "other_epsilon"},
        {"fuse=off", "k_write-1", "kv_write", "half_truncated"},
        {"kernel.rope_kv=ref", "v_write-1", "rope_kv", NULL},
    };
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        struct specimen s;
        struct hone_error e = {0};
        free(run_shadow(nodes[i].gates, nodes[i].node, case_path("captured"), 0));
        if (specimen_from_file(&s, case_path("captured"), &e))
            fail_msg("%s", e.message);
        if (nodes[i].op && strcmp(op_get(s.node->op)->name, nodes[i].op) != 0)
            fail_msg("%s was captured as %s", nodes[i].node, op_get(s.node->op)->name);
        specimen_free(&s);
        int n, n_own = 0;
        const struct kernel *own[256], *const *all = backend_list(&n)[0]->kernels(&n);
        for (int k = 0; k < n; k++)
            if (!all[k]->by_name_only)
                own[n_own++] = all[k];
        struct check_options o = {.case_file = case_path("captured"), .kernels = own, .n_kernels = n_own};
        struct check c = run_check(&o, 0);
        assert_true(c.n_ok >= 1);
        check_free(&c);
        if (nodes[i].poison) {
            const struct kernel *list[] = {poisoned_kernel(nodes[i].poison)};
            struct check_options wrong = {.case_file = case_path("captured"), .kernels = list, .n_kernels = 1};
            c = run_check(&wrong, HONE_ECHECK);
            assert_int_equal(c.n_faults, 1);
            check_free(&c);
        }
    }
    free(run_shadow(NULL, "no such node", case_path("nothing"), HONE_EUSAGE));
    assert_int_not_equal(access(case_path("nothing"), F_OK), 0);
}

/* A written case is what was in memory: every byte of the sources, strides and parameters included. */
static void test_file_is_the_case(void **state)
{
    (void)state;
    static const enum op ops[] = {OP_ADD, OP_ATTENTION, OP_ROPE, OP_KV_WRITE, OP_QUANTIZE, OP_GLU, OP_MUL_MAT, OP_SOFTMAX};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (int i = 0; i < op_get(ops[k])->n_cases; i++) {
            struct specimen a, b;
            struct hone_error e = {0};
            assert_int_equal(specimen_from_case(&a, ops[k], &op_get(ops[k])->cases[i], 3, &e), 0);
            bool plain = true; /* a root with gaps is nothing that a graph has */
            for (int s = 0; s < a.node->n_src; s++)
                plain = plain && (!a.node->src[s] || tensor_contiguous(a.node->src[s]));
            for (int r = 0; r < a.n_regions; r++)
                region_load(&a.regions[r], 0, REGION_NOTHING);
            if (!plain) {
                specimen_free(&a);
                continue;
            }
            if (case_file_write(case_path("case"), a.node, a.name, &e) || specimen_from_file(&b, case_path("case"), &e))
                fail_msg("%s %s: %s", op_get(ops[k])->name, a.name, e.message);
            assert_string_equal(a.name, b.name);
            assert_memory_equal(a.node->params, b.node->params, PARAMS_SIZE);
            assert_int_equal(a.node->n_src, b.node->n_src);
            for (int s = 0; s < a.node->n_src; s++) {
                const struct tensor *x = a.node->src[s], *y = b.node->src[s];
                assert_int_equal(!x, !y);
                if (!x)
                    continue;
                assert_int_equal(x->format, y->format);
                assert_int_equal(x->kind, y->kind);
                assert_memory_equal(x->ne, y->ne, sizeof x->ne);
                assert_memory_equal(x->nb, y->nb, sizeof x->nb);
                assert_memory_equal(x->data, y->data, tensor_nbytes(x));
            }
            specimen_free(&a);
            specimen_free(&b);
        }
}

static void test_broken_files(void **state)
{
    (void)state;
#ifdef HONE_SANITIZED /* where the fuzzer of case files looks for the rest */
    enum { TURNS = 600 };
#else
    enum { TURNS = 3000 };
#endif
    struct specimen s;
    struct hone_error e = {0};
    static const struct {
        enum op op;
        int i;
    } cases[] = {{OP_ATTENTION, 1}, {OP_KV_WRITE, 3}, {OP_MUL_MAT, 0}};
    int accepted = 0, refused = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        assert_int_equal(specimen_from_case(&s, cases[k].op, &op_get(cases[k].op)->cases[cases[k].i], 3, &e), 0);
        assert_int_equal(case_file_write(case_path("whole"), s.node, s.name, &e), 0);
        specimen_free(&s);
        FILE *f = fopen(case_path("whole"), "rb");
        assert_non_null(f);
        static unsigned char bytes[1 << 20], broken[1 << 20];
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        assert_true(n > 500 && n < sizeof bytes);
        struct rng r = rng_seed(k + 1);
        for (int turn = 0; turn < TURNS; turn++) {
            size_t size = turn % 10 == 9 ? (size_t)rng_below(&r, n) : n;
            memcpy(broken, bytes, n);
            for (int flips = turn % 3 + 1; flips > 0; flips--) { /* most of what matters stands in the first kilobytes */
                size_t at = (size_t)rng_below(&r, rng_below(&r, 4) ? (n < 3000 ? n : 3000) : n);
                broken[at] =
                    rng_below(&r, 3) ? (unsigned char)rng_u64(&r) : (unsigned char)(broken[at] ^ 1u << rng_below(&r, 8));
            }
            struct hone_error why = {0};
            if (specimen_from_memory(&s, broken, size, "broken", &why)) {
                refused++;
                assert_true((why.code == HONE_EINPUT || why.code == HONE_ERESOURCE) && why.message[0]);
            } else {
                accepted++;
                specimen_free(&s);
            }
        }
    }
    print_message("broken case files: %d refused, %d harmless\n", refused, accepted);
    assert_true(refused > TURNS / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_wrong_value),
        cmocka_unit_test(test_small_error_of_all),
        cmocka_unit_test(test_nan_and_place),
        cmocka_unit_test(test_exact_is_exact),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_right_kernels_pass),
        cmocka_unit_test(test_poison_is_caught),
        cmocka_unit_test(test_hang_and_crash_hide_nothing),
        cmocka_unit_test(test_cancelled_is_told),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_seed_and_mask),
        cmocka_unit_test(test_untested_kernel_is_a_fault),
        cmocka_unit_test(test_json_and_perf),
        cmocka_unit_test(test_shadow_of_right_kernels),
        cmocka_unit_test(test_shadow_names_the_poison),
        cmocka_unit_test(test_shadow_sees_an_overlap),
        cmocka_unit_test(test_shadow_leaves_the_run),
        cmocka_unit_test(test_capture_and_replay),
        cmocka_unit_test(test_file_is_the_case),
        cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
