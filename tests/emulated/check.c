/* check.c: the check (lab/check.h) over kernels of backends/cuda that run emulated. rows.def, which cuda_emulated_test.sh makes, has a
 * row ROW(<op>_<variant>) for each. Arguments: ops, all of them when there are none.
 *
 * The check calls a CPU kernel's run on every thread of a pool; here the first one launches for all. */
#include "lab/check.h"

#include <stdio.h>
#include <string.h>

#define ROW(name)                                                                                                              \
    extern const struct kernel cuda_##name;                                                                                    \
    static int run_##name(const struct exec *x, const struct node *n)                                                          \
    {                                                                                                                          \
        return x->worker.ith ? 0 : cuda_##name.run(x, n);                                                                      \
    }
#include "rows.def"
#undef ROW

enum { MOST = 128, LIMIT_MS = 300000 };

static int check_op(const struct kernel *const *kernels, int n, const char *op)
{
    struct check_options o = {.kernels = kernels, .n_kernels = n, .op = op, .n_workers = 1, .seed = 1, .limit_ms = LIMIT_MS};
    struct check c;
    struct hone_error e = {0};
    int rc = check_run(&c, &o, &e);
    if (rc && rc != HONE_ECHECK) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    for (int i = 0; i < c.n_jobs; i++) {
        const struct check_job *j = &c.jobs[i];
        if (j->result.status != TRIAL_OK && j->result.status != TRIAL_UNFIT)
            printf("FAULT %s, case %s: %s\n", c.kernels[j->kernel].name, c.cases[j->tried].name, j->result.message);
    }
    printf("%s: %d kernels, %d cases right, %d not taken, %d faults, %d not run, %d kernels without a case\n", op ? op : "all",
           c.n_kernels, c.n_ok, c.n_unfit, c.n_faults, c.n_not_run, c.n_untested);
    check_free(&c);
    return rc != 0;
}

int main(int argc, char **argv)
{
    static struct kernel kernels[MOST];
    static const struct kernel *list[MOST];
    int n = 0, rc = 0;
#define ROW(name)                                                                                                              \
    kernels[n] = cuda_##name;                                                                                                  \
    kernels[n].needs = 0;                                                                                                      \
    kernels[n].run = run_##name;                                                                                               \
    list[n] = &kernels[n];                                                                                                     \
    n++;
#include "rows.def"
#undef ROW
    for (int i = 1; i < argc; i++)
        rc |= check_op(list, n, argv[i]);
    return argc > 1 ? rc : check_op(list, n, NULL);
}
