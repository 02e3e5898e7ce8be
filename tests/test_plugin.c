/* test_plugin.c: kernels from outside. Plug-ins are built here with the system's compiler from tests/plugins/: a good one
 * computes every op of a llama and gives the right logits; broken ones are refused, each with what is wrong, and none takes the
 * process with it; nothing of a plug-in runs or is even asked unless a gate names it. */
#include "test.h"

#include "backends/plugin/plugin.h"
#include "base/cpu.h"
#include "engine/engine.h"
#include "graph/fuse.h"
#include "ops/rms_norm.h"
#include "ops/scale.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int32_t ids[24] = {11,  48, 85, 122, 159, 36, 73, 110, 147, 24,  61, 98,
                                135, 12, 49, 86,  123, 0,  37, 74,  111, 148, 25, 62};
enum { N = 24, VOCAB = 160 };

static char folder[64];

static char *path_of(const char *name)
{
    static char path[2][128];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s.so", folder, name);
    return path[which];
}

/* Builds <folder>/<name>.so; false when the compiler cannot be run. */
static bool try_build(const char *name, const char *compiler, const char *source, const char *more)
{
    char command[600];
    snprintf(command, sizeof command, "%s -Wall -Wextra -Werror -O1 -fPIC -shared -Iinclude %s %s -o %s -lm", compiler, source,
             more, path_of(name));
    return system(command) == 0;
}

static const char *build(const char *name, const char *source, const char *more)
{
    if (access("include/hone_kernel.h", R_OK))
        fail_msg("to be run from the project's folder");
    if (!try_build(name, "cc -std=c11", source, more))
        fail_msg("cannot build %s with %s", source, more);
    return path_of(name);
}

static int make_folder(void **unused)
{
    (void)unused;
    snprintf(folder, sizeof folder, "/tmp/hone-plugin-XXXXXX");
    return !mkdtemp(folder);
}

