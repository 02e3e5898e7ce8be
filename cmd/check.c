/* check.c: hone check: every runnable kernel against its reference. A line a kernel, then what is wrong, in full. */
#include "cmd/cmd.h"

#include "base/clock.h"
#include "lab/check.h"
#include "lab/shadow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *op_name, *kernel_glob, *case_glob, *case_file, *seed_text, *capture;
static int limit_s = 20, n_workers, n_prefill = 24, n_decode = 4;
static bool perf, show_unfit, shadow;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--op", OPTION_TEXT, &op_name, "OP", "only kernels of this op", 0, 0},
        {"--kernel", OPTION_TEXT, &kernel_glob, "GLOB", "only kernels of this name or variant", 0, 0},
        {"--case", OPTION_TEXT, &case_glob, "GLOB", "only these cases", 0, 0},
        {"--case-file", OPTION_INPUT, &case_file, "FILE", "replay a captured case; with --capture: write it there", 0, 0},
        {"--seed", OPTION_TEXT, &seed_text, "N", "of the data (default: another each time; it is printed)", 0, 0},
        {"--time-limit", OPTION_INT, &limit_s, "S", "seconds that one case may take", 1, 86400},
        {"--jobs", OPTION_INT, &n_workers, "N", "child processes at once (0: one a core, on devices four)", 0, 64},
        {"--unfit", OPTION_FLAG, &show_unfit, NULL, "list what does not fit, with the reasons", 0, 0},
        {"--perf", OPTION_FLAG, &perf, NULL, "time what is right, with cold caches, on the shapes of real models too", 0, 0},
        {"--shadow", OPTION_FLAG, &shadow, NULL, "with -m: each kernel of the running graph beside its reference", 0, 0},
        {"--capture", OPTION_TEXT, &capture, "NODE", "with -m: the first node of this name (a glob) becomes a case file", 0, 0},
        {"--n-prefill", OPTION_INT, &n_prefill, "N", "with -m: tokens of the first prompt", 2, 65536},
        {"--n-decode", OPTION_INT, &n_decode, "N", "with -m: decode steps behind each prompt", 0, 65536},
        OUTPUT_OPTION,
        LOCK_OPTION,
        JOURNAL_OPTIONS,
        SESSION_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- text */

struct line {
    int ok, faults, unfit, not_run;
    double worst; /* largest share of the tolerance */
};

static void add_job(struct line *l, const struct check_job *j)
{
    const struct trial_result *r = &j->result;
    l->ok += r->status == TRIAL_OK;
    l->faults += r->status == TRIAL_FAULT;
    l->unfit += r->status == TRIAL_UNFIT;
    l->not_run += r->status == TRIAL_NOT_RUN;
    if (r->status == TRIAL_OK && r->tolerance > 0)
        l->worst = fmax(l->worst, r->nmse / r->tolerance);
}

/* A line a kernel, malloc'd; NULL: no memory. */
static struct line *sum_up(const struct check *c)
{
    struct line *lines = calloc((size_t)c->n_kernels + 1, sizeof *lines);
    for (int i = 0; i < c->n_jobs && lines; i++)
        add_job(&lines[c->jobs[i].kernel], &c->jobs[i]);
    return lines;
}

static void print_kernels(const struct check *c)
{
    struct line *lines = sum_up(c);
    if (!lines)
        return;
    printf("%-46s %6s %6s %6s %8s %10s  %s\n", "kernel", "ok", "faults", "unfit", "not run", "of bound",
           "masks that it cannot run under");
    for (int k = 0; k < c->n_kernels; k++) {
        const struct line *l = &lines[k];
        if (!l->ok && !l->faults && !l->not_run && (c->options.case_name || c->options.case_file))
            continue; /* the cases that were asked for are not this kernel's */
        printf("%-46s %6d %6d %6d %8d %8.3g %% ", c->kernels[k].name, l->ok, l->faults, l->unfit, l->not_run, 100 * l->worst);
        for (int m = 0; m < c->n_masks; m++)
            if (c->lacks[k * c->n_masks + m])
                printf(" %s", c->masks[m].name);
        if (check_untested(c, k))
            printf("  FAULT: no case fits it");
        putchar('\n');
    }
    free(lines);
}

