/* places.c: see places.h.
 *
 * A model goes to every device there is unless the user says otherwise: who built hone with a device's backend and has the
 * device wants it used, and `hone inspect` shows it. What is not there (a build without the backend, a machine without the
 * device) leaves everything on the host, and asking for it by name is an error.
 *
 * The free memory is asked for before anything is uploaded: a model of 15 GB that fails at its last tensor costs half a minute,
 * and the message then could not say which -ngl would fit. */
#include "engine/places.h"

#include "engine/split_words.h"
#include "graph/weights.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_kernel(const struct backend *b, enum op op)
{
    int n;
    const struct kernel *const *list = b->kernels(&n);
    for (int i = 0; i < n; i++)
        if (list[i]->op == op && !list[i]->by_name_only)
            return true;
    return false;
}

/* Whether nodes of this op run at the backend's devices at all. */
static bool op_runs(const struct backend *b, const struct gates *gates, enum op op)
{
    struct tensor none = {.format = FORMAT_F32};
    struct node n = {.op = op, .out = &none, .src = {&none}, .n_src = 1};
    const struct gate *gate = gates ? gates_for_node(gates, b->name, &n) : NULL;
    return has_kernel(b, op) && !(gate && !strcmp(gate->variant, "ref"));
}

static int place_add(struct places *p, const struct backend *b, int device, struct hone_error *e)
{
    struct placement *s = &p->placement;
    for (int i = 1; i < s->n; i++)
        if (s->list[i].backend == b && s->list[i].device == device)
            return err_set(e, HONE_EUSAGE, "device %s%d is named twice", b->name, device);
    if (s->n == MAX_PLACES)
        return err_set(e, HONE_EUSAGE, "more than %d devices", MAX_PLACES - 1);
    s->list[s->n++] = (struct place){.backend = b, .device = device};
    return 0;
}

bool places_nth(int i, const struct backend **backend, int *device)
{
    int n_backends, n_kernels;
    const struct backend *const *list = backend_list(&n_backends);
    for (int b = 0; b < n_backends; b++) {
        list[b]->kernels(&n_kernels);
        for (*device = 0; !list[b]->host && n_kernels && *device < list[b]->n_devices(); ++*device)
            if (list[b]->features(*device) && !i--) {
                *backend = list[b];
                return true;
            }
    }
    return false;
}

static int add_all(struct places *p, struct hone_error *e)
{
    const struct backend *b;
    int device, rc = 0;
    for (int i = 0; !rc && places_nth(i, &b, &device); i++)
        rc = place_add(p, b, device, e);
    return rc;
}

bool places_device(const char *word, size_t n, const struct backend **backend, int *device)
{
    char name[32];
    size_t letters = n;
    while (letters && isdigit((unsigned char)word[letters - 1]))
        letters--;
    snprintf(name, sizeof name, "%.*s", (int)(letters < 31 ? letters : 31), word);
    *backend = backend_by_name(name);
    *device = letters == n ? 0 : n - letters < 4 ? atoi(word + letters) : INT_MAX;
    return *backend && !(*backend)->host && *device < (*backend)->n_devices();
}

int places_unknown(const char *word, size_t n, struct hone_error *e)
{
    char known[200] = "cpu", kind[32];
    int n_backends, letters = 0;
    const struct backend *const *list = backend_list(&n_backends);
    while ((size_t)letters < n && letters < 31 && isalpha((unsigned char)word[letters]))
        letters++;
    snprintf(kind, sizeof kind, "%.*s", letters, word);
    for (int i = 0; i < n_backends; i++)
        for (int d = 0; !list[i]->host && d < list[i]->n_devices(); d++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, ", %s%d", list[i]->name, d);
        }
    bool foreign = (!strcmp(kind, "cuda") || !strcmp(kind, "gpu")) && !backend_by_name(kind);
    return err_set(e, HONE_EUSAGE, "-dev: no device '%.*s'%s; there are: %s", (int)(n < 40 ? n : 40), word,
                   foreign ? ": this build has no backend for it" : "", known);
}

static int add_named(struct places *p, const char *word, size_t n, struct hone_error *e)
{
    const struct backend *b;
    int device;
    return places_device(word, n, &b, &device) ? place_add(p, b, device, e) : places_unknown(word, n, e);
}

static int add_devices(struct places *p, const char *devices, struct hone_error *e)
{
    if (!devices || !*devices || !strcmp(devices, "auto"))
        return add_all(p, e);
    if (!strcmp(devices, "none"))
        return 0;
    const char *words[SPLIT_MOST];
    size_t sizes[SPLIT_MOST];
    int threads, rc = 0, n = split_list("-dev", devices, words, sizes, e);
    if (n < 0)
        return e->code;
    for (int i = 0; i < n && !rc; i++)
        if (!split_cpu(words[i], sizes[i], &threads)) /* the host is there anyway */
            rc = add_named(p, words[i], sizes[i], e);
    return rc;
}

/* Shares of the devices, summing to 1. */
static int read_split(const struct places *p, const char *text, double *share, struct hone_error *e)
{
    double shares[SPLIT_MOST] = {0}, sum = 0;
    int n = p->placement.n - 1, given, rc = split_shares(text, shares, &given, e);
    for (int i = 0; i < given && !rc; i++) {
        sum += shares[i];
        if (i >= n && shares[i] > 0)
            rc = err_set(e, HONE_EUSAGE, "-ts %.60s: a share for each of %d device(s), zero or more", text, n);
    }
    for (int i = 0; i < n; i++)
        share[i] = sum > 0 ? (i < given ? shares[i] / sum : 0) : 1.0 / n;
    return rc;
}