static int remove_folder(void **unused)
{
    (void)unused;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- refusals */

static void refused(const char *path, const char *says)
{
    struct hone_error e = {0};
    int n_before, n_after;
    backend_by_name("cpu")->kernels(&n_before);
    int rc = plugin_load(path, 1000, &e);
    if (rc != HONE_EINPUT || !strstr(e.message, says) || !strstr(e.message, path))
        fail_msg("%s: %d, '%s', and not '%s'", path, rc, e.message, says);
    backend_by_name("cpu")->kernels(&n_after);
    assert_int_equal(n_after, n_before);
    assert_null(strchr(e.message, '\n'));
}

static void test_no_plugin(void **unused)
{
    (void)unused;
    char path[128];
    refused("/no/such/file.so", "No such file");
    refused("hone-nowhere.so", "No such file"); /* and not looked for among the system's libraries */
    refused("libc.so.6", "No such file");
    refused("", "cannot be loaded");
    refused(folder, "cannot be loaded");
    snprintf(path, sizeof path, "%s/text.so", folder);
    FILE *f = fopen(path, "w");
    fputs("I am no shared object, but long enough to have a header, if only somebody read on to here.\n", f);
    fclose(f);
    refused(path, "invalid ELF header");
    assert_int_equal(truncate(path, 0), 0);
    refused(path, "file too short");
    /* A plug-in whose end was lost. */
    char command[300];
    build("whole_cut", "tests/plugins/whole.c", "");
    snprintf(command, sizeof command, "head -c 9000 %s > %s/cut.so", path_of("whole_cut"), folder);
    assert_int_equal(system(command), 0);
    refused(path_of("cut"), "");
}

static void test_faults(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault, *says;
    } faults[] = {
        {"version", "built for version 2 of the plug-in ABI, this hone has version 1"},
        {"magic", "begins with 0x00000001"},
        {"plugin_size", "bytes and says 4000"},
        {"plugin_short", "size is given as 24"},
        {"symbol", "exports no symbol hone_plugin"},
        {"function", "a function of"},
        {"undefined", "nowhere_to_be_found"},
        {"no_name", "the plug-in: it has no name"},
        {"no_kernels", "no kernels"},
        {"wild", "crashed (Segmentation fault) while its table was being read"},
        {"crash", "crashed (Segmentation fault) while it was being loaded"},
        {"abort", "crashed (Aborted) while it was being loaded"},
        {"exit", "ended the process (exit code 0) while it was being loaded"},
        {"hang", "did not come to an end within 1.0 s while it was being loaded"},
        {"kernel_size", "kernel 0: its size is given as 0 bytes"},
        {"newer", "kernel 1: it uses a field that this hone does not know"},
        {"no_op", "kernel 0 (fault): it names no op"},
        {"op", "kernel 0 (fault): there is no op 'multiply' that runs; ops: get_rows"},
        {"alias_op", "there is no op 'view' that runs"},
        {"no_variant", "kernel 0: it has no name"},
        {"variant_letters", "its name has the byte 0x20 at 2"},
        {"variant_long", "longer than 40"},
        {"variant_taken", "kernel add_ref: there is one of this name already"},
        {"twice", "kernel add_fault: the plug-in has two of this name"},
        {"no_run", "kernel add_fault: it has no function `run`"},
        {"no_fits", "kernel add_fault: it has no function `fits`"},
        {"format", "kernel add_fault: there is no format 'q4_9'; formats: f32"},
        {"layout", "kernel add_fault: there is no layout 'q4_0.nowhere'"},
        {"layout_empty", "kernel add_fault: its layout is '', which names none"},
        {"layout_format", "kernel add_fault: it takes q8_0, and the layout q4_0.fault is of q4_0"},
        {"activation_op", "kernel add_fault: only mul_mat"},
        {"activation_format", "kernel mul_mat_fault: hone cannot quantise an activation to i32"},
        {"needs", "kernel add_fault: it needs the feature 'mmx'"},
        {"declines", "kernel add_fault: only kernels of fused ops may decline"},
        {"layout_grain", "layout q4_0.fault: its grain is 0"},
        {"layout_of", "layout q4_0.fault: no weight is i32"},
        {"layout_taken", "layout q4_0.x16: there is one of this name already"},
        {"layout_rows", "layout rows: this name has a meaning of its own"},
        {"layout_twice", "layout q4_0.fault: the plug-in has two of this name"},
        {"layout_no_pack", "layout q4_0.fault: it has no function `pack`"},
        {"layout_refuses", "layout q4_0.fault: it refuses every shape"},
        {"layout_bytes", "layout q4_0.fault, matrix [32, 1]: it wants"},
        {"layout_lossy", "does not come back: byte 17 of row 0"},
        {"layout_beyond", "pack writes outside of the 18 bytes"},
        {"layout_restore", "matrix [32, 2]: what was packed does not come back"},
        {"layout_row_end", "restore_row writes beyond the 18 bytes of row 0"},
        {"layout_values", "unpack_row gives"},
        {"layout_crash", "crashed (Segmentation fault) while layout q4_0.fault: pack was being tried on [32, 1]"},
        {"layout_hang", "did not come to an end within 1.0 s while layout q4_0.fault: pack was being tried"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char more[100];
        snprintf(more, sizeof more, "-DFAULT_%s", faults[i].fault);
        refused(build(faults[i].fault, "tests/plugins/fault.c", more), faults[i].says);
    }
    /* Without a fault the same source is a plug-in. */
    struct hone_error e;
    if (hone_plugin_load(build("faultless", "tests/plugins/fault.c", ""), &e))
        fail_msg("%s", e.message);
    int n, n_again;
    backend_by_name("cpu")->kernels(&n);
    assert_int_equal(hone_plugin_load(path_of("faultless"), &e), 0); /* once more changes nothing */
    backend_by_name("cpu")->kernels(&n_again);
    assert_int_equal(n, n_again);
    /* Another file with the same names does not get in. */
    refused(build("other", "tests/plugins/fault.c", ""), "kernel add_fault: there is one of this name already");
}

/* A name without a slash is a file of the current folder. */
static void test_relative_path(void **unused)
{
    (void)unused;
    struct hone_error e;
    char before[4096];
    build("relative", "tests/plugins/fault.c", "-DFAULT_version");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    int rc = hone_plugin_load("relative.so", &e);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rc, HONE_EINPUT);
    assert_non_null(strstr(e.message, "version 2"));
}