static void print_fault(const struct check *c, const struct check_job *j)
{
    const struct trial_result *r = &j->result;
    char replay[512];
    printf("\nFAULT %s: %s, case %s, mask %s", fault_word(r->fault), c->kernels[j->kernel].name, c->cases[j->tried].name,
           c->masks[j->mask].name);
    if (r->layout[0])
        printf(", weight in %s", r->layout);
    if (r->threads)
        printf(", %d thread%s, call %d%s", r->threads, r->threads == 1 ? "" : "s", r->call, r->data ? " with other data" : "");
    printf("\n    %s\n", r->message);
    if (r->fault == FAULT_NMSE || r->fault == FAULT_VALUE)
        printf("    nmse %.3g, tolerance %.3g\n", r->nmse, r->tolerance);
    printf("    %s\n", check_replay(c, j, replay, sizeof replay));
}

static void print_faults(const struct check *c)
{
    for (int i = 0; i < c->n_jobs; i++)
        if (c->jobs[i].result.status == TRIAL_FAULT)
            print_fault(c, &c->jobs[i]);
    int shown = 0;
    for (int i = 0; i < c->n_jobs; i++) {
        const struct check_job *j = &c->jobs[i];
        if (j->result.status == TRIAL_NOT_RUN && shown++ < 100)
            printf("%snot run: %s, case %s, mask %s%s%s\n", shown == 1 ? "\n" : "", c->kernels[j->kernel].name,
                   c->cases[j->tried].name, c->masks[j->mask].name, j->result.message[0] ? ": " : "", j->result.message);
    }
    if (shown > 100)
        printf("not run: %d more\n", shown - 100);
}

static void print_unfit(const struct check *c)
{
    printf("\n");
    for (int i = 0; i < c->n_jobs; i++) {
        const struct check_job *j = &c->jobs[i];
        if (j->result.status == TRIAL_UNFIT)
            printf("unfit: %s, case %s, mask %s: %s\n", c->kernels[j->kernel].name, c->cases[j->tried].name,
                   c->masks[j->mask].name, j->result.message);
    }
}

static void print_perf(const struct check *c)
{
    printf("\n%-46s %-26s %-7s %10s %10s %8s %6s %9s\n", "kernel", "case", "verdict", "cold us", "warm us", "GB/s", "% roof",
           "GFLOP/s");
    for (int i = 0; i < c->n_jobs; i++) {
        const struct check_job *j = &c->jobs[i];
        const struct perf_result *p = &j->perf;
        if (j->result.status != TRIAL_OK && j->result.status != TRIAL_FAULT)
            continue;
        printf("%-46s %-26s %-7s", c->kernels[j->kernel].name, c->cases[j->tried].name, p->samples ? "ok" : "FAULT");
        if (p->samples) {
            double rate = (p->cost.read + p->cost.written) / p->cold_ns;
            printf(" %10.2f %10.2f %8.2f %6.1f %9.2f", p->cold_ns / 1e3, p->warm_ns / 1e3, rate,
                   c->roof > 0 ? 1e11 * rate / c->roof : 0, p->cost.flops / p->cold_ns);
        }
        putchar('\n');
    }
    printf("read roof %.1f GB/s with %d thread(s); GB/s, %% roof and GFLOP/s are of the cold run\n", c->roof / 1e9,
           c->options.n_threads);
}

static void print_text(const struct check *c, double seconds)
{
    print_kernels(c);
    if (perf)
        print_perf(c);
    if (show_unfit)
        print_unfit(c);
    print_faults(c);
    printf("\nseed %llu; masks", (unsigned long long)c->options.seed);
    for (int m = 0; m < c->n_masks; m++)
        printf(" %s", c->masks[m].name);
    printf("; threads 1 2 3 7; %.1f s\n%d kernels: %d ok, %d faults, %d unfit, %d not run", seconds, c->n_kernels, c->n_ok,
           c->n_faults, c->n_unfit, c->n_not_run);
    if (c->n_untested)
        printf(", %d kernel(s) that no case fits", c->n_untested);
    putchar('\n');
}

/* ---- */

static int show_progress(void *user, float done)
{
    (void)user;
    return progress_show("checking", done);
}

static int report(const struct check *c, double seconds)
{
    int rc = 0;
    if (!output_json()) {
        print_text(c, seconds);
        return output_flush();
    }
    if (!strcmp(output_format, "json"))
        return output_print(check_json(c));
    for (int i = 0; i < c->n_jobs && !rc; i++)
        rc = output_print(check_job_json(c, &c->jobs[i]));
    return rc ? rc : output_print(check_summary_json(c));
}

