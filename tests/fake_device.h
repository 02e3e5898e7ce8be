/* fake_device.h: a backend of pretended devices, so that all that the host does for a device is tested without one.
 *
 * Its memory is pages that nobody may touch but while the device works, so a pointer of a device that is followed on the host ends the
 * test. Work is queued and done when the stream is synchronised, no sooner, with the addresses of when it was queued: a result that is
 * read too early, or a buffer that is written too early, is wrong. What is captured is kept as a queue and queued again by a replay.
 * Its kernels are the references; a second one for products wants packed weights and quantised activations. Ranks on such devices meet
 * in collectives as threads do (comm/comm.h), while their streams are synchronised. */
#ifndef TESTS_FAKE_DEVICE_H
#define TESTS_FAKE_DEVICE_H

#include "test.h"

#include "backends/backend.h"
#include "base/arena.h"
#include "base/mmap.h"
#include "comm/comm.h"
#include "formats/layouts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FAKE_DEVICES = 2, FAKE_BLOCKS = 4096, FAKE_WORDS = 1 << 12 };
static const size_t fake_space = 1ul << 30;

static struct {
    unsigned char *space; /* of all devices */
    size_t used;
    void *blocks[FAKE_BLOCKS];
    size_t sizes[FAKE_BLOCKS];
    int n_blocks, n_streams, n_graphs, n_host; /* alive */
    size_t bytes, limit;                       /* alive; more than that is out of memory */
    int launches, replays, copies, syncs;      /* so far; launches are of kernels, queued or captured */
    int n_links;                               /* alive */
    int opened;                                /* who work at the moment */
    uint64_t missing;                          /* a bit an op: no kernel of it fits */
    uint64_t absent;                           /* a bit an op: there is no kernel of it */
    int fail_op;                               /* a kernel of this op returns an error when it is launched; -1: none */
    int fail_rank;                             /* of this rank alone; -1: of any */
    bool no_capture;                           /* captures fail */
    bool no_whole, no_prepare;                 /* no nodes are taken as a whole; what was taken cannot be prepared */
    bool whole_fails;                          /* the next one gives up */
    int n_wholes, prepared, whole_launches;    /* alive; so far */
} fake = {.limit = SIZE_MAX, .fail_op = -1, .fail_rank = -1};
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER; /* ranks are threads */

static void fake_count(int *what, int n)
{
    __atomic_fetch_add(what, n, __ATOMIC_RELAXED);
}

struct fake_work {
    struct fake_work *next;
    void *to;
    const void *from; /* NULL: fill with byte */
    size_t bytes;
    int byte;
    struct node *node; /* NULL: a copy or fill */
    struct fake_link *link; /* of a collective */
};

struct fake_link {
    struct comm *comm;
};

struct fake_stream {
    struct arena arena;   /* of what is queued */
    struct arena *recorded; /* not NULL: capturing, into that */
    struct fake_work *first, **last;
};

struct fake_graph {
    struct arena arena;
    struct fake_work *first;
};

static struct fake_stream fake_default[FAKE_DEVICES];

static struct fake_stream *fake_stream_of(int device, void *stream)
{
    struct fake_stream *s = stream ? stream : &fake_default[device];
    if (!s->last)
        s->last = &s->first;
    return s;
}

/* ---- memory */

