/* ranks_device.c: ranks that run on devices: where each one's layers, cells and values lie, how they meet, whether all of it
 * fits, and what crowded devices need before a step.
 *
 * Each rank has places of its own, so a device that is named twice has two streams, two blocks of values, two captures: all
 * that two devices would have. What it cannot have is two kernels that need the whole device, and what must not happen there is
 * that the device waits for itself: a kernel of one rank waits for another rank, whose thread waits for the device to be idle
 * (to load a kernel, to make a library's handle). So the first run of each plan there is made alone, without meeting
 * anybody (plan_prepare), for all ranks, before they meet.
 *
 * Ranks whose devices are not of one backend, or whose backend has no links, meet at the host: their collectives are nodes of
 * the host, with copies to and fro that every trace shows. */
#include "engine/ranks.h"

#include "base/log.h"
#include "base/rng.h"
#include "graph/weights.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct places *rank_places(const struct ranks *r, int i)
{
    return i ? &r->others[i - 1].places : r->places;
}

void *rank_link(const struct ranks *r, int i)
{
    return i ? r->others[i - 1].link : r->link;
}

static const struct place *device_of(const struct ranks *r, int i)
{
    return &rank_places(r, i)->placement.list[1];
}

/* ---- where they are, and how they meet */

static int open_place(struct ranks *r, int i, const struct model *m, const struct gates *gates, struct hone_error *e)
{
    const struct rank_at *at = &r->spec.at[i];
    char name[40];
    if (!at->backend)
        return 0;
    snprintf(name, sizeof name, "%.30s%d", at->backend->name, at->device);
    struct places_options o = {
        .devices = name, .n_gpu_layers = -1, .gates = gates, .all_reference = gates_all_reference(gates)};
    places_close(rank_places(r, i));
    int rc = places_open(rank_places(r, i), m, &o, e);
    return rc ? err_prefix(e, "device %d", i) : 0;
}

/* The backend that all ranks are on, or NULL; how many are on one at all. */
static const struct backend *common_backend(const struct ranks *r, int *n_placed)
{
    const struct backend *common = NULL;
    bool one = true;
    *n_placed = 0;
    for (int i = 0; i <= r->n_others; i++) {
        bool placed = places_on_device(rank_places(r, i));
        const struct backend *b = placed ? device_of(r, i)->backend : NULL;
        *n_placed += placed;
        one &= placed && (!common || b == common);
        common = placed ? b : common;
    }
    return one ? common : NULL;
}

static int make_links(struct ranks *r, const struct backend *b, const char *way, struct hone_error *e)
{
    int n = 1 + r->n_others, devices[SHARD_MAX_RANKS],
        limit = r->comm_params.limit_ms ? r->comm_params.limit_ms : COMM_LIMIT_MS;
    void *links[SHARD_MAX_RANKS];
    for (int i = 0; i < n; i++)
        devices[i] = device_of(r, i)->device;
    int rc = b->api->links->create(links, devices, n, limit, way, e);
    if (rc)
        return rc;
    r->link = links[0];
    for (int i = 1; i < n; i++)
        r->others[i - 1].link = links[i];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            r->crowded |= devices[i] == devices[j];
    return 0;
}

int ranks_devices_open(struct ranks *r, const struct model *m, const struct gates *gates, struct hone_error *e)
{
    const char *way = gates_comm_link(gates);
    bool at_host = way && !strcmp(way, "host");
    int placed, rc = 0;
    for (int i = 0; i <= r->n_others && !rc && r->spec.n_devices; i++)
        rc = open_place(r, i, m, gates, e);
    if (rc)
        return rc;
    const struct backend *b = common_backend(r, &placed);
    if (b && b->api->links && !at_host) {
        rc = make_links(r, b, way, e);
        if (!rc || way)
            return rc;
        log_line(LOG_WARN, "ranks meet at the host, with copies: %s", e->message);
        *e = (struct hone_error){0};
    } else if (way && !at_host) {
        return err_set(e, HONE_EUSAGE, "comm.link=%.40s: %s", way,
                       b        ? "devices of this backend meet at the host"
                       : placed ? "the ranks are not all on devices of one backend"
                                : "the ranks are threads, which meet in memory");
    }
    for (int i = 0; i <= r->n_others; i++)
        rank_places(r, i)->placement.meets_at_host = places_on_device(rank_places(r, i));
    return 0;
}

void ranks_devices_close(struct ranks *r)
{
    for (int i = r->n_others; i >= 0; i--)
        if (rank_link(r, i))
            device_of(r, i)->backend->api->links->free(rank_link(r, i));
    r->link = NULL;
    for (int i = 0; i < r->n_others; i++) {
        struct rank *k = &r->others[i];
        k->link = NULL;
        kv_free(&k->kv);
        states_free(&k->states);
        room_free(&k->room, &k->places);
        places_close(&k->places);
    }
}

/* ---- memory */