static int parse_seed(uint64_t *seed)
{
    char *end;
    *seed = (uint64_t)clock_ns() * 0x9e3779b97f4a7c15u >> 32;
    if (!seed_text)
        return 0;
    *seed = strtoull(seed_text, &end, 0);
    return end == seed_text || *end || *seed_text == '-' ? cmd_refuse(HONE_EUSAGE, "check: --seed %s is no number", seed_text)
                                                         : 0;
}

/* ---- the journal */

/* One kernel: what came of its jobs, and those that are at fault in full. */
static json_t *kernel_record(const struct check *c, int k, const struct line *l)
{
    json_t *faults = json_array();
    for (int i = 0; i < c->n_jobs; i++)
        if (c->jobs[i].kernel == k && c->jobs[i].result.status == TRIAL_FAULT && json_array_size(faults) < 20)
            json_array_append_new(faults, check_job_json(c, &c->jobs[i]));
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:b, s:o}", "kernel", c->kernels[k].name, "ok", l->ok, "faults", l->faults, "unfit", l->unfit,
                     "not_run", l->not_run, "worst_of_tolerance", l->worst, "untested", check_untested(c, k), "first_faults", faults);
}

static int record_perf(const struct recording *rec, const struct check *c, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < c->n_jobs && !rc; i++) {
        const struct check_job *j = &c->jobs[i];
        char series[300];
        if (!j->perf.samples)
            continue;
        snprintf(series, sizeof series, "%s %s %s cold us", c->kernels[j->kernel].name, c->cases[j->tried].name, c->masks[j->mask].name);
        json_t *more = json_pack("{s:f, s:f, s:i}", "warm_us", j->perf.warm_ns / 1e3, "bytes", j->perf.cost.read + j->perf.cost.written, "samples",
                                 j->perf.samples);
        rc = journal_sample(rec->journal, rec->run, series, j->perf.cold_ns / 1e3, more, e);
        json_decref(more);
    }
    return rc;
}

static int record_cases(const struct recording *rec, const struct check *c)
{
    struct hone_error e = {0};
    struct line *lines = sum_up(c);
    if (!rec->journal) {
        free(lines);
        return 0;
    }
    int rc = lines ? journal_batch_begin(rec->journal, &e) : err_set(&e, HONE_ERESOURCE, "no memory for the journal");
    for (int k = 0; k < c->n_kernels && !rc; k++) {
        if (!lines[k].ok && !lines[k].faults && !lines[k].not_run && !check_untested(c, k))
            continue;
        json_t *body = kernel_record(c, k, &lines[k]);
        rc = journal_record(rec->journal, rec->run, "check", body, NULL, &e);
        json_decref(body);
    }
    if (!rc)
        rc = record_perf(rec, c, &e);
    const char *word = c->n_faults || c->n_untested ? "faults" : c->n_not_run ? "incomplete" : "right";
    json_t *verdict = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:I}", "verdict", word, "ok", c->n_ok, "faults", c->n_faults, "unfit", c->n_unfit,
                                "not_run", c->n_not_run, "untested", c->n_untested, "seed", (json_int_t)c->options.seed);
    if (!rc)
        rc = journal_record(rec->journal, rec->run, "verdict", verdict, NULL, &e);
    int ended = journal_batch_end(rec->journal, &e);
    json_decref(verdict);
    free(lines);
    return rc || ended ? cmd_fail(&e) : 0;
}

static int record_shadow(const struct recording *rec, const struct shadow *s)
{
    struct hone_error e = {0};
    int rc = journal_batch_begin(rec->journal, &e);
    for (int i = 0; i < s->n_kernels && !rc; i++) {
        const struct shadow_kernel *k = &s->kernels[i];
        json_t *body = json_pack("{s:s, s:i, s:i, s:f, s:b}", "kernel", k->kernel, "compared", k->compared, "faults", k->faults, "worst_of_tolerance",
                                 k->worst, "reference", k->is_reference);
        rc = journal_record(rec->journal, rec->run, "check", body, NULL, &e);
        json_decref(body);
    }
    json_t *verdict = json_pack("{s:s, s:i, s:i}", "verdict", s->n_faults ? "faults" : "right", "compared", s->n_compared, "faults", s->n_faults);
    if (!rc)
        rc = journal_record(rec->journal, rec->run, "verdict", verdict, NULL, &e);
    int ended = journal_batch_end(rec->journal, &e);
    json_decref(verdict);
    return rc || ended ? cmd_fail(&e) : 0;
}

