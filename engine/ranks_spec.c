/* ranks_spec.c: what -sm, -ts, -dev and -t say about ranks, as one answer or one refusal.
 *
 *   -sm tensor -ts 1/1            two groups of threads with equal shares; -t is shared out evenly among them
 *   -sm tensor -dev cpu:2,cpu:1   two groups, of two threads and of one; their shares go by their threads unless -ts says otherwise
 *   -sm layer  -ts 3/1            the same, each with its own layers
 *   -sm tensor -dev cuda0,cuda1   two GPUs, with equal shares unless -ts says otherwise
 *   -sm tensor -dev cuda0,cuda0   two ranks on one GPU, each with streams and memory of its own: to try a split without a second
 *
 * A comma does what a slash does. A device is "cpu", with or without a number of threads, or one of another backend's, as often
 * as it is to have ranks. Without -dev all GPUs are taken where there are two or more, and as many as shares; else groups of
 * threads. -ngl 0 keeps a split off GPUs; a split by tensors is of all layers. Where mpirun started several
 * processes each of them is a device, of -t threads, and -dev has nothing to say. */
#include "engine/follow.h"
#include "engine/ranks.h"

#include "base/cpu.h"
#include "engine/places.h"
#include "engine/split_words.h"
#include "hone.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)SPLIT_MOST == (int)SHARD_MAX_RANKS, "a share for each rank");

static bool empty(const char *text)
{
    return !text || !*text;
}

static int mode_read(struct ranks_spec *s, const char *word, struct hone_error *e)
{
    s->n = 0;
    if (empty(word) || !strcmp(word, "none"))
        s->n = 1;
    else if (!strcmp(word, "tensor"))
        s->mode = SHARD_TENSOR;
    else if (!strcmp(word, "layer"))
        s->mode = SHARD_LAYER;
    else
        return err_set(e, HONE_EUSAGE, "-sm %.40s: none, layer and tensor are possible", word);
    return 0;
}

/* Each rank must have something: a share of zero is none here. */
static int shares_read(struct ranks_spec *s, const char *list, int *n, struct hone_error *e)
{
    double shares[SPLIT_MOST];
    int rc = split_shares(list, shares, n, e);
    for (int i = 0; i < *n && !rc; i++) {
        s->shares[i] = shares[i];
        if (!(shares[i] > 0))
            rc = err_set(e, HONE_EUSAGE, "-ts %.80s: '%g' is no share above 0: each device of a split has some", list, shares[i]);
    }
    return rc;
}

static int devices_read(struct ranks_spec *s, const char *list, int *n, struct hone_error *e)
{
    const char *words[SHARD_MAX_RANKS];
    size_t sizes[SHARD_MAX_RANKS];
    *n = split_list("-dev", list, words, sizes, e);
    if (*n < 0)
        return e->code;
    for (int i = 0; i < *n; i++) {
        struct rank_at *at = &s->at[i];
        if (split_cpu(words[i], sizes[i], &s->threads[i]))
            continue;
        if (!strncmp(words[i], "cpu", 3))
            return err_set(e, HONE_EUSAGE, "-dev %.80s: '%.*s' is no group of threads: cpu and cpu:THREADS are", list,
                           (int)(sizes[i] < 40 ? sizes[i] : 40), words[i]);
        if (!places_device(words[i], sizes[i], &at->backend, &at->device))
            return places_unknown(words[i], sizes[i], e);
        s->n_devices++;
    }
    return 0;
}

/* Every GPU that can run kernels, where there are as many as are wanted. */
static void devices_find(struct ranks_spec *s, int n_shares, int *n)
{
    struct rank_at found[SHARD_MAX_RANKS];
    int all = 0, most = n_shares ? n_shares : SHARD_MAX_RANKS;
    while (all < most && places_nth(all, &found[all].backend, &found[all].device))
        all++;
    if (all < 2 || all < n_shares)
        return;
    memcpy(s->at, found, (size_t)all * sizeof *found);
    *n = s->n_devices = all;
}

