/* run.c: the one loop. Every thread of the pool runs it: each takes its share of a node, then all meet at one barrier. Waking the
 * pool once a node instead costs two meetings a node, which a small model feels (about 0.4 us of 20 us a layer).
 *
 * A plan with devices runs segment by segment. Those of the host are the same loop over a part of the steps; before one begins, whatever
 * a device still does is waited for. Those of a device are launched by the calling thread while the pool sleeps; from the second run on they are
 * captured and replayed whole, unless somebody observes. One device waits for another before it begins, since it reads what that one wrote.
 *
 * A run ends early by agreement: whoever finds a reason (an error, a cancel) writes the number of the step after which to stop
 * before the barrier of that step, so all threads read the same number behind it. */
#include "graph/whole.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/comm.h"

#include <limits.h>

struct shared {
    const struct plan *plan;
    const struct run *run;
    int first, end; /* the steps to run */
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
    for (int i = s->first; i < s->end && i <= atomic_load(&s->stop_after); i++) {
        const struct step *step = &s->plan->steps[i];
        if (obs) {
            int rc = ith == 0 && obs->before ? obs->before(obs->user, s->plan, i) : 0;
            if (rc)
                stop(s, i, rc);
            worker_barrier(&x.worker);
            start = clock_ns();
        }
        int failed = step->kernel->run(&x, step->node);
        if (failed)
            stop(s, i, failed);
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

/* ---- on devices */

/* A run of a plan with a placement. */
struct placed {
    struct shared *s;
    bool busy[MAX_PLACES];   /* has work that nobody waited for */
    bool loaded[MAX_PLACES]; /* has the step's inputs */
    struct hone_error *e;
};

static const struct place *place_at(const struct placed *d, int i)
{
    return &d->s->plan->placement->list[i];
}

/* Waits for every device but `except`. */
static int wait_for(struct placed *d, int except)
{
    int rc = 0;
    for (int i = 1; i < d->s->plan->placement->n && !rc; i++)
        if (d->busy[i] && i != except) {
            rc = place_at(d, i)->backend->api->synchronise(place_at(d, i)->device, place_at(d, i)->stream, d->e);
            d->busy[i] = false;
        }
    return rc;
}

static int load_inputs(struct placed *d, int place)
{
    const struct plan *p = d->s->plan;
    const struct place *at = place_at(d, place);
    if (!p->places[place].reads_inputs)
        return 0;
    return at->backend->api->copy(at->device, at->stream, p->places[place].block.data, p->block, p->input_bytes, d->e);
}

static struct exec exec_at(const struct placed *d, int place)
{
    const struct plan_place *mine = &d->s->plan->places[place];
    return (struct exec){.worker = {.ith = 0, .nth = 1}, .shared = (char *)mine->block.data + mine->shared_offset,
                         .stream = place_at(d, place)->stream, .device = place_at(d, place)->device, .few = d->s->plan->few,
                         .link = d->s->run->link};
}

/* Whether ranks meet at the host before each collective (comm_set_timed). */
static bool timed(const struct placed *d)
{
    const struct run *r = d->s->run;
    return r->link && r->comm && comm_timed(r->comm);
}

/* Before step i, where it is a collective and timed: all that came before is done, and all ranks are here. */
static int meet_before(struct placed *d, const struct segment *g, int i)
{
    const struct place *at = place_at(d, g->place);
    const struct node *n = d->s->plan->steps[i].node;
    if (!timed(d) || !node_collective(n))
        return 0;
    int rc = at->backend->api->synchronise(at->device, at->stream, d->e);
    return rc ? rc : comm_meet(d->s->run->comm, n->out->name);
}

/* careful: some kernel may be launched for the first time. Loading it may wait for what runs on the device, with a lock of the driver held
 * that another rank's launches want, too: so behind a collective, which waits for the others, nothing is launched before it has ended. */
static int launch(struct placed *d, const struct segment *g, bool inputs, bool careful)
{
    struct exec x = exec_at(d, g->place);
    const struct place *at = place_at(d, g->place);
    int rc = at->backend->api->select(x.device, d->e);
    if (!rc && inputs)
        rc = load_inputs(d, g->place);
    for (int i = g->first, n = 1; i < g->first + g->n && !rc; i += n) {
        bool whole = g->whole && g->whole_ready && i == g->whole_first;
        n = whole ? g->whole_n : 1;
        if (careful && i > g->first && node_collective(d->s->plan->steps[i - 1].node))
            rc = at->backend->api->synchronise(at->device, at->stream, d->e);
        if (!rc)
            rc = meet_before(d, g, i);
        if (!rc && whole)
            rc = at->backend->api->wholes->launch(&x, g->whole);
        else if (!rc)
            rc = d->s->plan->steps[i].kernel->run(&x, d->s->plan->steps[i].node);
        if (rc)
            stop(d->s, i, rc);
    }
    return rc;
}

/* Records the segment; its graph is kept. What cannot be recorded is launched node by node from now on, and that is said. */
static void capture(struct placed *d, struct segment *g, bool inputs)
{
    const struct place *at = place_at(d, g->place);
    const struct device_api *api = at->backend->api;
    struct hone_error why = {0}, ignored = {0};
    void *graph = NULL;
    int rc = api->capture_begin(at->device, at->stream, &why);
    if (!rc) {
        rc = launch(d, g, inputs, false);
        if (rc)
            err_set(&why, rc, "node %s: %s", d->s->plan->steps[d->s->step_failed].node->out->name, api->why());
        int ended = api->capture_end(at->device, at->stream, &graph, rc ? &ignored : &why);
        if (rc && !ended)
            api->graph_free(at->device, graph);
        rc = rc ? rc : ended;
    }
    if (!rc) {
        g->graph = graph;
        return;
    }
    g->uncaptured = true;
    atomic_store(&d->s->code, 0);
    atomic_store(&d->s->stop_after, INT_MAX);
    log_line(LOG_WARN, "%s: %d nodes are launched one by one, since they cannot be captured: %s", at->backend->name, g->n, why.message);
}

/* One node after the other, each timed on the device. */
static int launch_observed(struct placed *d, const struct segment *g, bool inputs)
{
    const struct plan *p = d->s->plan;
    const struct observer *obs = d->s->run->observer;
    const struct place *at = place_at(d, g->place);
    const struct device_api *api = at->backend->api;
    struct exec x = exec_at(d, g->place);
    int rc = inputs ? load_inputs(d, g->place) : 0;
    if (!rc)
        rc = api->synchronise(at->device, at->stream, d->e);
    for (int i = g->first; i < g->first + g->n && !rc; i++) {
        int64_t ns = 0;
        rc = obs->before ? obs->before(obs->user, p, i) : 0;
        if (!rc)
            rc = meet_before(d, g, i);
        if (!rc)
            rc = api->select(at->device, d->e); /* the observer may have used another */
        if (!rc)
            rc = api->timer_start(at->device, at->stream, d->e);
        if (!rc)
            rc = p->steps[i].kernel->run(&x, p->steps[i].node);
        if (!rc)
            rc = api->timer_stop(at->device, at->stream, &ns, d->e);
        if (!rc && obs->after)
            rc = obs->after(obs->user, p, i, ns);
        if (rc)
            stop(d->s, i, rc);
    }
    return rc;
}

static int run_segment(struct placed *d, struct segment *g)
{
    const struct run *r = d->s->run;
    const struct place *at = place_at(d, g->place);
    int rc = wait_for(d, g->place);
    if (rc)
        return rc;
    if (!g->place) {
        d->s->first = g->first;
        d->s->end = g->first + g->n;
        pool_run(r->pool, run_worker, d->s);
        return atomic_load(&d->s->code);
    }
    bool inputs = !d->loaded[g->place];
    if (r->observer) {
        rc = launch_observed(d, g, inputs);
    } else if (timed(d)) {
        rc = launch(d, g, inputs, !g->ran && r->link);
    } else {
        whole_prepare(d->s->plan, g);
        if (!g->graph && g->runs && !g->uncaptured)
            capture(d, g, inputs);
        rc = g->graph ? at->backend->api->replay(at->device, at->stream, g->graph, d->e)
                      : launch(d, g, inputs, !g->ran && r->link);
        g->runs++;
        g->ran |= !rc;
    }
    d->busy[g->place] = d->loaded[g->place] = true;
    if (r->progress)
        atomic_store_explicit(r->progress, g->first + g->n, memory_order_relaxed);
    if (!rc && r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
        stop(d->s, g->first, rc = HONE_ECANCELED);
    return rc;
}

/* What a kernel that waited for other ranks has to say; and the counts, which were not taken at the host. */
static int met(const struct shared *s, struct hone_error *e)
{
    const struct plan *p = s->plan;
    int rc = p->placement->list[1].backend->api->links->check(s->run->link, e);
    if (!rc && s->run->comm)
        comm_count(s->run->comm, p->n_device_collectives, p->device_collective_bytes);
    return rc;
}

static int run_placed(struct shared *s, struct hone_error *e)
{
    struct placed d = {.s = s, .e = e};
    struct hone_error ignored = {0};
    int rc = 0;
    for (int i = 0; i < s->plan->n_segments && !rc; i++)
        rc = run_segment(&d, &s->plan->segments[i]);
    if (rc)
        d.e = &ignored;
    int waited = wait_for(&d, 0);
    rc = rc ? rc : waited;
    if (!rc)
        rc = wholes_check(s->plan, e);
    return rc || !s->run->link ? rc : met(s, e);
}

int plan_run(const struct plan *p, const struct run *r, struct hone_error *e)
{
    struct shared s = {.plan = p, .run = r, .end = p->n_steps, .stop_after = INT_MAX};
    int rc = 0;
    if (p->placement)
        rc = run_placed(&s, e);
    else
        pool_run(r->pool, run_worker, &s);
    int code = atomic_load(&s.code);
    if (!code)
        return rc; /* not a node's: *e says it */
    if (code == HONE_ECANCELED)
        return err_set(e, code, "cancelled");
    const struct step *step = &p->steps[s.step_failed];
    char name[128];
    if (r->comm && comm_error(r->comm)->code)
        return err_set(e, code, "node %s: %s", step->node->out->name, comm_error(r->comm)->message);
    return err_set(e, code, "node %s: kernel %s failed: %s", step->node->out->name,
                   kernel_name(step->backend, step->kernel, name, sizeof name),
                   step->backend->host ? err_meaning(code) : step->backend->api->why());
}

bool plan_prepared(const struct plan *p)
{
    for (int i = 0; i < p->n_segments; i++)
        if (p->segments[i].place && !p->segments[i].graph && !p->segments[i].uncaptured)
            return false;
    return true;
}

int plan_prepare(const struct plan *p, const struct run *r, struct hone_error *e)
{
    struct run alone = *r;
    bool ran = true;
    alone.comm = NULL;
    alone.link = NULL;
    alone.observer = NULL;
    alone.progress = NULL;
    for (int i = 0; i < p->n_segments; i++)
        ran &= !p->segments[i].place || p->segments[i].ran;
    int rc = ran ? 0 : plan_run(p, &alone, e);
    alone.link = r->link; /* from here on nothing runs: what is captured has it */
    struct shared s = {.plan = p, .run = &alone, .end = p->n_steps, .stop_after = INT_MAX};
    struct placed d = {.s = &s, .e = e};
    for (int i = 0; i < p->n_segments && !rc; i++) {
        struct segment *g = &p->segments[i];
        if (g->place && !g->graph && !g->uncaptured)
            capture(&d, g, !d.loaded[g->place]);
        d.loaded[g->place] = true;
    }
    return rc;
}
