/* bench.h: a sweep of throughput tests, a row each: how fast, whether right, what ran, and on what. */
#ifndef LAB_BENCH_H
#define LAB_BENCH_H

#include "lab/bench_sweep.h"
#include "lab/compare.h"
#include "lab/machine.h"
#include "lab/measure.h"
#include "lab/workload.h"

#include <jansson.h>

#define BENCH_KL_BOUND 0.01 /* nats: the largest mean KL divergence from the reference that is no other output */

struct bench_options {
    const char *recipe, *gates, *plugins; /* NULL: none; plugins: paths, a line each, loaded already */
    bool strict;
    int repeats, delay; /* samples of a test; seconds before it */
    bool warmup, verify, roof;
    struct warm_rule warm;
    const char *cache; /* folder for the reference's logits; NULL: none */
};

/* What the caller does meanwhile. Any may be NULL; user goes first. A non-zero return of one that has *e ends the sweep with
 * it. */
struct bench_hooks {
    void *user;
    /* A test is about to be measured on m. */
    int (*begin)(void *user, const struct hone_model *m, const struct bench_config *c, struct hone_error *e);
    /* A sample was taken. */
    int (*sample)(void *user, const struct bench_config *c, const struct measure_sample *s, struct hone_error *e);
    /* The row, borrowed; begun: begin was called for it. */
    int (*row)(void *user, const json_t *row, bool begun, struct hone_error *e);
    void (*tell)(void *user, size_t test, size_t n_tests, const char *what); /* what goes on: test counts from 1 */
    void (*session)(void *user, struct hone_session *s);                     /* the one that runs from now on; NULL: none */
    bool (*stopped)(void *user);
};

struct bench_tally {
    size_t rows, failed; /* failed: with an error */
    size_t wrong;        /* with an output that is not the reference's, or not its own twice */
};

/* Runs the tests of a finished sweep. A test that fails is a row with its error, and the sweep goes on; HONE_ECANCELED when
 * stopped or cancelled, with all rows so far handed over. */
int bench_run(const struct bench_sweep *s, const struct bench_options *o, const struct bench_hooks *h, struct bench_tally *t,
              struct hone_error *e);

/* What one test gave, for the row. */
struct bench_result {
    const struct bench_config *config;
    const struct hone_model *model; /* NULL: it could not be opened */
    int n_threads;
    char time[32];   /* of its start, ISO 8601, UTC */
    char error[512]; /* "": none */
    struct measure_sample *samples;
    size_t n;
    bool warmed, hashed;
    struct warmth warmth;
    struct measure_output output;
    bool same; /* every sample ended on the hashed run's logits */
    struct workload work;
    json_t *declines;
    json_t *collectives; /* of a step over several devices; NULL: on one */
    double one_ts;       /* total_ts of the row of one device that stands beside it; 0: there is none */
    double *roofs;
    size_t n_roofs;
    int64_t peak;
    const struct comparison *right; /* NULL: not verified */
    const char *unverified;         /* why; "" when nobody asked */
    struct machine_change change;
    json_t *build, *machine, *recipe, *warnings; /* borrowed */
    const char *recipe_hash;
};
json_t *bench_row(const struct bench_result *r);

#endif