/* The last n layers, the output behind them counting as one, in order over the devices. */
static int place_layers(struct places *p, const struct model *m, const struct places_options *o, struct hone_error *e)
{
    struct placement *s = &p->placement;
    double share[MAX_PLACES] = {0}, until = 0;
    int n = o->n_gpu_layers < 0 || o->n_gpu_layers > m->n_layer ? m->n_layer + 1 : o->n_gpu_layers, at = 1;
    if (!n || s->n == 1 || o->all_reference) {
        s->n = 1;
        return 0;
    }
    int rc = read_split(p, o->tensor_split, share, e);
    if (rc)
        return rc;
    until = share[0];
    for (int i = m->n_layer + 1 - n, k = 0; i <= m->n_layer; i++, k++) {
        while (at < s->n - 1 && (k + 0.5) / n > until)
            until += share[at++];
        if (i < m->n_layer)
            p->layers[i] = (int8_t)at;
        else
            s->last = at;
    }
    s->first = n > m->n_layer ? p->layers[0] : 0;
    for (int i = 0; i < m->n_layer; i++) {
        const struct backend *b = s->list[p->layers[i]].backend;
        bool cells = op_runs(b, o->gates, OP_ATTENTION) && op_runs(b, o->gates, OP_KV_WRITE);
        bool slots = op_runs(b, o->gates, OP_SSM_CONV) && op_runs(b, o->gates, OP_GATED_DELTA_RULE);
        p->kv[i] = cells ? p->layers[i] : 0;
        p->states[i] = slots ? p->layers[i] : 0;
    }
    return 0;
}

int places_open(struct places *p, const struct model *m, const struct places_options *o, struct hone_error *e)
{
    int n_backends;
    *p = (struct places){.placement = {.n = 1, .n_layer = m->n_layer}};
    p->placement.list[0].backend = backend_list(&n_backends)[0];
    p->layers = calloc((size_t)m->n_layer + 1, 1);
    p->kv = calloc((size_t)m->n_layer + 1, 1);
    p->states = calloc((size_t)m->n_layer + 1, 1);
    p->placement.layer = p->layers;
    int rc = p->layers && p->kv && p->states ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a session");
    if (!rc && o->n_gpu_layers != 0 && !o->all_reference)
        rc = add_devices(p, o->devices, e);
    if (!rc)
        rc = place_layers(p, m, o, e);
    for (int i = 1; i < p->placement.n && !rc; i++) {
        struct place *at = &p->placement.list[i];
        p->values[i] = (struct buffer){.backend = at->backend, .device = at->device};
        rc = at->backend->api->stream_create(at->device, &at->stream, e);
    }
    if (rc)
        places_close(p);
    return rc;
}

void places_close(struct places *p)
{
    for (int i = 1; i < p->placement.n; i++) {
        const struct place *at = &p->placement.list[i];
        at->backend->api->free(at->device, p->values[i].data);
        at->backend->api->stream_free(at->device, at->stream);
    }
    free(p->layers);
    free(p->kv);
    free(p->states);
    *p = (struct places){0};
}

/* The places that weight w is read at, from its name, as a bit each. */
static unsigned weight_places(const struct places *p, const struct model *m, const struct tensor *w)
{
    int layer;
    const struct placement *s = &p->placement;
    if (sscanf(w->name, "blk.%d.", &layer) == 1)
        return layer >= 0 && layer < m->n_layer ? 1u << p->layers[layer] : 0;
    if (strncmp(w->name, "token_embd", 10) != 0)
        return 1u << s->last;
    for (int i = 0; i < m->n_weights; i++)
        if (!strcmp(m->weights[i]->name, "output.weight"))
            return 1u << s->first;
    return 1u << s->first | 1u << s->last; /* it is the head, too */
}

int places_fit(const struct places *p, const struct model *m, const size_t *kv_bytes, struct hone_error *e)
{
    size_t need[MAX_PLACES] = {0};
    for (int i = 0; i < m->n_weights; i++) {
        unsigned at = weight_places(p, m, m->weights[i]);
        for (int k = 1; k < p->placement.n; k++)
            if (at & 1u << k && !weight_twin(m->weights[i], p->placement.list[k].backend, p->placement.list[k].device))
                need[k] += tensor_nbytes(m->weights[i]) + 1024;
    }
    for (int k = 1; k < p->placement.n; k++) {
        const struct place *at = &p->placement.list[k];
        struct device_info info;
        int layers = 0, rc = at->backend->device(at->device, &info, e);
        if (rc)
            return rc;
        size_t all = need[k] + kv_bytes[k], available = info.memory_free;
        for (int i = 0; i < m->n_layer; i++)
            layers += p->layers[i] == k;
        if (!available || all <= available)
            continue;
        double each = (double)all / (layers ? layers : 1);
        return err_set(
            e, HONE_ERESOURCE,
            "%s%d: %d layers need %.1f GiB and their share of the context %.1f GiB; %.1f GiB are free, enough for about %d of "
            "them (-ngl), or more with a shorter context (-c)",
            at->backend->name, at->device, layers, (double)need[k] / 0x1p30, (double)kv_bytes[k] / 0x1p30,
            (double)available / 0x1p30, (int)((double)available / each));
    }
    return 0;
}
