/* run.c: the one loop. Every thread of the pool runs it: each takes its share of a node, then all meet at one barrier. Waking the
 * pool once a node instead costs two meetings a node, which a small model feels (about 0.4 us of 20 us a layer).
 *
 * A run ends early by agreement: whoever finds a reason (an error, a cancel) writes the number of the step after which to stop
 * before the barrier of that step, so all threads read the same number behind it. */
#include "graph/plan.h"

#include "base/clock.h"
#include "comm/comm.h"

#include <limits.h>

struct shared {
    const struct plan *plan;
    const struct run *run;
    atomic_int stop_after; /* INT_MAX: run to the end */
    atomic_int code;       /* why it stopped */
    int step_failed;       /* written once, by the thread that set code */
};

static void stop(struct shared *s, int step, int code)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&s->code, &none, code)) {
        s->step_failed = step;
        atomic_store(&s->stop_after, step);
    }
}

static void run_worker(void *arg, int ith, int nth)
{
    struct shared *s = arg;
    const struct run *r = s->run;
    const struct observer *obs = r->observer;
    struct exec x = {.worker = {.ith = ith, .nth = nth, .pool = r->pool,
                                .scratch = (char *)r->scratch + (size_t)ith * r->scratch_stride,
                                .scratch_size = r->scratch_stride, .comm = r->comm},
                     .shared = s->plan->shared};
    int64_t start = 0;
    for (int i = 0; i < s->plan->n_steps && i <= atomic_load(&s->stop_after); i++) {
        const struct step *step = &s->plan->steps[i];
        if (obs) {
            int rc = ith == 0 && obs->before ? obs->before(obs->user, s->plan, i) : 0;
            if (rc)
                stop(s, i, rc);
            worker_barrier(&x.worker);
            start = clock_ns();
        }
        if (step->backend->host || ith == 0) {
            int rc = step->kernel->run(&x, step->node);
            if (rc)
                stop(s, i, rc);
        }
        if (ith == 0 && r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
            stop(s, i, HONE_ECANCELED);
        worker_barrier(&x.worker);
        if (ith == 0 && r->progress)
            atomic_store_explicit(r->progress, i + 1, memory_order_relaxed);
        if (obs && obs->after) {
            int rc = ith == 0 ? obs->after(obs->user, s->plan, i, clock_ns() - start) : 0;
            if (rc)
                stop(s, i, rc);
            worker_barrier(&x.worker);
        }
    }
}

int plan_run(const struct plan *p, const struct run *r, struct hone_error *e)
{
    struct shared s = {.plan = p, .run = r, .stop_after = INT_MAX};
    pool_run(r->pool, run_worker, &s);
    int code = atomic_load(&s.code);
    if (!code)
        return 0;
    if (code == HONE_ECANCELED)
        return err_set(e, code, "cancelled");
    const struct step *step = &p->steps[s.step_failed];
    char name[128];
    if (r->comm && comm_error(r->comm)->code)
        return err_set(e, code, "node %s: %s", step->node->out->name, comm_error(r->comm)->message);
    return err_set(e, code, "node %s: kernel %s failed: %s", step->node->out->name,
                   kernel_name(step->backend, step->kernel, name, sizeof name), err_meaning(code));
}
