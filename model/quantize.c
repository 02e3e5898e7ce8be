/* quantize.c: converts the weights of a GGUF file, one tensor after the other, in pieces that threads take from a counter.
 *
 * Memory stays at a few megabytes for a model of any size: a piece is unpacked to f32 and packed at once, since blocks do not
 * know of each other; the output of a chunk of pieces is written before the next begins. Whole tensors in f32 would be simpler
 * and take 4 GB for the embedding of a large model. Which thread packs a piece changes nothing in it, so the file does not
 * depend on their number.
 *
 * All keys are carried over but those that the new file makes untrue (what the weights are, how the file was split). */
#include "model/quantize.h"

#include "base/cpu.h"
#include "base/half.h"
#include "base/log.h"
#include "base/threads.h"
#include "model/gguf.h"
#include "model/mix.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 13, CHUNK = 1 << 19 }; /* values: one thread's work, and what is written at once (at most 2 MB) */

struct conversion {
    const char *in, *out;
    struct gguf *g;
    struct gguf_writer *w;
    struct pool *pool;
    const struct mix *mix;
    struct mix_model model;
    int *formats;        /* by tensor: enum format_id, or -1: copied as it is */
    uint8_t *buffer;     /* CHUNK values of any format */
    float *scratch;      /* PIECE values a thread */
    int64_t done, total; /* bytes of tensor data read */
    hone_progress_fn *progress;
    void *user;
    int n_requantised, n_fallbacks;
    bool fell_back[N_FORMATS]; /* by the format that was wanted: already told */
};

struct chunk {
    const struct format *from, *to;
    const uint8_t *src;
    uint8_t *dst;
    float *scratch;
    int64_t n;
    _Atomic int64_t next;
    atomic_bool not_finite;
};

static void pack_pieces(void *arg, int ith, int nth)
{
    (void)nth;
    struct chunk *c = arg;
    float *x = c->scratch + (size_t)ith * PIECE;
    for (;;) {
        int64_t at = atomic_fetch_add(&c->next, PIECE), n = c->n - at < PIECE ? c->n - at : PIECE;
        if (at >= c->n)
            return;
        c->from->unpack(c->src + format_row_bytes(c->from, at), x, n);
        unsigned bad = 0;
        for (int64_t i = 0; i < n; i++)
            bad |= (bits_from_f32(x[i]) & 0x7f800000u) == 0x7f800000u;
        if (bad)
            atomic_store(&c->not_finite, true);
        c->to->pack(x, c->dst + format_row_bytes(c->to, at), n);
    }
}

static int report(struct conversion *c, size_t bytes, struct hone_error *e)
{
    c->done += (int64_t)bytes;
    if (c->progress && c->progress(c->user, (float)((double)c->done / (double)c->total)))
        return err_set(e, HONE_ECANCELED, "%s: cancelled", c->out);
    return 0;
}

static int copy_tensor(struct conversion *c, const struct gguf_tensor *t, struct hone_error *e)
{
    const uint8_t *data = t->data;
    for (size_t at = 0; at < t->bytes; at += CHUNK) {
        size_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
        if (gguf_write_data(c->w, data + at, n, e) || report(c, n, e))
            return e->code;
    }
    return 0;
}

static int convert_tensor(struct conversion *c, const struct gguf_tensor *t, enum format_id to, struct hone_error *e)
{
    struct chunk k = {.from = format_get(t->format), .to = format_get(to), .dst = c->buffer, .scratch = c->scratch};
    const uint8_t *data = t->data;
    int64_t n = (int64_t)(t->bytes / (size_t)k.from->bytes) * k.from->block;
    for (int64_t at = 0; at < n; at += CHUNK) {
        k.src = data + format_row_bytes(k.from, at);
        k.n = n - at < CHUNK ? n - at : CHUNK;
        atomic_store(&k.next, 0);
        pool_run(c->pool, pack_pieces, &k);
        if (gguf_write_data(c->w, k.dst, format_row_bytes(k.to, k.n), e) || report(c, format_row_bytes(k.from, k.n), e))
            return e->code;
    }
    if (atomic_load(&k.not_finite))
        log_line(LOG_WARN, "%s: tensor %s holds values that are not finite; so will the result", c->in, t->cname);
    return 0;
}

/* The largest item of an integer key, which may be an array over the layers; 0 where there is none. */
static int64_t largest(const struct gguf *g, struct gguf_string arch, const char *key)
{
    char name[128];
    int64_t max = 0;
    if (arch.size > 64)
        return 0;
    snprintf(name, sizeof name, "%.*s.%s", (int)arch.size, arch.data, key);
    const struct gguf_value *v = gguf_find(g, name);
    if (!v || !gguf_is_integer(v->type == GGUF_ARRAY ? v->element : v->type))
        return 0;
    for (uint64_t i = 0; i < v->n; i++)
        max = gguf_integer(v, i) > max ? gguf_integer(v, i) : max;
    return max < 1 << 20 ? max : 0;
}

static int read_model(struct conversion *c, struct hone_error *e)
{
    struct gguf_string arch;
    int rc = gguf_get_string(c->g, "general.architecture", true, &arch, e);
    if (rc)
        return rc;
    int64_t heads = largest(c->g, arch, "attention.head_count"), kv = largest(c->g, arch, "attention.head_count_kv");
    c->model.n_layer = (int)largest(c->g, arch, "block_count");
    c->model.gqa = kv ? (int)(heads / kv) : 1;
    c->model.tied = !gguf_tensor(c->g, "output.weight");
    return 0;
}