/* ---- planning: a norm, a scale and an add, as plug-in kernels and not */

static void load_whole(void)
{
    static bool loaded;
    struct hone_error e;
    if (!loaded && hone_plugin_load(build("whole", "tests/plugins/whole.c", ""), &e))
        fail_msg("%s", e.message);
    loaded = true;
}

static int *counter(const char *name)
{
    void *handle = dlopen(path_of("whole"), RTLD_NOW | RTLD_NOLOAD);
    int *value = handle ? dlsym(handle, name) : NULL;
    assert_non_null(value);
    dlclose(handle);
    return value;
}

struct planned {
    struct arena arena;
    struct graph graph;
    struct gates gates;
    struct plan *plan;
    struct tensor *x;
};

/* sum = 0.5 norm(x) + 0.25 + x; returns the code of planning. */
static int plan_chain(struct planned *p, const char *gates, bool strict, struct hone_error *e)
{
    struct scale_params half = {.scale = 0.5f, .bias = 0.25f};
    *p = (struct planned){.plan = NULL};
    *e = (struct hone_error){0};
    graph_init(&p->graph, &p->arena);
    p->graph.layer = 1;
    p->x = graph_input(&p->graph, "x", FORMAT_F32, 2, (int64_t[]){64, 3});
    struct tensor *t = graph_op(&p->graph, OP_RMS_NORM, &(struct rms_norm_params){1e-6f}, p->x);
    t = graph_op(&p->graph, OP_SCALE, &half, t);
    p->graph.logits = graph_name(&p->graph, graph_op(&p->graph, OP_ADD, NULL, t, p->x), "sum");
    assert_int_equal(gates_parse(&p->gates, gates, "--set", e), 0);
    return plan_create(&p->plan, &p->graph, &(struct plan_options){.gates = &p->gates, .strict = strict}, e);
}

static void planned_end(struct planned *p)
{
    gates_free(&p->gates);
    arena_free(&p->arena);
}

static const struct step *step_of(const struct planned *p, enum op op)
{
    for (int i = 0; i < p->plan->n_steps; i++)
        if (p->plan->steps[i].node->op == op)
            return &p->plan->steps[i];
    return NULL;
}

static const char *why_not(const struct step *s, const char *variant)
{
    for (int i = 0; i < s->n_passed; i++)
        if (!strcmp(s->passed[i].kernel->variant, variant))
            return s->passed[i].reason.text;
    return "it was no candidate";
}

static void test_only_by_name(void **unused)
{
    (void)unused;
    struct planned p;
    struct hone_error e;
    load_whole();
    int asked = *counter("whole_asked");
    assert_int_equal(plan_chain(&p, "", true, &e), 0);
    for (int i = 0; i < p.plan->n_steps; i++)
        assert_null(strstr(p.plan->steps[i].kernel->variant, "whole"));
    assert_string_equal(why_not(step_of(&p, OP_ADD), "whole"), "a plug-in's kernel runs only where a gate names it");
    planned_end(&p);
    /* A gate on another op, or one that says ref, names nothing of the plug-in either. */
    assert_int_equal(plan_chain(&p, "kernel.mul=whole kernel=ref", true, &e), 0);
    assert_string_equal(step_of(&p, OP_ADD)->kernel->variant, "ref");
    planned_end(&p);
    assert_int_equal(*counter("whole_asked"), asked); /* nobody even asked it */
    assert_int_equal(plan_chain(&p, "kernel.add=whole", true, &e), 0);
    assert_string_equal(step_of(&p, OP_ADD)->kernel->variant, "whole");
    assert_true(*counter("whole_asked") > asked);
    assert_true(step_of(&p, OP_RMS_NORM)->kernel->by_name_only == false);
    planned_end(&p);
}