/* Bytes that a rank's weights will take on its device; those that all have, unless `others` have brought them already. */
static double weight_bytes(const struct ranks *r, int rank, const struct model *m, const struct place *at, bool others)
{
    double bytes = 0;
    for (int i = 0; i < m->n_weights; i++) {
        const struct tensor *w = m->weights[i], *mine = shard_weight(r->cut->shard, rank, w);
        bool table =
            !strncmp(w->name, "token_embd", 10); /* rows are looked up in all of it, whoever has which part as a head */
        if (mine && !weight_twin(mine, at->backend, at->device))
            bytes += op_stored_bytes(mine);
        if ((!mine || table) && !others && !weight_twin(w, at->backend, at->device))
            bytes += op_stored_bytes(w);
    }
    return bytes;
}

static double need_of(const struct ranks *r, int i, const struct model *m, const struct ranks_need *need, bool others)
{
    size_t cells[MAX_PLACES], states[MAX_PLACES];
    const struct model *mine = ranks_model(r, r->first + i);
    kv_bytes_at(mine, need->k, need->v, need->n_cells, rank_places(r, i), cells);
    states_bytes_at(mine, need->n_seq, need->n_snapshots, rank_places(r, i), states);
    return weight_bytes(r, r->first + i, m, device_of(r, i), others) + (double)cells[1] + (double)states[1];
}

int ranks_fit(const struct ranks *r, const struct model *m, const struct ranks_need *need, struct hone_error *e)
{
    for (int i = 0; i <= r->n_others; i++) {
        const struct place *at = device_of(r, i);
        struct device_info info;
        double bytes = 0;
        int ranks = 0, first = i;
        for (int j = 0; j <= r->n_others && places_on_device(rank_places(r, i)); j++)
            if (places_on_device(rank_places(r, j)) && device_of(r, j)->backend == at->backend &&
                device_of(r, j)->device == at->device) {
                bytes += need_of(r, j, m, need, ranks++);
                first = j < first ? j : first;
            }
        if (!ranks || first < i)
            continue;
        int rc = at->backend->device(at->device, &info, e);
        if (rc)
            return rc;
        if (info.memory_free && bytes > (double)info.memory_free)
            return err_set(
                e, HONE_ERESOURCE,
                "%s%d: %d rank(s) need %.1f GiB with their cells and states; %.1f GiB are free: more devices (-dev), other "
                "shares (-ts) or a shorter context (-c) would take less",
                at->backend->name, at->device, ranks, bytes / 0x1p30, (double)info.memory_free / 0x1p30);
    }
    return 0;
}

/* ---- before a step */

struct preparing {
    struct ranks *r;
    const struct plan *own;
    const struct run *run;
    const struct rank_step *others;
};

static void prepare_rank(void *arg, int ith, int nth)
{
    const struct preparing *j = arg;
    struct run run = *j->run;
    (void)nth;
    if (ith) {
        const struct rank *k = &j->r->others[ith - 1];
        run = (struct run){.pool = k->pool, .scratch = k->room.scratch, .scratch_stride = k->room.scratch_stride};
    }
    run.link = rank_link(j->r, ith);
    j->r->errors[ith] = (struct hone_error){0};
    j->r->codes[ith] = plan_prepare(ith ? j->others[ith - 1].plan : j->own, &run, &j->r->errors[ith]);
}

int ranks_prepare(struct ranks *r, const struct plan *own, const struct run *run, const struct rank_step *others,
                  struct hone_error *e)
{
    struct preparing j = {r, own, run, others};
    bool done = plan_prepared(own);
    for (int i = 0; i < r->n_others; i++)
        done &= plan_prepared(others[i].plan);
    if (!r->crowded || r->skips || done)
        return 0;
    pool_run(r->leaders, prepare_rank, &j);
    for (int i = 0; i <= r->n_others; i++)
        if (r->codes[i])
            return err_set(e, r->codes[i], "%s", r->errors[i].message);
    return 0;
}

/* ---- the self-test: what comm_self_test does, by every kernel of all_reduce */

/* The last one takes several turns of any exchange. */
static const int64_t test_sizes[] = {1, 1001, 5120, 70001, 530000};
enum { N_TEST_SIZES = sizeof test_sizes / sizeof *test_sizes, TEST_MOST = 530000 };

struct tester {
    struct ranks *r;
    float **host, **device; /* by rank: 2 x TEST_MOST of the host, x and what is wanted; 3 x of the device: x, x and the sum */
    bool alone;
    atomic_int first; /* one more than the rank that was the first to fail: the others only miss it */
};

static float drawn(struct rng *r)
{
    float x = (float)(rng_uniform(r) - 0.5);
    return rng_below(r, 16) ? x : x * 1e6f; /* magnitudes that make the order of a sum show */
}

/* What rank i brings to x, and the sum of all to want. */
static void draw(int i, int n_ranks, int64_t n, float *x, float *want)
{
    for (int r = 0; r < n_ranks; r++) {
        struct rng rng = rng_seed((uint64_t)n * 4096 + (uint64_t)r);
        for (int64_t k = 0; k < n; k++) {
            float y = drawn(&rng);
            want[k] = r ? want[k] + y : y;
            if (r == i)
                x[k] = y;
        }
    }
}

