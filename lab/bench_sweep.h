/* bench_sweep.h: lists of parameters and the tests that they make, in llama-bench's syntax: a comma parts configurations, a
 * slash the parts of one; a range is first-last, first-last+step or first-last*factor; giving an option again adds to its list.
 */
#ifndef LAB_BENCH_SWEEP_H
#define LAB_BENCH_SWEEP_H

#include "base/err.h"
#include "hone.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARAM(NAME, KIND, flags, value, preset, here, why, help) BENCH_##NAME,
enum bench_param {
#include "lab/bench_params.def"
    N_BENCH_PARAMS
};
#undef PARAM

struct bench_value {
    int64_t number; /* of a number, a flag (0, 1), -fa (-1 auto, 0 off, 1 on), a pair's first */
    int64_t second; /* a pair's */
    char *text;     /* as it is shown: "f16", "1.00/9.00", "512"; malloc'd */
};

struct bench_list {
    struct bench_value *values;
    size_t n, cap;
};

struct bench_place { /* of a test in the order in which they run */
    size_t test;     /* its number in llama-bench's order */
    bool alone;      /* on one device instead of those that its parameters name */
};

struct bench_sweep {
    struct bench_list lists[N_BENCH_PARAMS];
    size_t n_tests;            /* after bench_sweep_finish */
    size_t inner;              /* of them with the same outer parameters */
    bool no_alone;             /* before bench_sweep_finish: tests over several devices get no one-device test beside them */
    bool devices;              /* some test runs over several devices */
    struct bench_place *order; /* n_tests; NULL: as they come */
    struct bench_list alone; /* of one-device tests: split mode, devices, shares, then the numbers of threads that there are */
};

/* GPUs of this machine that this build can use, and the first one's name; writes at most size bytes. */
int bench_gpus(char *name, size_t size);
/* Adds the values of one option; the sweep is zero at first. HONE_EUSAGE names the option, the value and the reason: it cannot
 * be read, or it can and this build cannot do it. */
int bench_sweep_add(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e);
/* Fills empty lists with their presets and counts the tests: at least one, not more than a person would wait for. Before those
 * that run over several devices come the same on one device, with the threads of all; not where the sweep has it already. */
int bench_sweep_finish(struct bench_sweep *s, struct hone_error *e);
void bench_sweep_free(struct bench_sweep *s);

struct bench_config {
    const struct bench_value *values[N_BENCH_PARAMS]; /* of the three kinds of test: NULL */
    int32_t n_prompt, n_gen;
    bool alone;               /* the one-device test beside others */
    int n_devices, n_threads; /* that it runs on; in all, on this machine */
};
/* What a test is when it runs on one device with all its threads: tests with the same text are the same then. malloc'd; NULL:
 * no memory. */
char *bench_alone_key(const struct bench_config *c);
/* It runs on one device, and that is the host. */
bool bench_on_host(const struct bench_config *c);
/* The parameters of its session; the context is left open. */
struct hone_session_params bench_session_params(const struct bench_config *c);
/* The i-th test, in llama-bench's order. */
void bench_sweep_get(const struct bench_sweep *s, size_t i, struct bench_config *c);
/* The list is more than its preset: llama-bench's tables have a column for it then. */
bool bench_sweep_varied(const struct bench_sweep *s, enum bench_param p);

/* "pp512", "tg128 @ d4096", "pp512+tg128". */
char *bench_test_name(int32_t n_prompt, int32_t n_gen, int32_t n_depth, char *text, size_t size);

/* For the command line: the row of a parameter. */
struct bench_param_info {
    const char *flags, *value, *preset, *here, *why, *help;
};
const struct bench_param_info *bench_param_get(enum bench_param p);

#endif