static void test_unfit(void **unused)
{
    (void)unused;
    struct planned p;
    struct hone_error e;
    load_whole();
    assert_int_equal(plan_chain(&p, "kernel.add=whole_never", false, &e), 0);
    assert_int_equal(p.plan->n_gates_unfit, 1);
    assert_false(step_of(&p, OP_ADD)->kernel->by_name_only);
    assert_string_equal(why_not(step_of(&p, OP_ADD), "whole_never"), "sum-1 of layer 1 displeases?me");
    planned_end(&p);
    assert_int_equal(plan_chain(&p, "kernel.add=whole_never", true, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "displeases"));
    planned_end(&p);
    assert_int_equal(plan_chain(&p, "kernel.add=whole_endless", true, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "18446744073709551615 bytes of scratch"));
    planned_end(&p);
    assert_int_equal(cpu_mask("avx2", &e), 0);
    int rc = plan_chain(&p, "kernel.add=whole_lacking", true, &e);
    struct hone_error unused_error;
    cpu_mask("full", &unused_error);
    assert_int_equal(rc, HONE_EUSAGE);
    assert_non_null(strstr(e.message, "the device lacks "));
    planned_end(&p);
}

static int run_chain(struct planned *p, int threads, struct hone_error *e)
{
    void *block = aligned_alloc(64, (p->plan->value_bytes + 63) / 64 * 64);
    size_t stride = (p->plan->scratch_bytes + 64) / 64 * 64;
    struct run run = {
        .pool = pool_create(threads, 10, e), .scratch = aligned_alloc(64, (size_t)threads * stride), .scratch_stride = stride};
    plan_bind(p->plan, block);
    for (int i = 0; i < 64 * 3; i++)
        ((float *)p->x->data)[i] = (float)(i % 7) - 3;
    int rc = plan_run(p->plan, &run, e);
    for (int row = 0; row < 3 && !rc; row++) {
        double squares = 0;
        const float *x = (const float *)p->x->data + row * 64, *y = tensor_row(p->graph.logits, row, 0, 0);
        for (int i = 0; i < 64; i++)
            squares += (double)x[i] * (double)x[i];
        for (int i = 0; i < 64; i++)
            assert_float_equal(y[i], 0.5 * (double)x[i] / sqrt(squares / 64 + 1e-6) + 0.25 + (double)x[i], 1e-6);
    }
    pool_free(run.pool);
    free(run.scratch);
    free(block);
    return rc;
}

static void test_run(void **unused)
{
    (void)unused;
    struct planned p;
    struct hone_error e;
    load_whole();
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(plan_chain(&p, "kernel.add=whole kernel.rms_norm=whole", true, &e), 0);
        assert_int_equal(run_chain(&p, threads, &e), 0);
        planned_end(&p);
        assert_int_equal(plan_chain(&p, "kernel.add=whole_fails", true, &e), 0);
        assert_int_equal(run_chain(&p, threads, &e), HONE_EINPUT);
        assert_non_null(strstr(e.message, "node sum-1: kernel cpu_add_whole_fails failed"));
        planned_end(&p);
    }
}

static void test_cplusplus(void **unused)
{
    (void)unused;
    static const char *const compilers[] = {"c++ -std=c++11", "g++ -std=c++11", "clang++ -std=c++11"};
    bool built = false;
    for (size_t i = 0; i < sizeof compilers / sizeof *compilers && !built; i++) {
        char command[64];
        snprintf(command, sizeof command, "command -v %.*s >/dev/null", (int)strcspn(compilers[i], " "), compilers[i]);
        if (system(command))
            continue;
        if (!try_build("plain", compilers[i], "tests/plugins/plain.cc", "-Wpedantic -Wconversion"))
            fail_msg("%s does not take the header", compilers[i]);
        built = true;
    }
    if (!built) {
        print_message("skipped: no C++ compiler\n");
        skip();
    }
    struct planned p;
    struct hone_error e;
    if (hone_plugin_load(path_of("plain"), &e))
        fail_msg("%s", e.message);
    assert_int_equal(plan_chain(&p, "kernel.scale=plain_cc", true, &e), 0);
    assert_string_equal(step_of(&p, OP_SCALE)->kernel->variant, "plain_cc");
    assert_int_equal(run_chain(&p, 2, &e), 0);
    planned_end(&p);
}