static bool dropped(struct gguf_string key)
{
    static const char *const keys[] = {"general.file_type", "general.quantization_version", "general.alignment", "split.no",
                                       "split.count",       "split.tensors.count"};
    static const char imatrix[] = "quantize.imatrix.";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key.size == strlen(keys[i]) && !memcmp(key.data, keys[i], key.size))
            return true;
    return key.size >= sizeof imatrix - 1 && !memcmp(key.data, imatrix, sizeof imatrix - 1);
}

/* What becomes of one tensor: its new format, or -1. */
static int choose(struct conversion *c, const struct gguf_tensor *t)
{
    enum format_id wanted = t->format;
    int f = format_get(t->format)->unpack ? mix_format(c->mix, &c->model, t->cname, t->n_dims, t->ne, &wanted) : -1;
    if (f < 0)
        return -1;
    if (f != (int)wanted) {
        c->n_fallbacks++;
        log_line(c->fell_back[wanted] ? LOG_DEBUG : LOG_WARN,
                 "%s: %s instead of %s, since rows of %lld values do not divide by %d", t->cname,
                 format_get((enum format_id)f)->name, format_get(wanted)->name, (long long)t->ne[0], format_get(wanted)->block);
        c->fell_back[wanted] = true;
    }
    if (f == (int)t->format)
        return -1;
    c->n_requantised += format_get(t->format)->block > 1 && format_get((enum format_id)f)->block > 1;
    return f;
}

static int declare(struct conversion *c, struct hone_error *e)
{
    for (int64_t i = 0; i < c->g->n_values; i++)
        if (!dropped(c->g->values[i].key))
            gguf_write_value(c->w, NULL, &c->g->values[i]);
    gguf_write_u32(c->w, "general.quantization_version", 2);
    gguf_write_u32(c->w, "general.file_type", mix_file_type(c->mix));
    for (int64_t i = 0; i < c->g->n_tensors; i++) {
        const struct gguf_tensor *t = &c->g->tensors[i];
        if (!t->known)
            return err_set(e, HONE_EINPUT, "%s: tensor %s has type number %d, which hone does not read", c->in, t->cname,
                           t->gguf_type);
        c->formats[i] = choose(c, t);
        gguf_write_tensor(c->w, t->cname, c->formats[i] < 0 ? t->format : (enum format_id)c->formats[i], t->n_dims, t->ne);
        c->total += (int64_t)t->bytes;
    }
    if (c->n_fallbacks > 1)
        log_line(LOG_WARN, "%s: %d tensors took a fallback format in this way", c->in, c->n_fallbacks);
    if (c->n_requantised)
        log_line(LOG_WARN, "%s: %d tensors were quantised before; doing it again loses more than quantising the original",
                 c->in, c->n_requantised);
    return 0;
}

static int refuse_same_file(const struct gguf *g, const char *out, struct hone_error *e)
{
    struct stat a, b;
    if (stat(out, &b))
        return 0; /* not there yet, or the writer will say what is wrong */
    for (int i = 0; i < g->n_parts; i++)
        if (!stat(g->part_paths[i], &a) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return err_set(e, HONE_EUSAGE, "%s: input and output are the same file", out);
    return 0;
}

int model_quantize(const char *in, const char *out, const char *type, int n_threads, hone_progress_fn *progress, void *user,
                   struct hone_error *e)
{
    struct hone_error own = {0};
    e = e ? e : &own;
    struct conversion c = {.in = in, .out = out, .progress = progress, .user = user, .mix = mix_find(type)};
    int rc, threads = n_threads > 0 ? n_threads : cpu_cores();
    if (!c.mix)
        return err_set(e, HONE_EUSAGE, "'%.40s' is no weight type; there are %s", type, mix_names());
    if ((rc = gguf_open(&c.g, in, e)))
        return rc;
    if ((rc = refuse_same_file(c.g, out, e)) || (rc = read_model(&c, e)))
        goto done;
    c.pool = pool_create(threads, 0, e);
    if (!c.pool) {
        rc = e->code;
        goto done;
    }
    c.formats = calloc((size_t)c.g->n_tensors + 1, sizeof *c.formats);
    c.buffer = malloc((size_t)CHUNK * sizeof(float));
    c.scratch = malloc((size_t)threads * PIECE * sizeof(float));
    if (!c.formats || !c.buffer || !c.scratch) {
        rc = err_set(e, HONE_ERESOURCE, "%s: out of memory", in);
        goto done;
    }
    rc = gguf_writer_create(&c.w, out, e);
    if (!rc)
        rc = declare(&c, e);
    for (int64_t i = 0; i < c.g->n_tensors && !rc; i++)
        rc = c.formats[i] < 0 ? copy_tensor(&c, &c.g->tensors[i], e)
                              : convert_tensor(&c, &c.g->tensors[i], (enum format_id)c.formats[i], e);
done:
    if (c.w) {
        int closed = gguf_writer_close(c.w, !rc, e);
        rc = rc ? rc : closed;
    }
    pool_free(c.pool);
    free(c.scratch);
    free(c.buffer);
    free(c.formats);
    gguf_close(c.g);
    return rc;
}
