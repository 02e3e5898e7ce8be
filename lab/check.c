/* check.c: see check.h.
 *
 * All jobs are listed before the first runs, so that what was not run is known by name. The child keeps the specimen of the
 * case at hand, with what the reference gave, for all kernels and masks that meet it; the parent only reads the table. A mask
 * decides which kernels may run (their `needs`) and what they find when they ask the processor themselves; it is set anew for
 * each job.
 *
 * Devices are opened by the children alone: a driver that was opened before a fork does not work behind it. So whether there is
 * one is asked in a child that does nothing else. A kernel that breaks its device ends its child, and the next one begins with a
 * device that works. Few children work with devices at once: each opens the driver and shares the device by slices of time, and
 * sixteen did not get to the end of one small case within five seconds, where four run 449 cases in two.
 *
 * Seeds: a case's data depend on the check's seed and the case's name and op, not on which other cases were asked for, so a
 * fault is replayed by naming its case. */
#include "lab/check.h"

#include "base/bandwidth.h"
#include "base/cpu.h"
#include "graph/fuse_cases.h"
#include "graph/plan.h"
#include "lab/case_file.h"
#include "lab/isolate.h"
#include "lab/on_device.h"
#include "lab/shapes.h"

#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 20000, MAX_LAYOUTS = 128, BROKE_DEVICE = 97, DEVICE_WORKERS = 4 };
enum { FROM_OP, FROM_SHAPES, FROM_FUSION, FROM_FILE };

/* ---- what is to be done */

static uint64_t text_hash(const char *text, uint64_t h)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u; /* FNV-1a */
    return h;
}

static int list_masks(struct check *c, struct hone_error *e)
{
    const char *p = c->options.masks ? c->options.masks : "full";
    int rc = 0;
    while (!rc && *p) {
        size_t n = strcspn(p, ",");
        struct check_mask *m = &c->masks[c->n_masks];
        if (c->n_masks == CHECK_MASKS)
            return err_set(e, HONE_EUSAGE, "--mask: more than %d masks", CHECK_MASKS);
        if (n == 0 || n >= sizeof m->name)
            return err_set(e, HONE_EUSAGE, "--mask: '%.*s' is no mask", (int)(n > 60 ? 60 : n), p);
        memcpy(m->name, p, n);
        char words[sizeof m->name];
        memcpy(words, m->name, sizeof words);
        for (char *w = words; *w; w++)
            *w = *w == '+' ? ',' : *w;
        rc = cpu_mask(words, e);
        m->features = cpu_features();
        c->n_masks++;
        p += n + (p[n] == ',');
    }
    struct hone_error ignored = {0};
    cpu_mask("full", &ignored);
    return rc ? rc : c->n_masks ? 0 : err_set(e, HONE_EUSAGE, "--mask: no mask is named");
}

static bool kernel_wanted(const struct check_options *o, const struct check_kernel *k)
{
    const struct op_desc *op = op_get(k->kernel->op);
    if (op->alias || (o->op && strcmp(o->op, op->name) != 0))
        return false;
    return !o->kernel || !fnmatch(o->kernel, k->name, 0) || !fnmatch(o->kernel, k->kernel->variant, 0);
}

static int add_kernels(struct check *c, const struct backend *b, const struct kernel *const *list, int n, struct hone_error *e)
{
    struct check_kernel *all = arena_array(&c->arena, (size_t)(c->n_kernels + n), sizeof *all);
    if (!all)
        return err_set(e, HONE_ERESOURCE, "no memory for a list of kernels");
    if (c->n_kernels)
        memcpy(all, c->kernels, (size_t)c->n_kernels * sizeof *all);
    c->kernels = all;
    for (int i = 0; i < n; i++) {
        struct check_kernel k = {.backend = b, .kernel = list[i]};
        kernel_name(b, list[i], k.name, sizeof k.name);
        if (kernel_wanted(&c->options, &k))
            all[c->n_kernels++] = k;
    }
    return 0;
}