/* Every op that runs and has params tells all of them by name: else a plug-in would compute without one. */
static void test_params_are_complete(void **unused)
{
    (void)unused;
    for (int op = 0; op < N_OPS; op++) {
        const struct op_desc *d = op_get((enum op)op);
        size_t bytes = 0;
        for (const struct op_param *p = d->params; p && p->name; p++, bytes += 4)
            assert_int_equal(p->offset, bytes);
        if (!d->alias && bytes != d->params_size)
            fail_msg("op %s has params of %zu bytes and lists %zu", d->name, d->params_size, bytes);
    }
}

/* ---- a model */

static struct hone_model *open_model(const char *name)
{
    char path[4096];
    const char *data = getenv("HONE_DATA");
    snprintf(path, sizeof path, "%s/%s", data ? data : "", name);
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

static struct hone_session *open_session(const struct hone_model *m, const char *gates, bool strict)
{
    struct hone_error e;
    struct hone_session *s;
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = 64;
    p.gates = gates;
    p.strict = strict;
    p.n_threads = 3;
    p.type_k = p.type_v = "f32";
    if (hone_session_create(&s, m, &p, &e))
        fail_msg("%s", e.message);
    return s;
}

/* All 24 tokens: a prefill of 20 and four steps. */
static int eval_all(struct hone_session *s, float *out, struct hone_error *e)
{
    for (int at = 0, n, rc; at < N; at += n) {
        struct hone_token t[N];
        n = at ? 1 : 20;
        for (int i = 0; i < n; i++)
            t[i] = (struct hone_token){ids[at + i], 0, true};
        if ((rc = hone_session_eval(s, t, (size_t)n, e)))
            return rc;
        memcpy(out + at * VOCAB, hone_session_logits(s, 0), (size_t)n * VOCAB * sizeof *out);
    }
    return 0;
}

static float got[N * VOCAB], want[N * VOCAB];

static double nmse(void)
{
    double num = 0, den = 0;
    for (int i = 0; i < N * VOCAB; i++) {
        num += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        den += (double)want[i] * (double)want[i];
    }
    return num / den;
}

#define WHOLE_STEP                                                                                                             \
    "kernel.add=whole kernel.glu=whole kernel.rms_norm=whole kernel.get_rows=whole kernel.rope=whole kernel.kv_write=whole "   \
    "kernel.attention=whole kernel.mul_mat=whole "

static void read_logits(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("HONE_DATA"), name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof want, 1, f), 1);
    fclose(f);
}

static int products(const struct plan *p, const char *variant)
{
    int n = 0;
    for (int k = 0; k < p->n_steps; k++)
        n += p->steps[k].node->op == OP_MUL_MAT && !strcmp(p->steps[k].kernel->variant, variant);
    return n;
}

static void test_right_logits(void **unused)
{
    (void)unused;
    static const struct {
        const char *gates, *kernel;
        double within;
    } runs[] = {
        {WHOLE_STEP "fuse=off", "whole", 1e-9},
        {WHOLE_STEP "fuse=off kernel.mul_mat.q4_0=whole_rows", "whole_rows", 1e-9},
        {WHOLE_STEP "fuse=off kernel.mul_mat.q4_0=whole_reversed", "whole_reversed", 1e-9},
        {WHOLE_STEP "fuse=off kernel.mul_mat.q4_0=whole_two", "whole_two", 1e-9},
        {WHOLE_STEP "fuse=off kernel.mul_mat.q4_0=whole_q8_0", "whole_q8_0",
         2e-3},                      /* what quantising costs is the user's choice */
        {"kernel=ref", "ref", 1e-9}, /* the weights lie in the plug-in's layout by now, and are read all the same */
    };
    struct hone_model *m = open_model("quants/llama-Q4_0.gguf");
    struct hone_error e;
    read_logits("quants/llama-Q4_0.logits");
    load_whole();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct hone_session *s = open_session(m, runs[i].gates, true);
        const struct plan *p;
        if (eval_all(s, got, &e))
            fail_msg("%s: %s", runs[i].gates, e.message);
        if (!(nmse() <= runs[i].within))
            fail_msg("%s: logits differ by %g", runs[i].gates, nmse());
        assert_int_equal(session_plan(s, 1, 1, &p, &e), 0);
        for (int k = 0; k < p->n_steps && i == 0; k++)
            assert_true(p->steps[k].kernel->by_name_only || p->steps[k].node->op == OP_MUL);
        assert_true(products(p, runs[i].kernel) >= 14);
        hone_session_free(s);
    }
    hone_model_close(m);
}

