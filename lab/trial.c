/* trial.c: see trial.h.
 *
 * The order of runs: for each of 1, 2, 3 and 7 threads the first data set twice, then the second at the same addresses. So what
 * a kernel remembers from a call, by pointer or by count, meets other data, and comes back to the first after it. The first run
 * of each data set is held to the reference; all later ones must repeat its bits (rule 7), which is the sharper question and
 * the cheaper one. Seven threads are more than any case has rows of some shape: workers without work are a case of their own.
 *
 * A device has no threads to vary: there the first number's runs are all.
 *
 * A fault ends the trial: what follows from a first wrong write explains nothing. */
#include "lab/trial.h"

#include "comm/comm.h"
#include "graph/materialise.h"
#include "graph/plan.h"
#include "lab/on_device.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int thread_counts[TRIAL_POOLS] = {1, 2, 3, 7};
enum { MOST_THREADS = 7, SCRATCH_GUARD = 256 };

const char *fault_word(enum fault f)
{
    static const char *const words[] = {
#define WORD(name, word) word,
        FAULTS(WORD)
#undef WORD
    };
    return words[f];
}

int trial_pools_create(struct trial_pools *p, struct hone_error *e)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < TRIAL_POOLS; i++) {
        p->pools[i] = pool_create(thread_counts[i], 0, e);
        if (!p->pools[i]) {
            trial_pools_free(p);
            return HONE_ERESOURCE;
        }
    }
    return 0;
}

void trial_pools_free(struct trial_pools *p)
{
    for (int i = 0; i < TRIAL_POOLS; i++)
        pool_free(p->pools[i]);
}

bool trial_fits(const struct backend *b, const struct kernel *k, const struct specimen *s, unsigned features, struct reason *r)
{
    unsigned lacking = k->needs & ~features;
    r->text[0] = 0;
    if (lacking)
        return fits_not(r, "the device lacks %s", b->feature_name(lacking & -lacking));
    if (k->fits && !k->fits(s->node, r))
        return r->text[0] ? false : fits_not(r, "no reason given");
    for (int i = 0; i < s->node->n_src && !k->wants.any_layout; i++) {
        const struct tensor *w = s->node->src[i];
        const struct layout *l;
        if (w && weight_is_matrix(w) && !kernel_layout(k, w, &l, r))
            return false;
    }
    if (k->declines && k->declines(s->node, r))
        return r->text[0] ? false : fits_not(r, "declines");
    return true;
}

/* ---- one run */

struct bench {
    struct trial_result *result;
    struct specimen *s;
    struct arrangement a;
    const struct backend *on;
    const struct kernel *kernel;
    struct on_device device; /* where `on` is no host */
    char *scratch; /* of each thread: `declared` bytes and a guard, `stride` in all; behind them what all share, and a guard */
    size_t declared, stride, shared;
    unsigned char *first[DATA_SETS][MAX_REGIONS]; /* results and states after the first run of a data set */
    const struct trial_pools *pools;
    struct pool *pool;
    struct comm *comm; /* the group of a node that meets other ranks */
    atomic_int code;
};

static void run_worker(void *arg, int ith, int nth)
{
    struct bench *b = arg;
    struct exec x = {.worker = {ith, nth, b->pool, b->scratch + (size_t)ith * b->stride, b->declared, b->comm},
                     .shared = b->scratch + b->stride * MOST_THREADS};
    int code = b->kernel->run(&x, b->a.node);
    if (code)
        atomic_store(&b->code, code);
}

static void load(struct bench *b, int data, int call)
{
    for (int i = 0; i < b->s->n_regions; i++)
        region_load(&b->s->regions[i], data, call == 1 ? REGION_NOTHING : REGION_STALE);
    for (int i = 0; i < b->a.n_regions; i++)
        region_load(&b->a.regions[i], data, REGION_NOTHING);
    memset(b->scratch, REGION_NOTHING, b->stride * MOST_THREADS + b->shared + SCRATCH_GUARD);
}

/* Up, run, down again. 0 or a code, with its message in *e. */
static int run_on_device(struct bench *b, struct hone_error *e)
{
    int rc = on_device_load(&b->device, e);
    return rc ? rc : on_device_run(&b->device, b->kernel, b->scratch + b->stride * MOST_THREADS, e);
}

static bool fail(struct bench *b, enum fault fault)
{
    b->result->status = TRIAL_FAULT;
    b->result->fault = fault;
    return false;
}

/* ---- what it touched */

/* The first byte of r that differs from `was` although no run may change it; -1: none. */
static int64_t damaged(const struct region *r, const unsigned char *was)
{
    if (!r->element && r->role == REGION_SOURCE && !memcmp(r->bytes, was, r->size))
        return -1;
    for (size_t i = 0; i < r->size; i++) {
        bool may = r->element ? r->element[i] : r->role == REGION_INNER && i >= r->first && i < r->first + r->span;
        if (!may && r->bytes[i] != was[i])
            return (int64_t)i;
    }
    return -1;
}

