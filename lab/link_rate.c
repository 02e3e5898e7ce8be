/* link_rate.c: see link_rate.h. Many sums in a row are captured and replayed on all ranks at once, so what counts is a sum and
 * its place in a captured graph, as in a decode step, and not how fast a thread launches. The ranks' own starts are apart by
 * microseconds, which the first sum pays and the others do not. */
#include "lab/link_rate.h"

#include "base/threads.h"
#include "lab/stats.h"

#include <stdlib.h>
#include <string.h>

enum { SUMS = 200, REPLAYS = 15, LIMIT_MS = 10000 };
static const int64_t sizes[LINK_RATE_SIZES] = {256, 5120, 16384, 65536, 1 << 20}; /* values */

struct seat {
    const struct backend *backend;
    int device;
    void *stream, *link, *graph;
    float *x, *y;
    struct tensor partial, sum;
    struct node node;
    double ns;
    int rc;
    struct hone_error error;
};

struct timing {
    struct seat *seats;
    const struct kernel *kernel;
    enum { ALONE, CAPTURE, REPLAY } phase; /* nobody waits in a kernel while another's is loaded or captured */
};

static int launch(struct seat *s, const struct kernel *k, bool alone)
{
    struct exec x = {
        .worker = {.ith = 0, .nth = 1}, .stream = s->stream, .device = s->device, .few = true, .link = alone ? NULL : s->link};
    int rc = k->run(&x, &s->node);
    return rc ? err_set(&s->error, rc, "%s", s->backend->api->why()) : 0;
}

static int replay(struct seat *s)
{
    const struct device_api *api = s->backend->api;
    double all[REPLAYS];
    int rc = 0;
    for (int i = 0; i < REPLAYS && !rc; i++) {
        int64_t ns = 0;
        rc = api->timer_start(s->device, s->stream, &s->error);
        if (!rc)
            rc = api->replay(s->device, s->stream, s->graph, &s->error);
        if (!rc)
            rc = api->timer_stop(s->device, s->stream, &ns, &s->error);
        all[i] = (double)ns / SUMS;
    }
    if (!rc)
        rc = api->links->check(s->link, &s->error);
    s->ns = rc ? 0 : stats_median(all, REPLAYS);
    if (rc)
        api->links->abort(s->link);
    return rc;
}

static void turn(void *arg, int ith, int nth)
{
    struct timing *t = arg;
    struct seat *s = &t->seats[ith];
    const struct device_api *api = s->backend->api;
    (void)nth;
    s->rc = api->select(s->device, &s->error);
    if (!s->rc && t->phase == ALONE) {
        s->rc = launch(s, t->kernel, true);
        s->rc = s->rc ? s->rc : api->synchronise(s->device, s->stream, &s->error);
    } else if (!s->rc && t->phase == CAPTURE) {
        s->rc = api->capture_begin(s->device, s->stream, &s->error);
        for (int i = 0; i < SUMS && !s->rc; i++)
            s->rc = launch(s, t->kernel, false);
        s->rc = s->rc ? s->rc : api->capture_end(s->device, s->stream, &s->graph, &s->error);
    } else if (!s->rc) {
        s->rc = replay(s);
    }
}

/* One kernel, one size. */
static int measure(struct seat *seats, int n, struct pool *pool, const struct kernel *k, int64_t values, double *ns,
                   struct hone_error *e)
{
    struct timing t = {.seats = seats, .kernel = k};
    struct reason why;
    int rc = 0;
    *ns = 0;
    for (int i = 0; i < n; i++) {
        struct seat *s = &seats[i];
        tensor_shape(&s->partial, FORMAT_F32, 1, &values);
        tensor_shape(&s->sum, FORMAT_F32, 1, &values);
        s->partial.data = s->x;
        s->sum.data = s->y;
        s->graph = NULL;
        s->node = (struct node){.op = OP_ALL_REDUCE, .out = &s->sum, .src = {&s->partial}, .n_src = 1};
    }
    if (k->fits && !k->fits(&seats[0].node, &why))
        return 0;
    for (t.phase = ALONE; t.phase <= REPLAY && !rc; t.phase++) {
        pool_run(pool, turn, &t);
        for (int i = 0; i < n && !rc; i++)
            if (seats[i].rc)
                rc = err_set(e, seats[i].rc, "rank %d: %s", i, seats[i].error.message);
    }
    for (int i = 0; i < n; i++) {
        seats[i].backend->api->graph_free(seats[i].device, seats[i].graph);
        *ns = seats[i].ns > *ns ? seats[i].ns : *ns;
    }
    return rc;
}

static int seat_open(struct seat *s, const struct backend *b, int device, struct hone_error *e)
{
    size_t bytes = (size_t)sizes[LINK_RATE_SIZES - 1] * sizeof(float);
    void *x = NULL, *y = NULL;
    *s = (struct seat){.backend = b, .device = device, .partial = {.name = "link"}, .sum = {.name = "link"}};
    int rc = b->api->stream_create(device, &s->stream, e);
    if (!rc)
        rc = b->api->alloc(device, bytes, &x, e);
    s->x = x;
    if (!rc)
        rc = b->api->alloc(device, bytes, &y, e);
    s->y = y;
    if (!rc)
        rc = b->api->fill(device, s->stream, x, 0x3f, bytes, e); /* 0.747 */
    return rc ? rc : b->api->synchronise(device, s->stream, e);
}

static void seat_close(struct seat *s)
{
    if (!s->backend)
        return;
    s->backend->api->links->free(s->link);
    s->backend->api->free(s->device, s->x);
    s->backend->api->free(s->device, s->y);
    s->backend->api->stream_free(s->device, s->stream);
}

int link_rate_measure(struct link_rate *r, const struct backend *b, const int *devices, int n, const char *way,
                      struct hone_error *e)
{
    struct seat seats[LINK_RATE_RANKS] = {0};
    void *links[LINK_RATE_RANKS] = {NULL};
    int n_kernels;
    const struct kernel *const *kernels = b->kernels(&n_kernels);
    *r = (struct link_rate){.way = "host"};
    if (n < 2 || n > LINK_RATE_RANKS || !b->api->links)
        return err_set(e, HONE_EUSAGE, "%d ranks on %s devices: 2 to %d, where devices have links", n, b->name,
                       LINK_RATE_RANKS);
    struct pool *pool = pool_create(n, 50, e);
    int rc = pool ? 0 : e->code;
    for (int i = 0; i < n && !rc; i++)
        rc = seat_open(&seats[i], b, devices[i], e);
    if (!rc)
        rc = b->api->links->create(links, devices, n, LIMIT_MS, way, e);
    for (int i = 0; i < n && !rc; i++)
        seats[i].link = links[i];
    if (!rc)
        r->way = b->api->links->way(links[0]);
    for (int k = 0; k < n_kernels && !rc && r->n_kernels < LINK_RATE_KERNELS; k++) {
        if (kernels[k]->op != OP_ALL_REDUCE || kernels[k]->by_name_only)
            continue;
        r->kernels[r->n_kernels] = kernels[k]->variant;
        for (int i = 0; i < LINK_RATE_SIZES && !rc; i++) {
            r->bytes[i] = sizes[i] * (int64_t)sizeof(float);
            rc = measure(seats, n, pool, kernels[k], sizes[i], &r->ns[r->n_kernels][i], e);
        }
        r->n_kernels++;
    }
    for (int i = 0; i < n; i++)
        seat_close(&seats[i]);
    pool_free(pool);
    return rc;
}