/* A fused node: named, it fuses, the plug-in finds its parts and results; declining, the parts run and it is counted. */
static void test_fused(void **unused)
{
    (void)unused;
    struct hone_model *m = open_model("quants/llama-Q4_0.gguf");
    struct hone_error e;
    const struct plan *p;
    load_whole();
    struct hone_session *s = open_session(m, "kernel=ref", true);
    assert_int_equal(eval_all(s, want, &e), 0);
    hone_session_free(s);
    s = open_session(m, "kernel=ref kernel.mul_mat_group=whole", true);
    int ran = *counter("whole_ran");
    assert_int_equal(eval_all(s, got, &e), 0);
    assert_true(nmse() < 1e-10);
    assert_int_equal(session_plan(s, 1, 1, &p, &e), 0);
    assert_true(p->fuse_hits[FUSE_mul_mat_group] > 0);
    assert_int_equal(*counter("whole_ran") - ran, 5 * p->fuse_hits[FUSE_mul_mat_group]); /* once in each of five steps */
    hone_session_free(s);
    s = open_session(m, "kernel=ref kernel.mul_mat_group=whole_declines", false);
    assert_int_equal(eval_all(s, got, &e), 0);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(session_declines(s)[FUSE_mul_mat_group].count, 5);
    assert_non_null(strstr(session_declines(s)[FUSE_mul_mat_group].reason.text, "are too many today"));
    hone_session_free(s);
    s = open_session(m, "kernel=ref kernel.mul_mat_group=whole_declines", true);
    assert_int_equal(eval_all(s, got, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "are too many today"));
    hone_session_free(s);
    hone_model_close(m);
}

static void example_is_right(const char *name, const char *gates, const char *variant, const char *model)
{
    char path[64];
    struct hone_error e;
    const struct plan *p;
    snprintf(path, sizeof path, "%s.gguf", model);
    struct hone_model *m = open_model(path);
    snprintf(path, sizeof path, "%s.logits", model);
    read_logits(path);
    if (hone_plugin_load(path_of(name), &e))
        fail_msg("%s", e.message);
    struct hone_session *s = open_session(m, gates, true);
    if (eval_all(s, got, &e))
        fail_msg("%s", e.message);
    if (!(nmse() <= 1e-9))
        fail_msg("%s: logits of %s differ by %g", name, model, nmse());
    assert_int_equal(session_plan(s, 1, 1, &p, &e), 0);
    assert_true(products(p, variant) >= 14);
    hone_session_free(s);
    hone_model_close(m);
}

static void test_examples(void **unused)
{
    (void)unused;
    build("example", "examples/kernel/q4_0.c", "-O3 -march=native");
    example_is_right("example", "kernel=ref kernel.mul_mat.q4_0=q4_0_lanes", "q4_0_lanes", "quants/llama-Q4_0");
    if (system("pkg-config --exists openblas 2>/dev/null")) {
        print_message("left out: OpenBLAS is not installed\n");
        return;
    }
    build("openblas", "examples/kernel/openblas.c", "$(pkg-config --cflags --libs openblas)");
    example_is_right("openblas", "kernel=ref kernel.mul_mat=openblas", "openblas", "quants/llama-Q4_0");
    example_is_right("openblas", "kernel=ref kernel.mul_mat=openblas", "openblas", "quants/llama-Q4_K_M");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_plugin),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_relative_path), cmocka_unit_test(test_only_by_name),
        cmocka_unit_test(test_unfit),         cmocka_unit_test(test_run),
        cmocka_unit_test(test_cplusplus),     cmocka_unit_test(test_params_are_complete),
        cmocka_unit_test(test_right_logits),  cmocka_unit_test(test_fused),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests_name("plugin", tests, make_folder, remove_folder);
}
