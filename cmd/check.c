/* check.c: hone check: every runnable kernel against its reference. A line a kernel, then what is wrong, in full. */
#include "cmd/cmd.h"

#include "base/clock.h"
#include "lab/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *op_name, *kernel_glob, *case_glob, *masks, *seed_text;
static int limit_s = 20, n_workers;
static bool perf, show_unfit;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--op", OPTION_TEXT, &op_name, "OP", "only kernels of this op", 0, 0},
        {"--kernel", OPTION_TEXT, &kernel_glob, "GLOB", "only kernels of this name or variant", 0, 0},
        {"--case", OPTION_TEXT, &case_glob, "GLOB", "only these cases", 0, 0},
        {"--mask", OPTION_TEXT, &masks, "MASKS", "under each of these feature masks: none,avx2,avx2+avx_vnni,avx512,full", 0,
         0},
        {"--seed", OPTION_TEXT, &seed_text, "N", "of the data (default: another each time; it is printed)", 0, 0},
        {"--time-limit", OPTION_INT, &limit_s, "S", "seconds that one case may take", 1, 86400},
        {"--jobs", OPTION_INT, &n_workers, "N", "child processes at once (0: one a core)", 0, 64},
        {"--unfit", OPTION_FLAG, &show_unfit, NULL, "list what does not fit, with the reasons", 0, 0},
        {"--perf", OPTION_FLAG, &perf, NULL, "time what is right, with cold caches, on the shapes of real models too", 0, 0},
        {"-t, --threads", OPTION_INT, &model_args.n_threads, "N", "threads that --perf times (0: one a core)", 0, 1024},
        OUTPUT_OPTION,
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

static void print_kernels(const struct check *c)
{
    struct line *lines = calloc((size_t)c->n_kernels, sizeof *lines);
    if (!lines)
        return;
    for (int i = 0; i < c->n_jobs; i++)
        add_job(&lines[c->jobs[i].kernel], &c->jobs[i]);
    printf("%-46s %6s %6s %6s %8s %10s  %s\n", "kernel", "ok", "faults", "unfit", "not run", "tolerance",
           "masks that it cannot run under");
    for (int k = 0; k < c->n_kernels; k++) {
        const struct line *l = &lines[k];
        printf("%-46s %6d %6d %6d %8d %8.3g %% ", c->kernels[k].name, l->ok, l->faults, l->unfit, l->not_run, 100 * l->worst);
        for (int m = 0; m < c->n_masks; m++)
            if (c->lacks[k * c->n_masks + m])
                printf(" %s", c->masks[m].name);
        if (!c->options.case_name && check_untested(c, k))
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

static int run(int n_args, char **args)
{
    struct check c;
    struct hone_error e = {0};
    struct check_options o = {.op = op_name,
                              .kernel = kernel_glob,
                              .case_name = case_glob,
                              .masks = masks,
                              .limit_ms = limit_s * 1000,
                              .n_workers = n_workers,
                              .perf = perf,
                              .n_threads = model_args.n_threads,
                              .progress = show_progress};
    enum op op;
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "check: '%s' is no option", args[0]);
    if (op_name && op_by_name(op_name, &op))
        return cmd_refuse(HONE_EUSAGE, "check: no op '%s'", op_name);
    int rc = parse_seed(&o.seed);
    if (rc)
        return rc;
    interrupt_session(NULL);
    int64_t start = clock_ns();
    int found = check_run(&c, &o, &e);
    progress_end();
    if (found && found != HONE_ECHECK && found != HONE_ECANCELED)
        return cmd_fail(&e);
    rc = report(&c, (double)(clock_ns() - start) / 1e9);
    check_free(&c);
    return rc ? rc : found == HONE_ECANCELED ? EXIT_INTERRUPTED : -found;
}

const struct command command_check = {
    "check", "every runnable kernel against its reference",
    "",      "hone check --mask none,avx2,avx512,full\nhone check --op mul_mat --kernel 'q4_0_*' --perf",
    options, run,
};
