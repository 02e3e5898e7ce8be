/* bench.c: hone bench: llama-bench's flags, tests and formats. The rows of its parameters are lab/bench_params.def; what is
 * here are the options that are no lists, the documents on stdout and stderr, the journal, and the exit code: 1 when a test
 * failed or its output is wrong.
 *
 * Flags of llama-bench that mean nothing here are not "unknown": each is refused with its reason, or accepted where doing
 * nothing is doing what it says (--offline, --numa numactl). */
#include "cmd/cmd.h"

#include "backends/backend.h"
#include "base/cpu.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/settings.h"
#include "lab/bench.h"
#include "lab/bench_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char *given[N_BENCH_PARAMS]; /* the values of each parameter's option, a line each time it was given */
static int repeats = 5, delay, priority;
static bool progress_lines, no_warmup, no_verify, no_roof, no_cache, no_alone, offline, list_devices, version;
static const char *format_err = "none", *numa;

/* Refused whatever the value. */
enum refused { HF_REPO, HF_FILE, HF_TOKEN, RPC, N_REFUSED };
static const char *refused[N_REFUSED];
static const char *const reasons[N_REFUSED] = {
    "hone fetches no models: download the file and give -m",
    "hone fetches no models: download the file and give -m",
    "hone fetches no models: download the file and give -m",
    "over several machines hone runs under mpirun: docs/tensor-parallel.md",
};