/* Whether b has a device that its kernels run on. */
static bool has_device(const struct backend *b)
{
    if (b->host)
        return true;
    int status = 0;
    pid_t child = fork();
    if (!child)
        _exit(b->n_devices() > 0 && b->features(0) ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int list_kernels(struct check *c, struct hone_error *e)
{
    int n_backends, n, rc = 0;
    const struct backend *const *backends = backend_list(&n_backends);
    if (c->options.kernels)
        rc = add_kernels(c, backends[0], c->options.kernels, c->options.n_kernels, e);
    for (int b = 0; b < n_backends && !rc && !c->options.kernels; b++)
        if (has_device(backends[b])) {
            const struct kernel *const *list = backends[b]->kernels(&n);
            rc = add_kernels(c, backends[b], list, n, e);
        }
    if (!rc && !c->n_kernels)
        rc = err_set(e, HONE_EUSAGE, "no kernel matches: op %s, kernel %s", c->options.op ? c->options.op : "any",
                     c->options.kernel ? c->options.kernel : "any");
    return rc;
}

static bool op_has_kernel(const struct check *c, enum op op)
{
    for (int i = 0; i < c->n_kernels; i++)
        if (c->kernels[i].kernel->op == op)
            return true;
    return false;
}

static void add_case(struct check *c, const struct check_case *from, const char *name)
{
    if (c->options.case_name && fnmatch(c->options.case_name, name, 0))
        return;
    struct check_case *k = &c->cases[c->n_cases++];
    *k = *from;
    snprintf(k->name, sizeof k->name, "%s", name);
}

static void list_op_cases(struct check *c, enum op op)
{
    int n;
    for (int i = 0; i < op_get(op)->n_cases; i++)
        add_case(c, &(struct check_case){.op = op, .kind = FROM_OP, .index = i}, op_get(op)->cases[i].name);
    const struct op_case *shapes = shapes_of(op, &n);
    for (int i = 0; i < n && c->options.perf; i++)
        add_case(c, &(struct check_case){.op = op, .kind = FROM_SHAPES, .index = i}, shapes[i].name);
}

/* Which op a fusion's case is of shows once it is built. */
static int list_fusion_cases(struct check *c, enum fusion_id f, struct hone_error *e)
{
    struct arena arena = {0};
    struct fuse_case *built = malloc(sizeof *built);
    int rc = built ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a list of cases");
    for (int i = 0; i < fuse_n_cases(f) && !rc; i++) {
        rc = fuse_case_build(built, f, i, &arena, e);
        if (!rc && op_has_kernel(c, built->fused->op))
            add_case(c, &(struct check_case){.op = built->fused->op, .kind = FROM_FUSION, .fusion = (int)f, .index = i},
                     built->name);
        arena_reset(&arena);
    }
    arena_free(&arena);
    free(built);
    return rc;
}

/* The one case of a file, read here once to know what it is. */
static int list_file_case(struct check *c, struct hone_error *e)
{
    struct specimen s;
    int rc = specimen_from_file(&s, c->options.case_file, e);
    if (rc)
        return rc;
    add_case(c, &(struct check_case){.op = s.node->op, .kind = FROM_FILE}, s.name);
    if (!op_has_kernel(c, s.node->op))
        rc = err_set(e, HONE_EUSAGE, "%.200s is a case of op %s, for which no kernel matches", c->options.case_file,
                     op_get(s.node->op)->name);
    specimen_free(&s);
    return rc;
}

static int list_cases(struct check *c, struct hone_error *e)
{
    size_t most = 1;
    int n, rc = 0;
    for (int op = 0; op < N_OPS; op++) {
        shapes_of((enum op)op, &n);
        most += (size_t)(n + op_get((enum op)op)->n_cases);
    }
    for (int f = 0; f < N_FUSIONS; f++)
        most += (size_t)fuse_n_cases((enum fusion_id)f);
    c->cases = arena_array(&c->arena, most, sizeof *c->cases);
    if (!c->cases)
        return err_set(e, HONE_ERESOURCE, "no memory for a list of cases");
    if (c->options.case_file)
        return list_file_case(c, e);
    for (int op = 0; op < N_OPS; op++)
        if (op_has_kernel(c, (enum op)op))
            list_op_cases(c, (enum op)op);
    for (int f = 0; f < N_FUSIONS && !rc; f++)
        rc = list_fusion_cases(c, (enum fusion_id)f, e);
    if (!rc && !c->n_cases && c->options.case_name)
        rc = err_set(e, HONE_EUSAGE, "no case matches '%s'", c->options.case_name);
    return rc;
}

/* Masks are of the processor: a device's kernel runs under the first alone. */
static int masks_of(const struct check *c, int kernel)
{
    return c->kernels[kernel].backend->host ? c->n_masks : 1;
}

/* Tells each of the check's jobs to `each`: those of the host, then those of devices, by case, then kernel, then mask. */
static void each_job(struct check *c, void (*each)(struct check *c, int n, int kernel, int mask, int tried))
{
    int n = 0;
    for (int host = 1; host >= 0; host--)
        for (int i = 0; i < c->n_cases; i++)
            for (int k = 0; k < c->n_kernels; k++)
                for (int m = 0; m < masks_of(c, k) && c->kernels[k].kernel->op == c->cases[i].op; m++)
                    if (c->kernels[k].backend->host == host && !c->lacks[k * c->n_masks + m])
                        each(c, n++, k, m, i);
}

static void job_count(struct check *c, int n, int kernel, int mask, int tried)
{
    (void)kernel, (void)mask, (void)tried;
    c->n_jobs = n + 1;
}

static void job_write(struct check *c, int n, int kernel, int mask, int tried)
{
    c->jobs[n] = (struct check_job){.kernel = kernel, .mask = mask, .tried = tried};
}

static int list_jobs(struct check *c, struct hone_error *e)
{
    c->lacks = arena_array(&c->arena, (size_t)c->n_kernels * (size_t)c->n_masks, sizeof *c->lacks);
    if (!c->lacks)
        return err_set(e, HONE_ERESOURCE, "no memory for a list of kernels");
    for (int k = 0; k < c->n_kernels; k++)
        for (int m = 0; m < c->n_masks; m++)
            c->lacks[k * c->n_masks + m] = c->kernels[k].backend->host && c->kernels[k].kernel->needs & ~c->masks[m].features;
    each_job(c, job_count);
    c->job_bytes = (size_t)c->n_jobs * sizeof *c->jobs;
    c->jobs = shared_alloc(c->job_bytes);
    if (!c->jobs)
        return err_set(e, HONE_ERESOURCE, "no memory for %d results", c->n_jobs);
    each_job(c, job_write);
    return 0;
}

/* ---- in the child */

struct bench {
    struct check *c;
    int first, n; /* the jobs at hand */
    struct trial_pools pools;
    struct pool *timed;                        /* the threads that perf times */
    struct {
        const struct layout *list[MAX_LAYOUTS];
        int n;
    } layouts[2]; /* that some kernel wants: of a host; of a device */
    struct specimen specimen; /* of case `at` */
    int at, rc;               /* -1: none; why it could not be made */
    struct hone_error error;
};

static void add_layout(struct bench *b, const struct backend *on, const struct layout *l)
{
    int which = !on->host, n = b->layouts[which].n;
    for (int i = 0; i < n; i++)
        if (b->layouts[which].list[i] == l)
            return;
    if (l && n < MAX_LAYOUTS)
        b->layouts[which].list[b->layouts[which].n++] = l;
}

/* Every layout that a weight could be in, in memory of a host or a device: that some kernel of the build wants there, asked for or not. */
static void find_layouts(struct bench *b)
{
    int n_backends, n;
    const struct backend *const *backends = backend_list(&n_backends);
    for (int i = 0; i < n_backends; i++) {
        const struct kernel *const *list = backends[i]->kernels(&n);
        for (int k = 0; k < n; k++) {
            add_layout(b, backends[i], list[k]->wants.layout);
            for (int f = 0; f < N_FORMATS && list[k]->wants.layout_for; f++)
                add_layout(b, backends[i], list[k]->wants.layout_for((enum format_id)f));
        }
    }
    for (int k = 0; k < b->c->n_kernels; k++)
        add_layout(b, b->c->kernels[k].backend, b->c->kernels[k].kernel->wants.layout);
}

static int child_start(void *user, struct hone_error *e)
{
    struct bench *b = user;
    int threads = b->c->options.n_threads;
    b->at = -1;
    find_layouts(b);
    int rc = trial_pools_create(&b->pools, e);
    if (!rc && b->c->options.perf) {
        b->timed = pool_create(threads, 100, e);
        rc = b->timed ? 0 : HONE_ERESOURCE;
    }
    return rc;
}

static void child_end(void *user)
{
    struct bench *b = user;
    if (b->at >= 0 && !b->rc)
        specimen_free(&b->specimen);
    trial_pools_free(&b->pools);
    pool_free(b->timed);
}

static int make_specimen(struct bench *b, const struct check_case *k)
{
    int n;
    uint64_t seed = text_hash(k->name, text_hash(op_get(k->op)->name, b->c->options.seed ^ 0xcbf29ce484222325u));
    switch (k->kind) {
    case FROM_FUSION:
        return specimen_from_fusion(&b->specimen, (enum fusion_id)k->fusion, k->index, seed, &b->error);
    case FROM_FILE:
        return specimen_from_file(&b->specimen, b->c->options.case_file, &b->error);
    case FROM_SHAPES:
        return specimen_from_shape(&b->specimen, k->op, &shapes_of(k->op, &n)[k->index], seed, &b->error);
    default:
        return specimen_from_case(&b->specimen, k->op, &op_get(k->op)->cases[k->index], seed, &b->error);
    }
}

static void take_case(struct bench *b, int i)
{
    if (b->at == i)
        return;
    if (b->at >= 0 && !b->rc)
        specimen_free(&b->specimen);
    b->at = i;
    b->error = (struct hone_error){0};
    b->rc = make_specimen(b, &b->c->cases[i]);
}

static void set_mask(const struct check_mask *m)
{
    char words[sizeof m->name];
    struct hone_error ignored = {0};
    memcpy(words, m->name, sizeof words);
    for (char *w = words; *w; w++)
        *w = *w == '+' ? ',' : *w;
    cpu_mask(words, &ignored);
}

/* Of a case in the size of a model: a weight in another format than k's layout needs not be made to see that k does not fit. */
static bool format_fits(const struct kernel *k, const struct check_case *tried, struct reason *why)
{
    int n;
    if (tried->kind != FROM_SHAPES || !k->wants.layout)
        return true;
    const struct op_case *spec = &shapes_of(tried->op, &n)[tried->index];
    const struct layout *l;
    struct tensor w = {.kind = TENSOR_WEIGHT};
    tensor_shape(&w, spec->src[0].format, 2, spec->src[0].ne);
    return kernel_layout(k, &w, &l, why);
}

static void run_job(void *user, int i)
{
    struct bench *b = user;
    struct check_job *j = &b->c->jobs[b->first + i];
    const struct check_kernel *k = &b->c->kernels[j->kernel];
    struct reason why;
    if (!format_fits(k->kernel, &b->c->cases[j->tried], &why)) {
        snprintf(j->result.message, sizeof j->result.message, "%s", why.text);
        j->result.status = TRIAL_UNFIT;
        return;
    }
    take_case(b, j->tried);
    if (b->rc) {
        snprintf(j->result.message, sizeof j->result.message, "the case could not be made: %.200s", b->error.message);
        return;
    }
    set_mask(&b->c->masks[j->mask]);
    unsigned features = k->backend->host ? b->c->masks[j->mask].features : k->backend->features(0);
    if (!trial_fits(k->backend, k->kernel, &b->specimen, features, &why)) {
        snprintf(j->result.message, sizeof j->result.message, "%s", why.text);
        j->result.status = TRIAL_UNFIT;
        return;
    }
    int where = !k->backend->host;
    trial_run(&j->result, &b->specimen, k->backend, k->kernel, b->layouts[where].list, b->layouts[where].n, &b->pools);
    if (j->result.status == TRIAL_FAULT && !k->backend->host && !on_device_works(k->backend, 0)) {
        fprintf(stderr, "%s\n", j->result.message); /* what job_died tells */
        fflush(stderr);
        _exit(BROKE_DEVICE);
    }
    struct hone_error e = {0};
    if (j->result.status == TRIAL_OK && b->timed && perf_measure(&j->perf, &b->specimen, k->backend, k->kernel, b->timed, &e)) {
        j->result.status = TRIAL_FAULT;
        j->result.fault = FAULT_REFUSED;
        snprintf(j->result.message, sizeof j->result.message, "%.230s", e.message);
    }
}

static int job_group(void *user, int i)
{
    const struct bench *b = user;
    return b->c->jobs[b->first + i].tried;
}

/* ---- in the parent */

static void job_died(void *user, int i, const struct casualty *c)
{
    const struct bench *b = user;
    struct trial_result *r = &b->c->jobs[b->first + i].result;
    r->status = TRIAL_FAULT;
    r->fault = c->timed_out ? FAULT_HANG : FAULT_CRASH;
    char how[64];
    if (c->timed_out)
        snprintf(how, sizeof how, "did not end in time");
    else if (c->signal)
        snprintf(how, sizeof how, "ended by signal %d (%s)", c->signal,
                 sigabbrev_np(c->signal) ? sigabbrev_np(c->signal) : "?");
    else
        snprintf(how, sizeof how, "ended its process with exit code %d", c->exit_code);
    const char *line = c->said + strlen(c->said);
    while (line > c->said && line[-1] == '\n')
        line--;
    int n = (int)(line - c->said);
    snprintf(r->message, sizeof r->message, "%s%s%.*s", how, n ? ": " : "", n > 160 ? 160 : n, n > 160 ? line - 160 : c->said);
    for (char *p = r->message; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
}

static int job_progress(void *user, int done)
{
    const struct bench *b = user;
    const struct check *c = b->c;
    return c->options.progress ? c->options.progress(c->options.user, (float)(b->first + done) / (float)(c->n_jobs ? c->n_jobs : 1)) : 0;
}

bool check_untested(const struct check *c, int kernel)
{
    bool could = false;
    if (c->options.case_name || c->options.case_file)
        return false;
    for (int m = 0; m < c->n_masks; m++)
        could |= !c->lacks[kernel * c->n_masks + m];
    for (int i = 0; i < c->n_jobs; i++)
        if (c->jobs[i].kernel == kernel && c->jobs[i].result.status != TRIAL_UNFIT)
            return false;
    return could;
}

static void count(struct check *c)
{
    for (int i = 0; i < c->n_jobs; i++) {
        enum trial_status s = c->jobs[i].result.status;
        c->n_ok += s == TRIAL_OK;
        c->n_faults += s == TRIAL_FAULT;
        c->n_unfit += s == TRIAL_UNFIT;
        c->n_not_run += s == TRIAL_NOT_RUN;
    }
    for (int k = 0; k < c->n_kernels; k++)
        c->n_untested += check_untested(c, k);
}

/* The jobs of the host, or those of devices. */
static int run_part(struct bench *b, bool host, struct hone_error *e)
{
    const struct check_options *o = &b->c->options;
    int workers = o->n_workers ? o->n_workers : o->perf ? 1 : cpu_cores();
    b->first += b->n;
    for (b->n = 0; b->first + b->n < b->c->n_jobs; b->n++)
        if (b->c->kernels[b->c->jobs[b->first + b->n].kernel].backend->host != host)
            break;
    struct isolation work = {.user = b,
                             .n_jobs = b->n,
                             .limit_ms = o->limit_ms,
                             .n_workers = !host && !o->n_workers && workers > DEVICE_WORKERS ? DEVICE_WORKERS : workers,
                             .job = run_job,
                             .group = job_group,
                             .start = child_start,
                             .end = child_end,
                             .died = job_died,
                             .progress = job_progress};
    return b->n ? isolate(&work, e) : 0;
}

int check_run(struct check *c, const struct check_options *o, struct hone_error *e)
{
    *c = (struct check){.options = *o};
    struct bench b = {.c = c};
    if (!c->options.limit_ms)
        c->options.limit_ms = o->perf ? 6 * LIMIT_MS : LIMIT_MS;
    if (!c->options.n_threads)
        c->options.n_threads = cpu_cores();
    int rc = list_masks(c, e);
    if (!rc)
        rc = list_kernels(c, e);
    if (!rc)
        rc = list_cases(c, e);
    if (!rc)
        rc = list_jobs(c, e);
    if (!rc && o->perf)
        rc = bandwidth_read(c->options.n_threads, &c->roof, e);
    if (!rc)
        rc = run_part(&b, true, e);
    if (!rc)
        rc = run_part(&b, false, e);
    if (rc && rc != HONE_ECANCELED) {
        check_free(c);
        return rc;
    }
    count(c);
    if (!rc && c->n_faults + c->n_not_run + c->n_untested)
        rc = err_set(e, HONE_ECHECK, "%d fault(s), %d not run, %d kernel(s) that no case fits", c->n_faults, c->n_not_run,
                     c->n_untested);
    return rc;
}

void check_free(struct check *c)
{
    shared_free(c->jobs, c->job_bytes);
    arena_free(&c->arena);
    memset(c, 0, sizeof *c);
}