/* What no device names is shared out evenly, the first ones have what is left over. */
static void threads_fill(struct ranks_spec *s, int n_threads)
{
    int total = n_threads ? n_threads : follow_threads(false), open = 0, given = 0;
    for (int i = 0; i < s->n; i++) {
        total -= s->threads[i];
        open += !s->threads[i];
    }
    for (int i = 0; i < s->n; i++)
        if (!s->threads[i]) {
            int mine = total > 0 ? total / open + (given < total % open) : 0;
            s->threads[i] = mine > 0 ? mine : 1;
            given++;
        }
}

/* Over processes: as many ranks as there are of those. */
static int processes_read(struct ranks_spec *s, const struct hone_session_params *p, bool named, int n_shares,
                          struct hone_error *e)
{
    struct comm *world = follow_comm();
    int threads = p->n_threads ? p->n_threads : follow_threads(true);
    s->n = comm_size(world);
    if (s->n < 2 || s->n > SHARD_MAX_RANKS)
        return err_set(e, HONE_EUSAGE, "-sm %s over %d process(es): 2 to %d are possible", p->split_mode, s->n,
                       SHARD_MAX_RANKS);
    if (named)
        return err_set(e, HONE_EUSAGE, "-dev %.80s: each process is one device, of -t threads", p->devices);
    if (n_shares && n_shares != s->n)
        return err_set(e, HONE_EUSAGE, "-ts has %d shares; mpirun started %d processes", n_shares, s->n);
    if (threads > FOLLOW_THREADS)
        return err_set(e, HONE_EUSAGE, "%d threads in each of several processes: at most %d are possible", threads,
                       FOLLOW_THREADS);
    for (int i = 0; i < s->n; i++) {
        s->threads[i] = threads;
        s->shares[i] = n_shares ? s->shares[i] : 1;
    }
    return 0;
}

int ranks_spec_read(struct ranks_spec *s, const struct hone_session_params *p, struct hone_error *e)
{
    *s = (struct ranks_spec){.n = 1};
    int rc = mode_read(s, p->split_mode, e), n_shares = 0, n_devices = 0;
    if (rc || s->n == 1)
        return rc;
    bool named = !empty(p->devices) && strcmp(p->devices, "auto") != 0 && strcmp(p->devices, "none") != 0;
    if (shares_read(s, p->tensor_split, &n_shares, e))
        return e->code;
    if (follow_comm())
        return processes_read(s, p, named, n_shares, e);
    bool by_layer = s->mode == SHARD_LAYER;
    if (named && devices_read(s, p->devices, &n_devices, e))
        return e->code;
    if (!named && !by_layer && p->n_gpu_layers)
        devices_find(s, n_shares, &n_devices);
    if (s->n_devices && !by_layer && !p->n_gpu_layers)
        return err_set(e, HONE_EUSAGE, "-dev %.80s: -ngl 0 leaves nothing to a GPU", p->devices);
    /* All layers on one device, or on GPUs, among which they are divided as places (places.h). */
    if (by_layer && ((n_shares < 2 && n_devices < 2) || s->n_devices)) {
        s->n = 1;
        return 0;
    }
    if (!n_shares && !n_devices)
        return err_set(e, HONE_EUSAGE, "-sm %s over which devices? Give -ts 1/1 for two groups of threads, or -dev cpu:1,cpu:1",
                       p->split_mode);
    if (n_shares && n_devices && n_shares != n_devices)
        return err_set(e, HONE_EUSAGE, "-ts has %d shares, -dev %d devices", n_shares, n_devices);
    s->n = n_shares ? n_shares : n_devices;
    if (s->n < 2)
        return err_set(e, HONE_EUSAGE, "-sm %s over one device: it takes two or more", p->split_mode);
    threads_fill(s, p->n_threads);
    for (int i = 0; i < s->n && !n_shares; i++)
        s->shares[i] = s->n_devices ? 1 : s->threads[i];
    return 0;
}