static bool region_whole(struct bench *b, const struct region *r, int data)
{
    int64_t at = damaged(r, r->before[data]);
    if (at < 0)
        return true;
    struct trial_result *o = b->result;
    int64_t byte = at - (int64_t)r->first, span = (int64_t)r->span;
    const char *where = byte < 0       ? "before its first"
                        : byte >= span ? "behind its last"
                        : r->element   ? "in a gap"
                                       : "of a source";
    snprintf(o->tensor, sizeof o->tensor, "%s", r->tensor->name);
    o->row[0] = o->row[1] = o->row[2] = 0;
    o->column = byte;
    snprintf(o->message, sizeof o->message, "writes byte %lld of %s%s, which has %lld: %s", (long long)byte,
             r->tensor->layout ? "packed " : "", r->tensor->name, (long long)span, where);
    return fail(b, FAULT_DAMAGE);
}

static bool nothing_else(struct bench *b, int data, int threads)
{
    for (int i = 0; i < b->s->n_regions; i++)
        if (!region_whole(b, &b->s->regions[i], data))
            return false;
    for (int i = 0; i < b->a.n_regions; i++)
        if (!region_whole(b, &b->a.regions[i], data))
            return false;
    for (int t = 0; t < MOST_THREADS; t++)
        for (size_t i = t < threads ? b->declared : 0; i < b->stride; i++)
            if ((unsigned char)b->scratch[(size_t)t * b->stride + i] != REGION_NOTHING) {
                snprintf(b->result->message, sizeof b->result->message, "thread %d writes byte %zu of %zu bytes of scratch", t,
                         i, b->declared);
                return fail(b, FAULT_SCRATCH);
            }
    const char *shared = b->scratch + b->stride * MOST_THREADS;
    for (size_t i = b->shared; i < b->shared + SCRATCH_GUARD; i++)
        if ((unsigned char)shared[i] != REGION_NOTHING) {
            snprintf(b->result->message, sizeof b->result->message, "byte %zu of %zu bytes of shared scratch is written", i,
                     b->shared);
            return fail(b, FAULT_SCRATCH);
        }
    return true;
}

/* ---- what it computed */

/* The result tensor as it would read from another copy of its region. */
static struct tensor moved(const struct tensor *t, const struct region *r, unsigned char *copy)
{
    struct tensor m = *t;
    m.data = copy + ((unsigned char *)t->data - r->bytes);
    return m;
}

static struct region *region_of(struct bench *b, struct tensor *t)
{
    for (int i = 0; i < b->s->n_regions; i++)
        if (b->s->regions[i].tensor == tensor_root(t))
            return &b->s->regions[i];
    return NULL;
}

static void describe(struct trial_result *o, const struct tensor *t, const struct difference *d, const char *wanted)
{
    snprintf(o->tensor, sizeof o->tensor, "%s", t->name);
    memcpy(o->row, d->row, sizeof o->row);
    o->column = d->column;
    o->got = d->got;
    o->want = d->want;
    o->nmse = d->nmse;
    o->tolerance = d->tolerance;
    difference_text(d, t, wanted, o->message, sizeof o->message);
}

static bool held_to_reference(struct bench *b, int data)
{
    static const enum fault faults[] = {FAULT_NONE, FAULT_NAN, FAULT_VALUE, FAULT_NMSE, FAULT_BITS};
    for (int i = 0; i < b->s->n_results; i++) {
        struct tensor *t = b->s->results[i];
        const struct region *r = region_of(b, t);
        struct tensor want = moved(t, r, r->expected[data]);
        struct difference d;
        difference_find(&d, t, &want, kernel_tolerance(b->kernel));
        if (d.kind != DIFFERENCE_NONE) {
            describe(b->result, t, &d, "the reference gives");
            return fail(b, faults[d.kind]);
        }
        if (d.nmse * b->result->tolerance > b->result->nmse * d.tolerance) { /* the largest share */
            b->result->nmse = d.nmse;
            b->result->tolerance = d.tolerance;
        }
        if (d.bound > 0)
            b->result->largest = fmax(b->result->largest, d.largest / d.bound);
    }
    return true;
}