/* With the lock held. */
static void fake_open(bool open)
{
    fake.opened += open ? 1 : -1;
    if (fake.opened == open)
        assert_int_equal(mprotect(fake.space, fake_space, open ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

static int fake_alloc_locked(int device, size_t bytes, void **p, struct hone_error *e)
{
    if (!fake.space)
        fake.space = mmap(NULL, fake_space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *p = NULL;
    if (fake.bytes + bytes > fake.limit || fake.used + bytes + 512 > fake_space || fake.n_blocks == FAKE_BLOCKS)
        return err_set(e, HONE_ERESOURCE, "fake%d has no memory for %zu bytes; %zu are in use", device, bytes, fake.bytes);
    *p = fake.space + fake.used;
    fake_open(true);
    memset(*p, 0x7f, bytes); /* undefined contents */
    fake_open(false);
    fake.used += (bytes + 511) / 256 * 256;
    fake.blocks[fake.n_blocks] = *p;
    fake.sizes[fake.n_blocks++] = bytes;
    fake.bytes += bytes;
    return 0;
}

static int fake_alloc(int device, size_t bytes, void **p, struct hone_error *e)
{
    pthread_mutex_lock(&fake_lock);
    int rc = fake_alloc_locked(device, bytes, p, e);
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

static void fake_free_locked(void *p)
{
    int i = 0;
    while (i < fake.n_blocks && fake.blocks[i] != p)
        i++;
    assert_true(i < fake.n_blocks);
    fake_open(true);
    memset(p, 0xee, fake.sizes[i]); /* who reads it on gets nonsense */
    fake_open(false);
    fake.bytes -= fake.sizes[i];
    if ((unsigned char *)p + (fake.sizes[i] + 511) / 256 * 256 == fake.space + fake.used) { /* the last one: its pages go, too */
        fake.used = (size_t)((unsigned char *)p - fake.space);
        uintptr_t page = ((uintptr_t)p + 4095) / 4096 * 4096;
        if ((unsigned char *)page < (unsigned char *)p + fake.sizes[i])
            madvise((void *)page, (size_t)((unsigned char *)p + fake.sizes[i] - (unsigned char *)page), MADV_DONTNEED);
    }
    fake.n_blocks--;
    fake.blocks[i] = fake.blocks[fake.n_blocks];
    fake.sizes[i] = fake.sizes[fake.n_blocks];
    if (!fake.n_blocks)
        fake.used = 0;
}

static void fake_free(int device, void *p)
{
    (void)device;
    if (!p)
        return;
    pthread_mutex_lock(&fake_lock);
    fake_free_locked(p);
    pthread_mutex_unlock(&fake_lock);
}

static int fake_host_alloc(size_t bytes, void **p, struct hone_error *e)
{
    *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    fake_count(&fake.n_host, *p != NULL);
    return *p ? 0 : err_set(e, HONE_ERESOURCE, "no memory");
}

static void fake_host_free(void *p)
{
    fake_count(&fake.n_host, -(p != NULL));
    free(p);
}

/* ---- work */

static struct arena *fake_room(struct fake_stream *s)
{
    return s->recorded ? s->recorded : &s->arena;
}

static void fake_queue(struct fake_stream *s, struct fake_work work)
{
    struct fake_work *w = arena_alloc(fake_room(s), sizeof *w);
    assert_non_null(w);
    *w = work;
    w->next = NULL;
    *s->last = w;
    s->last = &w->next;
}

struct fake_seen {
    const struct tensor *of[256];
    struct tensor *is[256];
    int n;
};

/* The node as it is now: a launch has its addresses from then on. */
static struct tensor *fake_tensor(struct arena *a, struct fake_seen *seen, const struct tensor *t)
{
    if (!t)
        return NULL;
    for (int i = 0; i < seen->n; i++)
        if (seen->of[i] == t)
            return seen->is[i];
    struct tensor *is = arena_alloc(a, sizeof *is);
    assert_true(is && seen->n < 256);
    *is = *t;
    seen->of[seen->n] = t;
    seen->is[seen->n++] = is;
    is->base = fake_tensor(a, seen, t->base);
    return is;
}

static struct node *fake_node(struct arena *a, struct fake_seen *seen, const struct node *n)
{
    struct node *is = arena_alloc(a, sizeof *is), **parts = arena_array(a, (size_t)n->n_parts, sizeof *parts);
    assert_true(is && parts);
    *is = *n;
    is->parts = parts;
    is->out = fake_tensor(a, seen, n->out);
    for (int i = 0; i < n->n_src; i++)
        is->src[i] = fake_tensor(a, seen, n->src[i]);
    for (int i = 0; i < n->n_parts; i++)
        parts[i] = fake_node(a, seen, n->parts[i]);
    return is;
}

/* Whether n does what a kernel of op does. */
static bool fake_does(const struct node *n, int op)
{
    bool does = (int)n->op == op;
    for (int i = 0; i < n->n_parts; i++)
        does |= fake_does(n->parts[i], op);
    return does;
}

static int fake_run(const struct exec *x, const struct node *n)
{
    struct fake_seen seen = {.n = 0};
    struct fake_stream *s = fake_stream_of(x->device, x->stream);
    assert_int_equal(x->worker.nth, 1);
    int rank = x->link ? comm_rank(((const struct fake_link *)x->link)->comm) : -1;
    if (fake_does(n, fake.fail_op) && (fake.fail_rank < 0 || fake.fail_rank == rank))
        return HONE_EFAULT;
    fake_count(&fake.launches, 1);
    fake_queue(s, (struct fake_work){.node = fake_node(fake_room(s), &seen, n), .link = x->link});
    return 0;
}

/* What lies on a device lies in a block that nobody has freed. */
static void fake_alive(const void *p)
{
    const unsigned char *at = p;
    bool alive = !fake.space || at < fake.space || at >= fake.space + fake_space;
    for (int i = 0; i < fake.n_blocks && !alive; i++)
        alive = at >= (unsigned char *)fake.blocks[i] && at <= (unsigned char *)fake.blocks[i] + fake.sizes[i];
    assert_true(alive);
}

static void fake_do(const struct fake_work *w)
{
    fake_alive(w->node ? w->node->out->data : w->to);
    for (int i = 0; w->node && i < w->node->n_src; i++)
        if (w->node->src[i])
            fake_alive(w->node->src[i]->data);
    if (w->node) {
        size_t size = (node_scratch(w->node) + 127) / 64 * 64;
        void *scratch = aligned_alloc(64, size);
        assert_non_null(scratch);
        struct comm *comm = w->link ? w->link->comm : NULL;
        node_reference(w->node, &(struct worker){.ith = 0, .nth = 1, .scratch = scratch, .scratch_size = size, .comm = comm});
        free(scratch);
    } else if (w->from) {
        memcpy(w->to, w->from, w->bytes);
    } else {
        memset(w->to, w->byte, w->bytes);
    }
}

static int fake_synchronise(int device, void *stream, struct hone_error *e)
{
    struct fake_stream *s = fake_stream_of(device, stream);
    (void)e;
    assert_null(s->recorded);
    fake_count(&fake.syncs, 1);
    pthread_mutex_lock(&fake_lock);
    bool space = fake.space != NULL;
    if (space)
        fake_open(true);
    pthread_mutex_unlock(&fake_lock);
    for (const struct fake_work *w = s->first; w; w = w->next)
        fake_do(w);
    pthread_mutex_lock(&fake_lock);
    if (space)
        fake_open(false);
    pthread_mutex_unlock(&fake_lock);
    s->first = NULL;
    s->last = &s->first;
    arena_free(&s->arena);
    return 0;
}

static int fake_copy(int device, void *stream, void *to, const void *from, size_t bytes, struct hone_error *e)
{
    (void)e;
    fake_count(&fake.copies, 1);
    fake_queue(fake_stream_of(device, stream), (struct fake_work){.to = to, .from = from, .bytes = bytes});
    return 0;
}

static int fake_fill(int device, void *stream, void *to, int byte, size_t bytes, struct hone_error *e)
{
    (void)e;
    fake_queue(fake_stream_of(device, stream), (struct fake_work){.to = to, .byte = byte, .bytes = bytes});
    return 0;
}

static int fake_transfer_run(const struct exec *x, const struct node *n)
{
    return fake_copy(x->device, x->stream, n->out->data, n->src[0]->data, tensor_nbytes(n->src[0]), NULL);
}

static int fake_stream_create(int device, void **stream, struct hone_error *e)
{
    (void)device, (void)e;
    *stream = calloc(1, sizeof(struct fake_stream));
    fake_count(&fake.n_streams, 1);
    return 0;
}

static void fake_stream_free(int device, void *stream)
{
    (void)device;
    if (!stream)
        return;
    assert_null(((struct fake_stream *)stream)->first); /* nobody leaves work undone */
    arena_free(&((struct fake_stream *)stream)->arena);
    free(stream);
    fake_count(&fake.n_streams, -1);
}

/* ---- captures */

static int fake_capture_begin(int device, void *stream, struct hone_error *e)
{
    struct fake_stream *s = fake_stream_of(device, stream);
    if (fake.no_capture)
        return err_set(e, HONE_EFAULT, "the fake device captures nothing");
    struct fake_graph *g = calloc(1, sizeof *g);
    /* What is queued already stays so: it runs before the replay. */
    fake_synchronise(device, stream, e);
    s->recorded = &g->arena;
    return 0;
}

static int fake_capture_end(int device, void *stream, void **graph, struct hone_error *e)
{
    struct fake_stream *s = fake_stream_of(device, stream);
    (void)e;
    struct fake_graph *g = (struct fake_graph *)((char *)s->recorded - offsetof(struct fake_graph, arena));
    g->first = s->first;
    s->recorded = NULL;
    s->first = NULL;
    s->last = &s->first;
    *graph = g;
    fake_count(&fake.n_graphs, 1);
    return 0;
}

static int fake_replay(int device, void *stream, void *graph, struct hone_error *e)
{
    (void)e;
    fake_count(&fake.replays, 1);
    for (const struct fake_work *w = ((struct fake_graph *)graph)->first; w; w = w->next)
        fake_queue(fake_stream_of(device, stream), *w);
    return 0;
}

static void fake_graph_free(int device, void *graph)
{
    (void)device;
    if (!graph)
        return;
    arena_free(&((struct fake_graph *)graph)->arena);
    free(graph);
    fake_count(&fake.n_graphs, -1);
}

static int fake_timer_start(int device, void *stream, struct hone_error *e)
{
    return fake_synchronise(device, stream, e);
}

static int fake_timer_stop(int device, void *stream, int64_t *ns, struct hone_error *e)
{
    *ns = 1000;
    return fake_synchronise(device, stream, e);
}

static int fake_select(int device, struct hone_error *e)
{
    (void)device, (void)e;
    return 0;
}

static const char *fake_why(void)
{
    return "the fake kernel was told to fail";
}

/* ---- kernels */

static bool fake_fits(const struct node *n, struct reason *r)
{
    return fake.missing & 1ull << n->op ? fits_not(r, "it was told not to fit") : true;
}

static const struct layout *fake_layout(enum format_id f)
{
    return f == FORMAT_Q4_0 ? &layout_q4_0_x16 : f == FORMAT_Q4_K ? &layout_q4_K_x16 : NULL;
}

static bool fake_packed_fits(const struct node *n, struct reason *r)
{
    if (!fake_layout(n->src[0]->format))
        return fits_not(r, "no layout of this format");
    return n->src[0]->ne[0] % 32 ? fits_not(r, "odd rows") : fake_fits(n, r);
}

#define OP(NAME, name)                                                                                                         \
    static const struct kernel fake_op_##name = {.op = OP_##NAME, .variant = "plain", .fits = fake_fits, .run = fake_run,      \
                                                 .writes_host = OP_##NAME == OP_MUL_MAT};
#include "ops/ops.def"
#undef OP
/* Reads the embedding in whatever layout the head wants it. */
static const struct kernel fake_lookup = {.op = OP_GET_ROWS, .variant = "plain", .wants.any_layout = true, .fits = fake_fits,
                                          .run = fake_run};
static const struct kernel fake_packed = {.op = OP_MUL_MAT, .variant = "packed",
                                          .wants = {.layout_for = fake_layout, .quantized = true, .activation = FORMAT_A8},
                                          .fits = fake_packed_fits, .run = fake_run};
static const struct kernel *const fake_all[] = {
#define OP(NAME, name) OP_##NAME == OP_GET_ROWS ? &fake_lookup : &fake_op_##name,
#include "ops/ops.def"
#undef OP
    &fake_packed,
};
static const struct kernel fake_transfer = {.op = OP_COPY, .variant = "transfer", .run = fake_transfer_run};

/* Those that are there now, in a list that stays valid. */
static const struct kernel *const *fake_kernels(int *n)
{
    static const struct kernel *lists[16][sizeof fake_all / sizeof *fake_all];
    static uint64_t absent[16];
    static int counts[16], used;
    for (int i = 0; i < used; i++)
        if (absent[i] == fake.absent) {
            *n = counts[i];
            return lists[i];
        }
    assert_true(used < 16);
    for (size_t k = 0; k < sizeof fake_all / sizeof *fake_all; k++)
        if (!(fake.absent & 1ull << fake_all[k]->op))
            lists[used][counts[used]++] = fake_all[k];
    absent[used] = fake.absent;
    *n = counts[used];
    return lists[used++];
}

static int fake_n_devices(void)
{
    return FAKE_DEVICES;
}

static int fake_device(int i, struct device_info *info, struct hone_error *e)
{
    (void)e;
    *info = (struct device_info){.units = 1, .memory_total = fake_space, .memory_free = (fake.limit < fake_space ? fake.limit : fake_space) - fake.bytes};
    snprintf(info->name, sizeof info->name, "fake %d", i);
    return 0;
}

static unsigned fake_features(int device)
{
    (void)device;
    return 1;
}

static const char *fake_feature_name(unsigned bit)
{
    return bit == 1 ? "fake" : NULL;
}

/* ---- links */

static int fake_links_make(void *const *links, int n, int limit_ms, struct hone_error *e)
{
    struct comm *ends[16];
    struct comm_params p = {.n_workers = 1, .limit_ms = limit_ms};
    int rc = comm_local_create(ends, n, &p, e);
    for (int i = 0; i < n && !rc; i++)
        ((struct fake_link *)links[i])->comm = ends[i];
    return rc;
}

static int fake_links_limit; /* of the last group */

static int fake_links_create(void **links, const int *devices, int n, int limit_ms, const char *way, struct hone_error *e)
{
    (void)devices;
    if (n > 16 || (way && strcmp(way, "fake") != 0))
        return err_set(e, HONE_EUSAGE, "%d ranks do not meet by %s", n, way ? way : "fake");
    for (int i = 0; i < n; i++)
        links[i] = calloc(1, sizeof(struct fake_link));
    fake_count(&fake.n_links, n);
    return fake_links_make(links, n, fake_links_limit = limit_ms, e);
}

static void fake_link_free(void *link)
{
    if (!link)
        return;
    comm_free(((struct fake_link *)link)->comm);
    free(link);
    fake_count(&fake.n_links, -1);
}

static int fake_links_reset(void *const *links, int n, struct hone_error *e)
{
    for (int i = 0; i < n; i++)
        comm_free(((struct fake_link *)links[i])->comm);
    return fake_links_make(links, n, fake_links_limit, e);
}

static void fake_link_abort(void *link)
{
    comm_abort(((struct fake_link *)link)->comm, HONE_EFAULT, "it ended the step");
}

static int fake_link_check(void *link, struct hone_error *e)
{
    const struct hone_error *why = comm_error(((struct fake_link *)link)->comm);
    return why->code ? err_set(e, why->code, "%s", why->message) : 0;
}

static const char *fake_link_way(const void *link)
{
    (void)link;
    return "fake";
}

static const struct link_api fake_links = {.create = fake_links_create, .free = fake_link_free, .reset = fake_links_reset,
                                           .abort = fake_link_abort, .check = fake_link_check, .way = fake_link_way};

/* ---- wholes: all nodes of a segment but the first */

struct fake_whole {
    const struct node *const *nodes;
    int n;
};

static int fake_claim(struct arena *arena, const struct node *const *nodes, const struct kernel *const *kernels, int n_all, int from, int end, int device,
                      void **whole, int *first, int *n, struct reason *r, struct hone_error *e)
{
    (void)kernels, (void)device;
    struct fake_whole *w = arena_alloc(arena, sizeof *w);
    assert_true(from >= 0 && from < end && end <= n_all);
    if (!w)
        return err_set(e, HONE_ERESOURCE, "no memory");
    *whole = NULL;
    if (fake.no_whole || end - from < 2) {
        fits_not(r, "it was told not to");
        return 0;
    }
    *w = (struct fake_whole){nodes + from + 1, end - from - 1};
    *first = from + 1;
    *n = w->n;
    *whole = w;
    fake_count(&fake.n_wholes, 1);
    return 0;
}

static size_t fake_whole_bytes(const void *whole)
{
    return whole ? 1000 : 0;
}

static int fake_whole_prepare(void *whole, int device, void *stream, void *memory, struct hone_error *e)
{
    if (fake.no_prepare)
        return err_set(e, HONE_EFAULT, "it was told that it cannot be");
    assert_non_null(whole);
    assert_int_equal((uintptr_t)memory % 256, 0);
    fake_count(&fake.prepared, 1);
    return fake_fill(device, stream, memory, 0xee, 1000, e); /* of nobody else's */
}

static int fake_whole_launch(const struct exec *x, const void *whole)
{
    const struct fake_whole *w = whole;
    int rc = 0;
    fake_count(&fake.whole_launches, 1);
    for (int i = 0; i < w->n && !rc; i++)
        rc = fake_run(x, w->nodes[i]);
    return rc;
}

static int fake_whole_check(const void *whole, struct hone_error *e)
{
    (void)whole;
    bool fails = fake.whole_fails;
    fake.whole_fails = false;
    return fails ? err_set(e, HONE_EFAULT, "the fake whole gave up") : 0;
}

static void fake_whole_release(void *whole)
{
    assert_non_null(whole);
    fake_count(&fake.n_wholes, -1);
}

static const struct whole_api fake_wholes = {fake_claim, fake_whole_bytes, fake_whole_prepare, fake_whole_launch, fake_whole_check,
                                             fake_whole_release};

static const struct device_api fake_api = {
    .select = fake_select, .alloc = fake_alloc, .free = fake_free, .host_alloc = fake_host_alloc, .host_free = fake_host_free,
    .stream_create = fake_stream_create, .stream_free = fake_stream_free, .copy = fake_copy, .fill = fake_fill,
    .synchronise = fake_synchronise, .capture_begin = fake_capture_begin, .capture_end = fake_capture_end, .replay = fake_replay,
    .graph_free = fake_graph_free, .timer_start = fake_timer_start, .timer_stop = fake_timer_stop, .why = fake_why,
    .transfer = &fake_transfer, .links = &fake_links, .wholes = &fake_wholes,
};

static const struct backend fake_backend = {
    .name = "fake", .api = &fake_api, .n_devices = fake_n_devices, .device = fake_device, .features = fake_features,
    .feature_name = fake_feature_name, .kernels = fake_kernels,
};

#endif
