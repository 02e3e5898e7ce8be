/* check.h: every runnable kernel, on every case of its op, under every mask of features, against the reference.
 *
 * A job is one kernel on one case under one mask. Jobs run in child processes (isolate.h); what came of each lies in one table,
 * in an order that does not depend on who ran when. With `perf` the same jobs are also timed, with cold caches, once they are
 * right: no speed without a verdict. */
#ifndef LAB_CHECK_H
#define LAB_CHECK_H

#include "lab/perf.h"
#include "lab/trial.h"

#include <jansson.h>

enum { CHECK_MASKS = 16 };

struct check_options {
    const char *op;        /* NULL: all */
    const char *kernel;    /* a glob over names ("cpu_mul_mat_q4_*") or variants; NULL: all */
    const char *case_name; /* a glob; NULL: all */
    const char *masks;     /* parted by commas, features within one joined by '+': "none,avx2,avx2+avx_vnni"; NULL: full */
    const char *case_file; /* replay this captured case instead of those of the ops; NULL: none */
    const char *replay;    /* what a command line that repeats a job needs beside: "--plugin mine.so"; NULL: nothing */
    uint64_t seed;
    int limit_ms;  /* of one job; 0: 20 s */
    int n_workers; /* child processes at once; 0: one a core, on devices four, one with perf */
    bool perf;     /* time them, on shapes of real models too */
    int n_threads; /* that are timed; 0: one a core */
    /* A test's own kernels of backend_list()[0], in place of those of all backends; NULL: none. */
    const struct kernel *const *kernels;
    int n_kernels;
    int (*progress)(void *user, float done); /* non-zero cancels; NULL: none */
    void *user;
};

struct check_kernel {
    const struct backend *backend;
    const struct kernel *kernel;
    char name[96];
};

struct check_mask {
    char name[64];
    unsigned features;
};

struct check_case {
    enum op op;
    int kind; /* where it comes from: check.c knows */
    int fusion, index;
    char name[96];
};

struct check_job {
    int kernel, mask, tried; /* indices into the check's kernels, masks and cases */
    struct trial_result result;
    struct perf_result perf; /* of an ok result, with perf */
};

struct check {
    struct arena arena;
    struct check_options options;
    struct check_kernel *kernels;
    struct check_mask masks[CHECK_MASKS];
    struct check_case *cases;
    struct check_job *jobs; /* by case, then kernel, then mask */
    int n_kernels, n_masks, n_cases, n_jobs;
    size_t job_bytes;
    bool *lacks; /* [kernel][mask]: the mask leaves too few features, so there is no job */
    int n_ok, n_faults, n_unfit, n_not_run;
    int n_untested; /* kernels that could run and that no case fits; not counted when only some cases were asked for */
    double roof;    /* bytes a second, with perf */
};

/* Runs the check. HONE_ECHECK when something is at fault, HONE_ECANCELED with what was finished: in both cases *c is complete
 * and to be freed, as after 0. On any other failure nothing is left. */
int check_run(struct check *c, const struct check_options *o, struct hone_error *e);
void check_free(struct check *c);

/* Whether a kernel could run under a mask and no case fitted it; false when only some cases were asked for. */
bool check_untested(const struct check *c, int kernel);
/* A command line that repeats one job. Returns text. */
char *check_replay(const struct check *c, const struct check_job *j, char *text, size_t size);
/* One job; the whole. */
json_t *check_job_json(const struct check *c, const struct check_job *j);
json_t *check_json(const struct check *c);
/* The whole without its jobs: what closes a list of lines. */
json_t *check_summary_json(const struct check *c);

#endif