#define PARAM(NAME, KIND, flags, value, preset, here, why, help)                                                               \
    {flags, OPTION_APPEND, &given[BENCH_##NAME], value, help, 0, 0},
static struct option table[] = {
#include "lab/bench_params.def"
    {"-r, --repetitions", OPTION_INT, &repeats, "N", "samples of each test", 1, 1000000},
    {"--delay", OPTION_INT, &delay, "SECONDS", "wait before each test", 0, 86400},
    {"--prio", OPTION_INT, &priority, "N", "priority of the process: -1 low, 0 as it is, 1 to 3 higher", -1, 3},
    {"--numa", OPTION_TEXT, &numa, "MODE", "numactl: keep to the processors given by numactl (always so); no other mode", 0, 0},
    {"-o, --output", OPTION_TEXT, &output_format, "FORMAT", "of stdout: md, csv, json, jsonl, sql or none", 0, 0},
    {"-oe, --output-err", OPTION_TEXT, &format_err, "FORMAT", "the same of stderr", 0, 0},
    {"--progress", OPTION_FLAG, &progress_lines, NULL, "a line on stderr for each thing that is done", 0, 0},
    {"--no-warmup", OPTION_FLAG, &no_warmup, NULL, "measure at once, without warming up", 0, 0},
    {"--no-verify", OPTION_FLAG, &no_verify, NULL, "do not compare with the reference: rows say \"unverified\"", 0, 0},
    {"--no-roof", OPTION_FLAG, &no_roof, NULL, "do not measure between samples how fast memory can be read", 0, 0},
    {"--no-one-device", OPTION_FLAG, &no_alone, NULL,
     "over several devices: leave out the rows of one device with all their threads, which stand beside", 0, 0},
    {"--no-cache", OPTION_FLAG, &no_cache, NULL, "compute the reference's logits anew", 0, 0},
    {"--recipe", OPTION_INPUT, &model_args.recipe, "FILE", "gates from a file", 0, 0},
    {"--set", OPTION_APPEND, &model_args.set, "GATE=VALUE", "set a gate (repeatable)", 0, 0},
    PLUGIN_OPTION,
    {"--mask", OPTION_TEXT, &model_args.mask, "FEATURES", "use only these processor features (none, avx2, avx512, full)", 0, 0},
    {"--strict", OPTION_FLAG, &model_args.strict, NULL, "a gate that does not fit, or a fallback, is an error", 0, 0},
    {"--list-devices", OPTION_FLAG, &list_devices, NULL, "print the devices and end", 0, 0},
    {"--version", OPTION_FLAG, &version, NULL, "print the build and end", 0, 0},
    {"--offline", OPTION_FLAG, &offline, NULL, "fetch nothing (always so)", 0, 0},
    {"-hf, -hfr, --hf-repo", OPTION_TEXT, &refused[HF_REPO], "REPO", "refused: hone fetches no models", 0, 0},
    {"-hff, --hf-file", OPTION_TEXT, &refused[HF_FILE], "FILE", "refused: hone fetches no models", 0, 0},
    {"-hft, --hf-token", OPTION_TEXT, &refused[HF_TOKEN], "TOKEN", "refused: hone fetches no models", 0, 0},
    {"-rpc, --rpc", OPTION_TEXT, &refused[RPC], "SERVERS", "refused: over several machines hone runs under mpirun", 0, 0},
    LOCK_OPTION,
    JOURNAL_OPTIONS,
};
#undef PARAM

/* The presets of lists come from their rows, into the help; and this command's own format is Markdown. */
static const struct option *options(int *n)
{
    static char help[N_BENCH_PARAMS][200];
    static bool done;
    for (int p = 0; p < N_BENCH_PARAMS && !done; p++) {
        const struct bench_param_info *info = bench_param_get((enum bench_param)p);
        snprintf(help[p], sizeof help[p], "%s%s%s%s", info->help, info->preset ? " (default " : "",
                 info->preset ? info->preset : "", info->preset ? ")" : "");
        table[p].help = help[p];
    }
    if (!done)
        output_format = "md";
    done = true;
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- while it runs */

struct running {
    struct bench_writer out, err;
    struct recording rec;
    char test[64];
    bool begun;     /* the documents are */
    int journal_rc; /* of the journal: its message is printed already */
};

static void tell(void *user, size_t test, size_t n_tests, const char *what)
{
    char line[160];
    (void)user;
    snprintf(line, sizeof line, "test %zu of %zu: %s", test, n_tests, what);
    if (progress_lines)
        fprintf(stderr, "hone bench: %s\n", line);
    else
        progress_show(line, (float)(test - 1) / (float)n_tests);
}

static json_t *config_json(const struct bench_config *c)
{
    char test[64];
    int depth = (int)c->values[BENCH_N_DEPTH]->number;
    json_t *j = json_pack("{s:s, s:i, s:i, s:i}", "test", bench_test_name(c->n_prompt, c->n_gen, depth, test, sizeof test),
                          "n_prompt", c->n_prompt, "n_gen", c->n_gen, "n_depth", depth);
    static const struct {
        const char *name;
        enum bench_param p;
    } kept[] = {{"n_batch", BENCH_N_BATCH},   {"n_ubatch", BENCH_N_UBATCH},     {"n_threads", BENCH_N_THREADS},
                {"cpu_mask", BENCH_CPU_MASK}, {"cpu_strict", BENCH_CPU_STRICT}, {"poll", BENCH_POLL},
                {"type_k", BENCH_TYPE_K},     {"type_v", BENCH_TYPE_V}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        json_object_set_new(j, kept[i].name, json_string(c->values[kept[i].p]->text));
    if (!c->values[BENCH_N_THREADS]->number)
        json_object_set_new(j, "n_threads", json_sprintf("%d", cpu_cores()));
    if (c->n_devices > 1) /* only there: what was recorded on one device stays one history */
        json_object_set_new(j, "split",
                            json_pack("{s:i, s:s, s:s, s:s, s:b}", "devices", c->n_devices, "mode",
                                      c->values[BENCH_SPLIT_MODE]->text, "shares", c->values[BENCH_TENSOR_SPLIT]->text, "list",
                                      c->values[BENCH_DEVICES]->text, "processes", follow_comm() != NULL));
    return j;
}

static int begin(void *user, const struct hone_model *m, const struct bench_config *c, struct hone_error *e)
{
    struct running *r = user;
    bench_test_name(c->n_prompt, c->n_gen, (int32_t)c->values[BENCH_N_DEPTH]->number, r->test, sizeof r->test);
    model_args.type_k = c->values[BENCH_TYPE_K]->text; /* the recipe that is recorded has them */
    model_args.type_v = c->values[BENCH_TYPE_V]->text;
    r->journal_rc = cmd_journal_begin(&r->rec, "bench", m, config_json(c));
    return r->journal_rc ? err_set(e, -r->journal_rc, "the journal") : 0;
}

static int sample(void *user, const struct bench_config *c, const struct measure_sample *s, struct hone_error *e)
{
    struct running *r = user;
    char series[128];
    json_t *more = json_pack("{s:I, s:I, s:I, s:b}", "ns", (json_int_t)s->ns, "first_ns", (json_int_t)s->first_ns, "prompt_ns",
                             (json_int_t)s->prompt_ns, "same", s->same);
    snprintf(series, sizeof series, "%s t/s", r->test);
    int rc =
        journal_sample(r->rec.journal, r->rec.run, series, 1e9 * ((double)c->n_prompt + c->n_gen) / (double)s->ns, more, e);
    json_decref(more);
    snprintf(series, sizeof series, "%s ttft ms", r->test);
    return rc ? rc : journal_sample(r->rec.journal, r->rec.run, series, (double)s->first_ns / 1e6, NULL, e);
}

static void say_warnings(const json_t *row)
{
    size_t i;
    json_t *w;
    const char *test = json_string_value(json_object_get(row, "test")),
               *error = json_string_value(json_object_get(row, "error"));
    json_array_foreach(json_object_get(row, "warnings"), i, w)
        fprintf(stderr, "hone: warning: %s: %s\n", test, json_string_value(w));
    if (error)
        fprintf(stderr, "hone: %s failed: %s\n", test, error);
}

/* The exit code that this row alone would give. */
static int row_code(const json_t *row)
{
    const char *verdict = json_string_value(json_object_get(row, "verdict"));
    bool wrong = (verdict && !strcmp(verdict, "different")) || json_is_false(json_object_get(row, "deterministic"));
    return wrong || json_is_string(json_object_get(row, "error")) ? -HONE_ECHECK : 0;
}

/* With the first row: what is refused before it leaves no half a document. */
static void begin_documents(struct running *r)
{
    if (r->begun)
        return;
    r->begun = true;
    bench_write_begin(&r->out);
    bench_write_begin(&r->err);
}

static int row_done(void *user, const json_t *row, bool begun, struct hone_error *e)
{
    struct running *r = user;
    progress_end();
    begin_documents(r);
    bench_write_row(&r->out, row);
    if (r->err.format != BENCH_NONE)
        bench_write_row(&r->err, row);
    else
        say_warnings(row);
    int rc = row_code(row);
    if (begun && cmd_journal_end(&r->rec, rc, json_pack("{s:O}", "row", row)) != rc) {
        r->journal_rc = -HONE_ERESOURCE;
        return err_set(e, HONE_ERESOURCE, "the journal");
    }
    return ferror(stdout) ? err_set(e, HONE_ERESOURCE, "stdout") : 0;
}

static void session(void *user, struct hone_session *s)
{
    (void)user;
    interrupt_session(s);
}

static bool stopped(void *user)
{
    (void)user;
    return interrupted();
}

/* ---- before */

static int refuse_flags(void)
{
    static const char *const names[N_REFUSED] = {"-hf", "-hff", "-hft", "-rpc"};
    for (int i = 0; i < N_REFUSED; i++)
        if (refused[i])
            return cmd_refuse(HONE_EUSAGE, "%s: %s", names[i], reasons[i]);
    if (numa && strcmp(numa, "numactl") != 0)
        return cmd_refuse(HONE_EUSAGE, "--numa %s: hone leaves memory where the system puts it; numactl is possible", numa);
    return 0;
}

/* What the recipe says stands in for what the command line does not: a list's preset would be something else than was asked for. */
static int take_recipe(struct bench_sweep *s, struct hone_error *e)
{
    struct settings said = {0};
    int rc = model_args.recipe ? settings_of_file(&said, model_args.recipe, e) : 0;
    char threads[16];
    snprintf(threads, sizeof threads, "%d", said.n_threads);
    const struct {
        enum bench_param p;
        const char *text;
    } own[] = {{BENCH_N_THREADS, said.n_threads ? threads : ""}, {BENCH_TYPE_K, said.type_k}, {BENCH_TYPE_V, said.type_v}};
    for (size_t i = 0; i < sizeof own / sizeof *own && !rc; i++)
        if (*own[i].text && !s->lists[own[i].p].n)
            rc = bench_sweep_add(s, own[i].p, own[i].text, e);
    return rc;
}

static int read_lists(struct bench_sweep *s)
{
    struct hone_error e = {0};
    int rc = 0;
    s->no_alone = no_alone;
    for (int p = 0; p < N_BENCH_PARAMS && !rc; p++)
        for (char *line = given[p], *end; line && *line && !rc; line = end) {
            end = strchr(line, '\n') + 1;
            end[-1] = 0;
            rc = bench_sweep_add(s, (enum bench_param)p, line, &e);
            end[-1] = '\n';
        }
    if (!rc)
        rc = take_recipe(s, &e);
    if (!rc)
        rc = bench_sweep_finish(s, &e);
    return rc ? cmd_fail(&e) : 0;
}

static int open_writers(struct running *r, const struct bench_sweep *s)
{
    r->out = (struct bench_writer){stdout, BENCH_MD, s, 0};
    r->err = (struct bench_writer){stderr, BENCH_NONE, s, 0};
    if (strcmp(output_format, "text") != 0 && bench_format_by_name(output_format, &r->out.format))
        return cmd_refuse(HONE_EUSAGE, "-o %s: " BENCH_FORMATS " are possible", output_format);
    if (bench_format_by_name(format_err, &r->err.format))
        return cmd_refuse(HONE_EUSAGE, "-oe %s: " BENCH_FORMATS " are possible", format_err);
    return 0;
}

/* llama.cpp's five steps. */
static int set_priority(void)
{
    static const int nice_values[] = {5, 0, -5, -10, -20};
    if (!priority || !setpriority(PRIO_PROCESS, 0, nice_values[priority + 1]))
        return 0;
    return cmd_refuse(HONE_ERESOURCE, "--prio %d: %s", priority, strerror(errno));
}

static int print_devices(void)
{
    int n_backends;
    const struct backend *const *backends = backend_list(&n_backends);
    for (int b = 0; b < n_backends; b++)
        for (int i = 0; i < backends[b]->n_devices(); i++) {
            struct device_info d;
            struct hone_error e = {0};
            if (backends[b]->device(i, &d, &e))
                return cmd_fail(&e);
            printf("%s:%d: %s (%zu MiB, %zu MiB free)\n", backends[b]->name, i, d.name, d.memory_total >> 20,
                   d.memory_free >> 20);
        }
    return output_flush();
}

static int sweep_run(const struct bench_sweep *s, struct running *r)
{
    char cache[4096];
    struct hone_error e = {0};
    struct bench_tally tally;
    struct bench_options o = {.recipe = model_args.recipe,
                              .gates = model_args.set,
                              .plugins = model_args.plugins,
                              .strict = model_args.strict,
                              .repeats = repeats,
                              .delay = delay,
                              .warmup = !no_warmup,
                              .verify = !no_verify,
                              .roof = !no_roof,
                              .warm = warm_defaults(),
                              .cache = no_cache ? NULL : cmd_cache_folder(cache, sizeof cache)};
    struct bench_hooks h = {r, begin, sample, row_done, tell, session, stopped};
    interrupt_session(NULL);
    int rc = cmd_lock_machine();
    if (rc)
        return rc;
    rc = bench_run(s, &o, &h, &tally, &e);
    progress_end();
    if (!rc || rc == HONE_ECANCELED)
        begin_documents(r);
    const char *commit = strchr(hone_build(), '(') + 1;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(commit, "-,"), commit);
    if (r->begun) {
        bench_write_end(&r->out, name, build_number());
        bench_write_end(&r->err, name, build_number());
    }
    if (r->rec.journal)
        cmd_journal_end(&r->rec, rc == HONE_ECANCELED ? EXIT_INTERRUPTED : rc ? -rc : 1, NULL);
    if (r->journal_rc)
        return r->journal_rc;
    if (rc)
        return ferror(stdout) ? output_flush() : cmd_fail(&e);
    if (tally.failed)
        fprintf(stderr, "hone: %zu of %zu tests failed\n", tally.failed, tally.rows);
    return tally.failed || tally.wrong ? -HONE_ECHECK : output_flush();
}

/* A journal that cannot be written is said before anything is measured. */
static int try_journal(void)
{
    struct recording rec = {0};
    char path[4096];
    struct hone_error e = {0};
    if (journal_args.off || !cmd_journal_path(path, sizeof path, true))
        return 0;
    int rc = journal_open(&rec.journal, path, JOURNAL_WRITE, &e) ? cmd_fail(&e) : 0;
    journal_close(rec.journal);
    return rc;
}

static int run(int n_args, char **args)
{
    struct bench_sweep s = {0};
    struct running r = {0};
    struct hone_error e = {0};
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "bench: '%s' is no option", args[0]);
    if (version) {
        printf("hone %s\n", hone_build());
        return output_flush();
    }
    if (list_devices)
        return print_devices();
    int rc = refuse_flags();
    if (!rc)
        rc = read_lists(&s);
    if (!rc)
        rc = open_writers(&r, &s);
    if (!rc && model_args.mask && cpu_mask(model_args.mask, &e))
        rc = cmd_fail(&e);
    if (!rc)
        rc = cmd_load_plugins();
    if (!rc)
        rc = set_priority();
    if (!rc)
        rc = try_journal();
    if (!rc)
        rc = sweep_run(&s, &r);
    bench_sweep_free(&s);
    return rc;
}

const struct command command_bench = {
    "bench",
    "tokens a second, llama-bench's way, with a verdict on the output and what ran",
    "",
    "hone bench -m model.gguf\nhone bench -m model.gguf -p 512 -n 128 -d 0,4096 -ctk f16,q8_0 -o json > rows.json",
    options,
    run,
    "csv, md, sql, none",
};