/* ---- in the running graph */

/* " on device 1", of a model that is split. */
static const char *on_device(const struct shadow_node *n, int n_devices, char *text, size_t size)
{
    text[0] = 0;
    if (n_devices > 1)
        snprintf(text, size, " on device %d", n->device);
    return text;
}

static void print_shadow_node(const struct shadow *s, const struct shadow_node *n)
{
    char text[32];
    printf("\nFAULT %s: node %s, %s, in the %s%s\n    %s\n", fault_word(n->fault), n->node, n->kernel, n->phase,
           on_device(n, s->n_devices, text, sizeof text), n->message);
    if (n->fault == FAULT_NMSE || n->fault == FAULT_VALUE)
        printf("    nmse %.3g, tolerance %.3g\n", n->nmse, n->tolerance);
}

static void print_shadow(const struct shadow *s)
{
    char text[32];
    printf("%-46s %8s %8s %10s\n", "kernel", "runs", "faults", "of bound");
    for (int i = 0; i < s->n_kernels; i++) {
        const struct shadow_kernel *k = &s->kernels[i];
        if (k->is_reference)
            printf("%-46s %8d %8d %10s\n", k->kernel, k->compared, k->faults, "itself");
        else
            printf("%-46s %8d %8d %8.3g %%\n", k->kernel, k->compared, k->faults, 100 * k->worst);
    }
    printf("\n%-34s %-40s %-16s %10s %10s\n", "nearest to their tolerance", "kernel", "in the", "nmse", "tolerance");
    for (int i = 0; i < s->n_worst; i++)
        printf("%-34s %-40s %-16s %10.3g %10.3g%s\n", s->worst[i].tensor, s->worst[i].kernel, s->worst[i].phase,
               s->worst[i].nmse, s->worst[i].tolerance, on_device(&s->worst[i], s->n_devices, text, sizeof text));
    for (int i = 0; i < s->n_faults && i < SHADOW_FAULTS; i++)
        print_shadow_node(s, &s->faults[i]);
    if (s->n_faults > SHADOW_FAULTS)
        printf("\nand %d more\n", s->n_faults - SHADOW_FAULTS);
    if (s->nan.node[0]) {
        char place[96];
        snprintf(place, sizeof place, "row (%lld, %lld, %lld), column %lld", (long long)s->nan.row[0], (long long)s->nan.row[1],
                 (long long)s->nan.row[2], (long long)s->nan.column);
        printf("\nFAULT nan: node %s, %s, in the %s\n    %s: %s of %s\n", s->nan.node, s->nan.kernel, s->nan.phase,
               s->nan.message, place, s->nan.tensor);
    }
    if (s->captured[0])
        printf("\ncaptured node %s in %s\n", s->captured, case_file);
    printf("\n%d runs of nodes compared, %d faults\n", s->n_compared, s->n_faults);
    if (s->n_devices > 1)
        printf("over %d devices, of which %d %s watched%s; collectives are left to the comparison of tokens and logits\n",
               s->n_devices, s->n_watched, s->n_watched == 1 ? "was" : "were",
               s->n_watched < s->n_devices ? ": the others are in other processes" : "");
}

/* A name for the case file from the glob: what cannot be in a name becomes '_'. */
static const char *capture_path(char *path, size_t size)
{
    if (case_file)
        return case_file;
    snprintf(path, size, "%.100s.case", capture);
    for (char *p = path; *p; p++)
        if (strchr("/*?[]\\ ", *p))
            *p = '_';
    return case_file = path;
}