/* Keeps the first run's results; holds later ones to their bits. */
static bool same_bits(struct bench *b, int data, bool same_threads)
{
    for (int i = 0; i < b->s->n_regions; i++) {
        const struct region *r = &b->s->regions[i];
        if (r->element && !b->first[data][i]) {
            b->first[data][i] = arena_alloc(&b->a.arena, r->size);
            if (b->first[data][i])
                memcpy(b->first[data][i], r->bytes, r->size);
        }
    }
    for (int i = 0; i < b->s->n_results; i++) {
        struct tensor *t = b->s->results[i];
        const struct region *r = region_of(b, t);
        unsigned char *first = b->first[data][r - b->s->regions];
        if (!first || !memcmp(first, r->bytes, r->size))
            continue;
        struct tensor want = moved(t, r, first);
        struct difference d;
        difference_find(&d, t, &want, 0);
        if (d.kind == DIFFERENCE_NONE)
            continue; /* bytes of another result in the same memory */
        describe(b->result, t, &d, same_threads ? "the first call gave" : "one thread gave");
        return fail(b, same_threads ? FAULT_REPEAT : FAULT_THREADS);
    }
    return true;
}

static bool run_once(struct bench *b, int pool, int data, int call)
{
    struct trial_result *o = b->result;
    bool first = pool == 0 && call == 1;
    o->threads = thread_counts[pool];
    o->call = call;
    o->data = data;
    b->pool = b->pools->pools[pool];
    atomic_store(&b->code, 0);
    load(b, data, call);
    struct hone_error e = {0};
    if (b->on->host)
        pool_run(b->pool, run_worker, b);
    else
        atomic_store(&b->code, run_on_device(b, &e));
    int code = atomic_load(&b->code);
    if (code) {
        snprintf(o->message, sizeof o->message, "fits accepted the node, and run failed: %.180s", e.code ? e.message : err_meaning(code));
        return fail(b, FAULT_REFUSED);
    }
    if (!nothing_else(b, data, o->threads))
        return false;
    if (first && !held_to_reference(b, data))
        return false;
    return same_bits(b, data, pool == 0 || call == 2);
}

static bool run_all(struct bench *b)
{
    for (int pool = 0; pool < (b->on->host ? TRIAL_POOLS : 1); pool++) {
        if (!run_once(b, pool, 0, 1) || !run_once(b, pool, 0, 2))
            return false;
        if (b->s->n_data > 1 && !run_once(b, pool, 1, 1))
            return false;
    }
    return true;
}

static bool arranged(struct bench *b, const struct layout *layout)
{
    struct trial_result *o = b->result;
    struct hone_error e = {0};
    int rc = specimen_arrange(&b->a, b->s, b->kernel, layout, &e);
    if (!rc) {
        rc = specimen_expect(b->s, b->pools->pools[1], &b->a, &e);
        b->declared = b->kernel->scratch ? b->kernel->scratch(b->a.node) : 0;
        b->shared = b->kernel->shared ? b->kernel->shared(b->a.node) : 0;
        b->stride = (b->declared + SCRATCH_GUARD + 63) / 64 * 64;
        b->scratch = rc || b->declared > SIZE_MAX / 16 || b->shared > SIZE_MAX / 16
                         ? NULL
                         : aligned_alloc(64, b->stride * MOST_THREADS + (b->shared + SCRATCH_GUARD + 63) / 64 * 64);
        if (!rc && !b->scratch)
            rc = err_set(&e, HONE_ERESOURCE, "no memory for %zu bytes of scratch a thread and %zu shared", b->declared,
                         b->shared);
        if (!rc)
            rc = specimen_group(&b->comm, b->a.node, b->pools->pools[TRIAL_POOLS - 1], &e);
        if (!rc && !b->on->host)
            rc = on_device_open(&b->device, b->on, 0, b->s, &b->a, b->shared + SCRATCH_GUARD, &e);
        if (rc) {
            free(b->scratch);
            arrangement_free(&b->a);
        }
    }
    if (!rc)
        return true;
    snprintf(o->message, sizeof o->message, "%.230s", e.message);
    o->threads = o->call = o->data = 0;
    if (rc == HONE_ECHECK)
        return fail(b, FAULT_LAYOUT);
    return fail(b, FAULT_REFUSED);
}

void trial_run(struct trial_result *r, struct specimen *s, const struct backend *on, const struct kernel *k, const struct layout *const *layouts,
               int n_layouts, const struct trial_pools *pools)
{
    bool any = k->wants.any_layout, going = true;
    r->tolerance = kernel_tolerance(k);
    for (int i = -1; i < (any ? n_layouts : 0) && going; i++) {
        const struct tensor *w = s->node->n_src ? s->node->src[0] : NULL;
        const struct layout *l = i < 0 ? NULL : layouts[i];
        if (l && (!w || !weight_is_matrix(w) || l->format != w->format || (l->refuses && l->refuses(w->ne[0], tensor_rows(w)))))
            continue;
        struct bench b = {.result = r, .s = s, .on = on, .kernel = k, .pools = pools};
        snprintf(r->layout, sizeof r->layout, "%s", l ? l->name : "");
        going = arranged(&b, l);
        if (!going)
            return;
        going = run_all(&b);
        comm_free(b.comm);
        on_device_close(&b.device);
        free(b.scratch);
        arrangement_free(&b.a);
    }
    if (going)
        r->status = TRIAL_OK;
}