/* count: of this rank's tests so far. What was brought to one must stay as it is until the next has met. */
static int test_once(const struct tester *t, int i, int count, const struct kernel *k, int64_t n, struct hone_error *e)
{
    const struct place *at = device_of(t->r, i);
    const struct device_api *api = at->backend->api;
    float *x = t->host[i], *want = x + TEST_MOST, *from = t->device[i] + count % 2 * TEST_MOST,
          *to = t->device[i] + 2 * TEST_MOST;
    struct tensor partial = {.name = "self-test"}, sum = {.name = "self-test"};
    struct node node = {.op = OP_ALL_REDUCE, .out = &sum, .src = {&partial}, .n_src = 1};
    struct exec exec = {.worker = {.ith = 0, .nth = 1},
                        .stream = at->stream,
                        .device = at->device,
                        .link = t->alone ? NULL : rank_link(t->r, i)};
    struct reason why;
    tensor_shape(&partial, FORMAT_F32, 1, &n);
    tensor_shape(&sum, FORMAT_F32, 1, &n);
    partial.data = from;
    sum.data = to;
    if ((k->needs & ~at->backend->features(at->device)) || (k->fits && !k->fits(&node, &why)))
        return 0;
    draw(i, t->alone ? 1 : 1 + t->r->n_others, n, x, want);
    int rc = api->copy(at->device, at->stream, from, x, (size_t)n * sizeof *x, e);
    if (!rc)
        rc = api->select(at->device, e);
    if (!rc && (rc = k->run(&exec, &node)))
        err_set(e, rc, "%s", api->why());
    int done = api->synchronise(at->device, at->stream, rc ? NULL : e); /* in any case: the memory is about to go */
    rc = rc ? rc : done;
    if (!rc && exec.link)
        rc = api->links->check(exec.link, e);
    if (!rc)
        rc = api->copy(at->device, at->stream, x, to, (size_t)n * sizeof *x, e);
    if (!rc)
        rc = api->synchronise(at->device, at->stream, e);
    if (!rc && !t->alone && memcmp(x, want, (size_t)n * sizeof *x) != 0)
        rc = err_set(e, HONE_ECHECK, "all_reduce_%s, %lld values: the sum differs from the sum on the host", k->variant,
                     (long long)n);
    return rc;
}

static void test_rank(void *arg, int ith, int nth)
{
    struct tester *t = arg;
    int none = 0;
    struct hone_error *e = &t->r->errors[ith];
    const struct backend *b = device_of(t->r, ith)->backend;
    int n_kernels, rc = 0, count = 0;
    const struct kernel *const *kernels = b->kernels(&n_kernels);
    (void)nth;
    *e = (struct hone_error){0};
    for (int k = 0; k < n_kernels && !rc; k++)
        for (int s = 0;
             s < (t->alone ? 1 : N_TEST_SIZES) && !rc && kernels[k]->op == OP_ALL_REDUCE && !kernels[k]->by_name_only; s++)
            rc = test_once(t, ith, count++, kernels[k], test_sizes[s], e);
    t->r->codes[ith] = rc;
    if (rc)
        atomic_compare_exchange_strong(&t->first, &none, ith + 1);
    if (rc && !t->alone)
        b->api->links->abort(rank_link(t->r, ith));
}

/* Alone first: so nobody waits in a kernel while another's is loaded. */
static int test_all(struct tester *t, struct hone_error *e)
{
    struct ranks *r = t->r;
    int rc = 0;
    for (int round = 0; round < 2 && !rc; round++) {
        t->alone = !round;
        pool_run(r->leaders, test_rank, t);
        int i = atomic_load(&t->first) - 1;
        if (i >= 0)
            rc = err_set(e, r->codes[i], "ranks on devices: self-test, rank %d: %s", i, r->errors[i].message);
    }
    return rc;
}

int ranks_devices_test(struct ranks *r, struct hone_error *e)
{
    size_t n = 1 + (size_t)r->n_others, bytes = TEST_MOST * sizeof(float);
    if (!r->link)
        return 0;
    struct tester t = {.r = r, .host = calloc(n, sizeof *t.host), .device = calloc(n, sizeof *t.device)};
    int rc = t.host && t.device ? 0 : err_set(e, HONE_ERESOURCE, "no memory for the self-test of %zu ranks", n);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct place *at = device_of(r, (int)i);
        void *host = NULL, *device = NULL;
        rc = at->backend->api->host_alloc(2 * bytes, &host, e);
        t.host[i] = host;
        if (!rc)
            rc = at->backend->api->alloc(at->device, 3 * bytes, &device, e);
        t.device[i] = device;
    }
    if (!rc)
        rc = test_all(&t, e);
    for (size_t i = n; i-- > 0 && t.host && t.device;) {
        const struct place *at = device_of(r, (int)i);
        at->backend->api->host_free(t.host[i]);
        at->backend->api->free(at->device, t.device[i]);
    }
    free(t.host);
    free(t.device);
    return rc;
}