static int run_shadow(void)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    static char path[128];
    struct shadow *found = calloc(1, sizeof *found);
    int n_ctx = 2 * (n_prefill + n_decode) + 8;
    model_args.n_ctx = model_args.n_ctx ? model_args.n_ctx : n_ctx;
    if (!found)
        return cmd_refuse(HONE_ERESOURCE, "check: no memory");
    struct recording rec = {0};
    int rc = capture ? files_check_output(capture_path(path, sizeof path), case_file == path ? "--capture" : "--case-file") : 0, code = 0;
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc)
        rc = cmd_journal_begin(&rec, "check", m,
                               json_pack("{s:b, s:i, s:i, s:i}", "shadow", 1, "n_prefill", n_prefill, "n_decode", n_decode, "threads",
                                         model_args.n_threads));
    if (!rc) {
        struct shadow_options o = {.n_prefill = n_prefill, .n_decode = n_decode, .capture = capture, .progress = show_progress};
        o.capture_path = capture ? case_file : NULL;
        interrupt_session(s);
        code = shadow_run(found, s, m, &o, &e);
        progress_end();
        if (code && code != HONE_ECHECK)
            rc = cmd_fail(&e);
        else
            rc = record_shadow(&rec, found);
        if (!rc && output_json())
            rc = output_print(shadow_json(found));
        else if (!rc)
            print_shadow(found);
    }
    free(found);
    hone_session_free(s);
    hone_model_close(m);
    return cmd_journal_end(&rec, rc ? rc : -code, NULL);
}

/* ---- */

/* The --plugin options again, for a line that repeats a job; NULL: none. malloc'd. */
static char *plugin_words(void)
{
    char *words = NULL;
    size_t size;
    FILE *f = model_args.plugins ? open_memstream(&words, &size) : NULL;
    for (const char *p = model_args.plugins; f && *p;) {
        size_t n = strcspn(p, "\n");
        fprintf(f, "%s--plugin '%.*s'", p == model_args.plugins ? "" : " ", (int)n, p);
        p += n + (p[n] == '\n');
    }
    if (f)
        fclose(f);
    return words;
}

static int run_cases(void)
{
    struct check c;
    struct hone_error e = {0};
    struct check_options o = {.op = op_name,
                              .kernel = kernel_glob,
                              .case_name = case_glob,
                              .masks = model_args.mask,
                              .case_file = case_file,
                              .limit_ms = limit_s * 1000,
                              .n_workers = n_workers,
                              .perf = perf,
                              .n_threads = model_args.n_threads,
                              .progress = show_progress};
    enum op op;
    if (op_name && op_by_name(op_name, &op))
        return cmd_refuse(HONE_EUSAGE, "check: no op '%s'", op_name);
    int rc = cmd_refuse_split("check", "without a model there is nothing to split");
    rc = rc ? rc : parse_seed(&o.seed);
    if (!rc)
        rc = cmd_load_plugins();
    if (rc)
        return rc;
    struct recording rec;
    rc = cmd_journal_begin(&rec, "check", NULL,
                           json_pack("{s:s?, s:s?, s:s?, s:s?, s:s?, s:b, s:i, s:i}", "op", op_name, "kernel", kernel_glob, "case", case_glob, "case_file",
                                     case_file, "masks", model_args.mask, "perf", perf, "threads", model_args.n_threads, "time_limit", limit_s));
    if (rc)
        return rc;
    char *replay = plugin_words();
    o.replay = replay;
    interrupt_session(NULL);
    int64_t start = clock_ns();
    int found = check_run(&c, &o, &e);
    progress_end();
    if (found && found != HONE_ECHECK && found != HONE_ECANCELED) {
        rc = cmd_fail(&e);
    } else {
        int kept = record_cases(&rec, &c);
        rc = report(&c, (double)(clock_ns() - start) / 1e9);
        rc = kept ? kept : rc ? rc : found == HONE_ECANCELED ? EXIT_INTERRUPTED : -found;
        check_free(&c);
    }
    free(replay);
    return cmd_journal_end(&rec, rc, NULL);
}

static int run(int n_args, char **args)
{
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "check: '%s' is no option", args[0]);
    if ((shadow || capture) && !model_args.model)
        return cmd_refuse(HONE_EUSAGE, "check: --shadow and --capture watch a running model: give -m FILE");
    interrupt_session(NULL);
    int rc = perf ? cmd_lock_machine() : 0;
    return rc ? rc : model_args.model ? run_shadow() : run_cases();
}

const struct command command_check = {
    "check",
    "every runnable kernel against its reference",
    "",
    "hone check --mask none,avx2,avx512,full\n  hone check --op mul_mat --kernel 'q4_0_*' --perf\n"
    "  hone check -m model.gguf --shadow\n  hone check -m model.gguf --capture 'ffn_up-3' --case-file up.case\n"
    "  hone check --case-file up.case --perf",
    options,
    run,
};
