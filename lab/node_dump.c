/* node_dump.c: an observer. All values go through tensor_read_row, so a hash means the numbers and not how they lie: a padded
 * row, another stride or a view of a cache give the same hash where the numbers are the same. Integers are not listed: no
 * kernel computes any.
 *
 * Writing raw memory would be faster and would make every layout of a value a difference. */
#include "lab/node_dump.h"

#include "base/hash.h"
#include "lab/node_copy.h"
#include "model/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result_fn(struct node_dump *d, const struct step *s, struct tensor *t);

/* Calls fn for each tensor that the node leaves, the inner ones of a fusion first. */
static int each_result(struct node_dump *d, const struct step *s, result_fn *fn)
{
    const struct node *n = s->node;
    int rc = 0;
    if (!s->backend->host && s->kernel == s->backend->api->transfer)
        return 0; /* what it moves was listed where it was made */
    for (int i = 0; i < n->n_parts && !rc; i++) {
        struct tensor *t = n->parts[i]->out;
        bool state = (t->base ? t->base : t)->kind == TENSOR_STATE;
        if (t != n->out && (state || node_leaves(n, t)) && format_get(t->format)->unpack)
            rc = fn(d, s, t);
        if (!rc && node_updates(n->parts[i]))
            rc = fn(d, s, node_updates(n->parts[i]));
    }
    if (!rc && node_updates(n))
        rc = fn(d, s, node_updates(n));
    return rc || !format_get(n->out->format)->unpack ? rc : fn(d, s, n->out);
}

static int declare(struct node_dump *d, const struct step *s, struct tensor *t)
{
    (void)s;
    size_t bytes = (size_t)tensor_elements(t) * sizeof(float);
    int i = d->n++;
    if (i < d->first || i != d->end || !bytes || bytes > d->bytes)
        return 0;
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    gguf_write_tensor(d->writer, name, FORMAT_F32, MAX_DIMS, t->ne);
    d->bytes -= bytes;
    d->end = i + 1;
    return 0;
}

static int before(void *user, const struct plan *p, int step)
{
    struct node_dump *d = user;
    if (step || !d->file || d->writer)
        return 0;
    int rc = gguf_writer_create(&d->writer, d->file, &d->error);
    if (rc)
        return rc;
    gguf_write_string(d->writer, "general.type", "hone.nodes");
    d->n = 0;
    d->end = d->first;
    for (int i = 0; i < p->n_steps; i++)
        each_result(d, &p->steps[i], declare);
    d->n = 0;
    return 0;
}

static json_t *sources(const struct node *n)
{
    json_t *list = json_array();
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i])
            json_array_append_new(list, json_string(n->src[i]->name));
    return list;
}

/* Hashes the values row by row, and writes them. */
static int take(struct node_dump *d, const struct step *s, struct tensor *t)
{
    char kernel[128], shape[128];
    uint64_t h[2] = {0, 0};
    int i = d->n++, rc = 0;
    bool filed = d->writer && i >= d->first && i < d->end;
    if (t->ne[0] > d->room_size) {
        float *room = realloc(d->room, (size_t)t->ne[0] * sizeof *room);
        if (!room)
            return err_set(&d->error, HONE_ERESOURCE, "no memory for a row of %s", t->name);
        d->room = room;
        d->room_size = t->ne[0];
    }
    for (int64_t r = 0; r < tensor_rows(t) && t->ne[0] && !rc; r++) {
        int64_t at[3];
        tensor_row_index(t, r, at);
        const float *row = tensor_read_row(t, at[0], at[1], at[2], d->room);
        h[1] = hash64(row, (size_t)t->ne[0] * sizeof *row);
        h[0] = hash64(h, sizeof h);
        if (filed)
            rc = gguf_write_data(d->writer, row, (size_t)t->ne[0] * sizeof *row, &d->error);
    }
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)h[0]);
    kernel_name(s->backend, s->kernel, kernel, sizeof kernel);
    json_array_append_new(d->list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:b, s:b}", "tensor", t->name, "op",
                                             op_get(s->node->op)->name, "kernel", kernel, "format", format_get(t->format)->name,
                                             "shape", tensor_describe(t, shape, sizeof shape), "src", sources(s->node), "hash",
                                             hash, "file", filed, "part", t->sharding != SHARDING_MIRRORED));
    return rc;
}

static int after(void *user, const struct plan *p, int step, int64_t ns)
{
    struct node_dump *d = user;
    const struct step *s = &p->steps[step];
    (void)ns;
    if (s->backend->host)
        return each_result(d, s, take);
    struct mirror m;
    struct step seen = *s;
    int rc = mirror_make(&m, s->node, &d->error);
    if (rc)
        return rc;
    seen.node = m.node;
    rc = mirror_load(&m, &d->error);
    if (!rc)
        rc = each_result(d, &seen, take);
    mirror_free(&m);
    return rc;
}

int node_dump_begin(struct node_dump *d, struct hone_session *s, struct hone_error *e)
{
    d->observer = (struct observer){d, before, after};
    d->list = json_array();
    if (!d->list)
        return err_set(e, HONE_ERESOURCE, "no memory for a list of nodes");
    session_observe(s, &d->observer);
    return 0;
}

int node_dump_end(struct node_dump *d, struct hone_session *s, bool keep, json_t **list, struct hone_error *e)
{
    int rc = 0;
    session_observe(s, NULL);
    *list = NULL;
    if (d->writer)
        rc = gguf_writer_close(d->writer, keep && !d->error.code, e);
    if (d->error.code && e)
        *e = d->error;
    rc = d->error.code ? d->error.code : rc;
    if (keep && !rc)
        *list = json_incref(d->list);
    json_decref(d->list);
    free(d->room);
    *d = (struct node_dump){0};
    return rc;
}
