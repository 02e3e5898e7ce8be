/* shadow.c: see shadow.h.
 *
 * Around each node: before it runs, its sources (values and inputs; weights cannot be written, they are mapped or shared) and
 * the states that it writes in place are copied. After it ran, what it left is copied, the states are put back, its reference
 * runs in place, the two are compared, and what the kernel left is put back. So a state that a kernel changes in the wrong
 * cells is seen, and a fault does not spread: each node is judged on what it was given.
 *
 * What ran on a device is judged on the host: a picture of the node (node_copy.h) is brought before it runs and again behind it, and
 * from there on everything goes as above, on the picture.
 *
 * The reference has a pool of its own: the session's threads wait in its barrier meanwhile, and sleep after a while. */
#include "lab/shadow.h"

#include "base/cpu.h"
#include "lab/case_file.h"
#include "lab/node_copy.h"
#include "lab/texts.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 64 };

/* The bytes of one root tensor at some time. */
struct copy {
    const struct tensor *root;
    unsigned char *bytes;
    size_t size, cap;
};

struct copies {
    struct copy list[COPIES];
    int n;
};

struct watcher {
    struct shadow *s;
    int device;
    const struct shadow_options *o;
    struct pool *pool;
    const char *phase;
    struct mirror mirror;  /* of the node at hand, where it runs on a device; */
    struct step mirrored;  /* and its step, with the picture in the node's place */
    struct copies before, left; /* sources and states before a node; results behind it */
    int steps_done, steps_total;
    struct shadow_options *quiet; /* of the first: what the others are told; owned */
    struct hone_error *e, error; /* e points to error: what the observer itself ran into */
};

/* ---- copies */

static const struct copy *copy_find(const struct copies *c, const struct tensor *root)
{
    for (int i = 0; i < c->n; i++)
        if (c->list[i].root == root)
            return &c->list[i];
    return NULL;
}

static int copy_take(struct copies *c, struct tensor *t, struct hone_error *e)
{
    const struct tensor *root = tensor_root(t);
    if (copy_find(c, root))
        return 0;
    if (c->n == COPIES)
        return err_set(e, HONE_EFAULT, "a node with more than %d tensors", COPIES);
    struct copy *k = &c->list[c->n];
    size_t size = tensor_nbytes(root);
    if (size > k->cap || !k->bytes) {
        unsigned char *bytes = realloc(k->bytes, size + 1);
        if (!bytes)
            return err_set(e, HONE_ERESOURCE, "no memory for a copy of %s: %.1f MiB", root->name, (double)size / 0x1p20);
        k->bytes = bytes;
        k->cap = size;
    }
    memcpy(k->bytes, root->data, size);
    k->root = root;
    k->size = size;
    c->n++;
    return 0;
}

/* What nobody changed is left alone: ranks share their inputs, and another may be reading them. */
static void copies_put_back(const struct copies *c)
{
    for (int i = 0; i < c->n; i++)
        if (memcmp(c->list[i].root->data, c->list[i].bytes, c->list[i].size) != 0)
            memcpy(c->list[i].root->data, c->list[i].bytes, c->list[i].size);
}

static void copies_free(struct copies *c)
{
    for (int i = 0; i < COPIES; i++)
        free(c->list[i].bytes);
}

/* t as it was when the copy was taken. */
static struct tensor as_copied(const struct copies *c, struct tensor *t)
{
    const struct copy *k = copy_find(c, tensor_root(t));
    struct tensor moved = *t;
    moved.data = k->bytes + ((unsigned char *)t->data - (unsigned char *)k->root->data);
    return moved;
}

/* ---- what a node touches */

static int take_sources(struct copies *c, const struct node *n, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < n->n_src && !rc; i++)
        if (n->src[i] && tensor_root(n->src[i])->kind != TENSOR_WEIGHT && tensor_root(n->src[i])->data)
            rc = copy_take(c, n->src[i], e);
    return rc;
}

typedef int result_fn(struct watcher *w, const struct step *s, struct tensor *t);

/* Tells `fn` of every tensor that the node leaves, each once, the inner ones first. */
static int each_result(struct watcher *w, const struct step *s, result_fn *fn)
{
    const struct node *n = s->node;
    int rc = 0;
    for (int i = 0; i < n->n_parts && !rc; i++) {
        struct tensor *t = n->parts[i]->out;
        bool state = tensor_root(t)->kind != TENSOR_VALUE;
        if (t != n->out && (state || node_leaves(n, t)))
            rc = fn(w, s, t);
        if (!rc && node_updates(n->parts[i]))
            rc = fn(w, s, node_updates(n->parts[i]));
    }
    if (!rc && node_updates(n))
        rc = fn(w, s, node_updates(n));
    return rc ? rc : fn(w, s, n->out);
}

static int result_take(struct watcher *w, const struct step *s, struct tensor *t)
{
    (void)s;
    return copy_take(&w->left, t, w->e);
}

/* ---- telling */

static struct shadow_kernel *kernel_row(struct shadow *s, const struct step *step)
{
    char name[96];
    kernel_name(step->backend, step->kernel, name, sizeof name);
    for (int i = 0; i < s->n_kernels; i++)
        if (!strcmp(s->kernels[i].kernel, name))
            return &s->kernels[i];
    struct shadow_kernel *k = &s->kernels[s->n_kernels < SHADOW_KERNELS - 1 ? s->n_kernels++ : SHADOW_KERNELS - 1];
    snprintf(k->kernel, sizeof k->kernel, "%s", name);
    k->op = step->node->op;
    k->is_reference = !strcmp(step->kernel->variant, "ref") || !strcmp(step->kernel->variant, "transfer"); /* bytes as they are */
    return k;
}

static struct shadow_node describe(const struct watcher *w, const struct step *s, const struct tensor *t,
                                   const struct difference *d, enum fault fault)
{
    struct shadow_node n = {.op = s->node->op,
                            .device = w->device,
                            .phase = w->phase,
                            .fault = fault,
                            .column = d->column,
                            .got = d->got,
                            .want = d->want,
                            .nmse = d->nmse,
                            .tolerance = d->tolerance};
    memcpy(n.row, d->row, sizeof n.row);
    snprintf(n.node, sizeof n.node, "%s", s->node->out->name);
    snprintf(n.tensor, sizeof n.tensor, "%s", t->name);
    kernel_name(s->backend, s->kernel, n.kernel, sizeof n.kernel);
    difference_text(d, t, "the reference gives", n.message, sizeof n.message);
    return n;
}

static void add_fault(struct watcher *w, const struct shadow_node *n)
{
    if (w->s->n_faults < SHADOW_FAULTS)
        w->s->faults[w->s->n_faults] = *n;
    w->s->n_faults++;
}

static double share_of(const struct shadow_node *n)
{
    return n->tolerance > 0 ? n->nmse / n->tolerance : 0;
}

/* Keeps the worst few, each node of the graph once. */
static void add_worst(struct shadow *s, const struct shadow_node *n)
{
    int at = 0;
    while (at < s->n_worst && (strcmp(s->worst[at].tensor, n->tensor) != 0 || s->worst[at].device != n->device))
        at++;
    if (at == s->n_worst && s->n_worst < SHADOW_WORST)
        s->worst[s->n_worst++] = *n;
    else if (at < s->n_worst && share_of(n) > share_of(&s->worst[at]))
        s->worst[at] = *n;
    else if (at == s->n_worst && share_of(n) > share_of(&s->worst[at - 1]))
        s->worst[at - 1] = *n;
    for (int i = s->n_worst - 1; i > 0 && share_of(&s->worst[i]) > share_of(&s->worst[i - 1]); i--) {
        struct shadow_node swap = s->worst[i];
        s->worst[i] = s->worst[i - 1];
        s->worst[i - 1] = swap;
    }
}

/* ---- judging */

/* Looks for the first NaN of the run in what t holds now. */
static int result_look(struct watcher *w, const struct step *s, struct tensor *t)
{
    if (w->s->nan.node[0] || !format_get(t->format)->unpack)
        return 0;
    float *room = malloc((size_t)(t->ne[0] + 1) * sizeof *room);
    if (!room)
        return err_set(w->e, HONE_ERESOURCE, "no memory for a row of %s", t->name);
    for (int64_t r = 0; r < tensor_rows(t) && !w->s->nan.node[0]; r++) {
        struct difference d = {.nmse = NAN, .got = NAN, .want = NAN};
        tensor_row_index(t, r, d.row);
        const float *row = tensor_read_row(t, d.row[0], d.row[1], d.row[2], room);
        while (d.column < t->ne[0] && !isnan(row[d.column]))
            d.column++;
        if (d.column < t->ne[0]) {
            w->s->nan = describe(w, s, t, &d, FAULT_NAN);
            snprintf(w->s->nan.message, sizeof w->s->nan.message, "the first NaN");
        }
    }
    free(room);
    return 0;
}

static int result_judge(struct watcher *w, const struct step *s, struct tensor *t)
{
    static const enum fault faults[] = {FAULT_NONE, FAULT_NAN, FAULT_VALUE, FAULT_NMSE, FAULT_BITS};
    struct tensor got = as_copied(&w->left, t);
    struct shadow_kernel *k = kernel_row(w->s, s);
    struct difference d;
    difference_find(&d, &got, t, kernel_tolerance(s->kernel));
    struct shadow_node n = describe(w, s, t, &d, faults[d.kind]);
    k->worst = fmax(k->worst, share_of(&n));
    k->faults += d.kind != DIFFERENCE_NONE;
    if (d.kind != DIFFERENCE_NONE)
        add_fault(w, &n);
    if (d.kind == DIFFERENCE_NAN && w->s->nan.node[0] && !strcmp(w->s->nan.tensor, t->name) && isfinite(d.want))
        snprintf(w->s->nan.message, sizeof w->s->nan.message, "the first NaN; the reference has none here");
    if (n.tolerance > 0)
        add_worst(w->s, &n);
    return 0;
}

/* A source that is no state of the node's must be as it was. */
static void sources_whole(struct watcher *w, const struct step *s)
{
    for (int i = 0; i < w->before.n; i++) {
        const struct copy *k = &w->before.list[i];
        const unsigned char *now = k->root->data;
        if (copy_find(&w->left, k->root) || !memcmp(now, k->bytes, k->size))
            continue;
        size_t at = 0;
        while (now[at] == k->bytes[at])
            at++;
        struct difference d = {.column = (int64_t)at, .nmse = 0};
        struct shadow_node n = describe(w, s, k->root, &d, FAULT_DAMAGE);
        snprintf(n.message, sizeof n.message, "writes into its source %s: byte %zu of %zu", k->root->name, at, k->size);
        kernel_row(w->s, s)->faults++;
        add_fault(w, &n);
        memcpy(k->root->data, k->bytes, k->size);
    }
}

/* A plan must not put what a node leaves over what it reads: kernels are free to write a result before they read all sources.
 */
static int result_apart(struct watcher *w, const struct step *s, struct tensor *t)
{
    const struct tensor *out = tensor_root(t);
    for (int i = 0; i < w->before.n && out->kind == TENSOR_VALUE; i++) {
        const struct tensor *in = w->before.list[i].root;
        const char *a = out->data, *b = in->data;
        if (a >= b + tensor_nbytes(in) || b >= a + tensor_nbytes(out))
            continue;
        struct difference d = {.nmse = 0};
        struct shadow_node n = describe(w, s, t, &d, FAULT_OVERLAP);
        snprintf(n.message, sizeof n.message, "the plan put %s over %s, which the node reads", t->name, in->name);
        kernel_row(w->s, s)->faults++;
        add_fault(w, &n);
    }
    return 0;
}

/* ---- the observer */

/* The step as it can be looked at: itself, or its picture as of now. NULL: *w->e says why. */
static const struct step *picture(struct watcher *w, const struct step *s, bool make)
{
    if (s->backend->host)
        return s;
    if (make) {
        mirror_free(&w->mirror);
        if (mirror_make(&w->mirror, s->node, w->e))
            return NULL;
        w->mirrored = *s;
        w->mirrored.node = w->mirror.node;
    }
    return mirror_load(&w->mirror, w->e) ? NULL : &w->mirrored;
}

static int watch_before(void *user, const struct plan *p, int i)
{
    struct watcher *w = user;
    const struct step *s = picture(w, &p->steps[i], true);
    if (!s)
        return w->e->code;
    w->before.n = w->left.n = 0;
    if (w->o->capture && !w->s->captured[0] && !fnmatch(w->o->capture, s->node->out->name, 0)) {
        int rc = case_file_write(w->o->capture_path, s->node, s->node->out->name, w->e);
        if (rc)
            return rc;
        snprintf(w->s->captured, sizeof w->s->captured, "%s", s->node->out->name);
    }
    int rc = take_sources(&w->before, s->node, w->e);
    for (int j = 0; j < s->node->n_parts && !rc; j++)
        if (tensor_root(s->node->parts[j]->out)->kind == TENSOR_STATE)
            rc = copy_take(&w->before, s->node->parts[j]->out, w->e);
    return rc ? rc : each_result(w, s, result_apart);
}

static int watch_after(void *user, const struct plan *p, int i, int64_t ns)
{
    struct watcher *w = user;
    const struct step *s = picture(w, &p->steps[i], false);
    (void)ns;
    if (!s)
        return w->e->code;
    struct shadow_kernel *k = kernel_row(w->s, s);
    k->compared++;
    int rc = each_result(w, s, result_look);
    if (!rc)
        rc = each_result(w, s, result_take);
    if (rc)
        return rc;
    sources_whole(w, s);
    if (!k->is_reference && !node_collective(s->node)) { /* the other ranks do not come a second time */
        w->s->n_compared++;
        copies_put_back(&w->before);
        rc = reference_run(s->node, w->pool, w->e);
        if (!rc)
            rc = each_result(w, s, result_judge);
        copies_put_back(&w->left);
    }
    w->steps_done++;
    if (!rc && w->o->progress && w->o->progress(w->o->user, (float)w->steps_done / (float)w->steps_total))
        rc = HONE_ECANCELED;
    return rc;
}

/* ---- the four phases */

/* Everybody who watches: a watcher a device, each on its device's first thread with findings of its own. */
struct watch {
    struct watcher *list;
    struct observer *observers;
    int n, first; /* devices of this process; the first one's rank */
};

static int feed(struct watch *a, struct hone_session *s, const char *phase, const int32_t *ids, size_t n, struct hone_error *e)
{
    struct hone_token *tokens = calloc(n, sizeof *tokens);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){ids[i], 0, i + 1 == n};
    for (int i = 0; i < a->n; i++)
        a->list[i].phase = phase;
    int rc = hone_session_eval(s, tokens, n, e);
    free(tokens);
    return rc;
}

static int prompt_and_decode(struct watch *a, struct hone_session *s, const char *phase, const char *decode,
                             const struct sequence *text, size_t n, struct hone_error *e)
{
    int rc = feed(a, s, phase, text->ids, n < text->n ? n : text->n, e);
    for (int i = 0; i < a->list[0].o->n_decode && !rc; i++) {
        int32_t id = hone_greedy(s);
        rc = feed(a, s, decode, &id, 1, e);
    }
    return rc;
}

static int run_phases(struct watch *a, struct hone_session *s, const struct sequence *texts, size_t n, struct hone_error *e)
{
    size_t half = n / 2 < 2 ? 2 : n / 2;
    int rc = prompt_and_decode(a, s, "prefill", "decode", &texts[0], n, e);
    if (!rc)
        rc = prompt_and_decode(a, s, "second prefill", "second decode", &texts[1], half, e);
    if (!rc)
        rc = hone_session_rewind(s, 0, 0, e);
    if (!rc)
        rc = prompt_and_decode(a, s, "second request", "its decode", &texts[2], n, e);
    struct hone_error ignored = {0};
    hone_session_rewind(s, 0, 0, &ignored);
    return rc;
}

/* The first watcher's findings are *s itself; a capture is the first device's, since a case file has one name. */
static int watch_start(struct watch *a, struct shadow *s, struct hone_session *session, const struct plan *plan,
                       const struct shadow_options *o, struct hone_error *e)
{
    a->first = session_rank(session);
    a->n = 1;
    while (a->first + a->n < session_ranks(session) && session_rank_plan(session, plan, a->first + a->n))
        a->n++;
    s->n_devices = session_ranks(session);
    s->n_watched = a->n;
    a->list = calloc((size_t)a->n, sizeof *a->list);
    a->observers = calloc((size_t)a->n, sizeof *a->observers);
    struct shadow_options *quiet = calloc(1, sizeof *quiet);
    int rc = a->list && a->observers && quiet ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a shadow");
    for (int i = 0; i < a->n && !rc; i++) {
        struct watcher *w = &a->list[i];
        const struct plan *mine = session_rank_plan(session, plan, a->first + i);
        *w = (struct watcher){.s = i ? calloc(1, sizeof *s) : s, .device = a->first + i, .o = o, .e = &w->error};
        w->steps_total = mine->n_steps * 3 * (o->n_decode + 1);
        w->pool = pool_create(a->n < cpu_cores() ? cpu_cores() / a->n : 1, 0, e);
        rc = !w->pool ? e->code : !w->s ? err_set(e, HONE_ERESOURCE, "no memory for a shadow") : 0;
        a->observers[i] = (struct observer){w, watch_before, watch_after};
        if (!rc)
            session_observe_rank(session, a->first + i, &a->observers[i]);
    }
    if (!rc && a->n > 1) { /* the others neither capture nor show progress */
        quiet->n_prefill = o->n_prefill;
        quiet->n_decode = o->n_decode;
        for (int i = 1; i < a->n; i++)
            a->list[i].o = quiet;
        a->list[0].quiet = quiet;
        quiet = NULL;
    }
    free(quiet);
    return rc;
}

/* Another device's findings behind the first one's. */
static void findings_add(struct shadow *to, const struct shadow *from)
{
    for (int i = 0; i < from->n_kernels; i++) {
        int at = 0;
        while (at < to->n_kernels && strcmp(to->kernels[at].kernel, from->kernels[i].kernel) != 0)
            at++;
        if (at == to->n_kernels && at < SHADOW_KERNELS) {
            to->kernels[to->n_kernels++] = from->kernels[i];
        } else if (at < SHADOW_KERNELS) {
            to->kernels[at].compared += from->kernels[i].compared;
            to->kernels[at].faults += from->kernels[i].faults;
            to->kernels[at].worst = fmax(to->kernels[at].worst, from->kernels[i].worst);
        }
    }
    for (int i = 0; i < from->n_faults && i < SHADOW_FAULTS; i++)
        if (to->n_faults + i < SHADOW_FAULTS)
            to->faults[to->n_faults + i] = from->faults[i];
    to->n_faults += from->n_faults;
    for (int i = 0; i < from->n_worst; i++)
        add_worst(to, &from->worst[i]);
    if (!to->nan.node[0])
        to->nan = from->nan;
    to->n_compared += from->n_compared;
}

/* Ends the watch and puts all findings into the first one's; *e becomes what a watcher itself ran into, if one did. */
static void watch_end(struct watch *a, struct hone_session *session, bool failed, struct hone_error *e)
{
    for (int i = 0; i < a->n && a->list; i++) {
        struct watcher *w = &a->list[i];
        session_observe_rank(session, a->first + i, NULL);
        if (failed && w->error.code)
            *e = w->error;
        if (i && w->s) {
            findings_add(a->list[0].s, w->s);
            free(w->s);
        }
        pool_free(w->pool);
        mirror_free(&w->mirror);
        copies_free(&w->before);
        copies_free(&w->left);
    }
    if (a->list)
        free(a->list[0].quiet);
    free(a->list);
    free(a->observers);
}

int shadow_run(struct shadow *s, struct hone_session *session, const struct hone_model *m, const struct shadow_options *o,
               struct hone_error *e)
{
    memset(s, 0, sizeof *s);
    struct hone_error own = {0};
    struct sequence *texts = NULL;
    struct watch a = {0};
    const struct plan *plan;
    size_t n = (size_t)(o->n_prefill < 2 ? 2 : o->n_prefill);
    int rc = texts_encode(&texts, 3, n, m, &own);
    if (!rc)
        rc = session_plan(session, 1, 1, &plan, &own);
    if (!rc)
        rc = watch_start(&a, s, session, plan, o, &own);
    if (!rc)
        rc = run_phases(&a, session, texts, n, &own);
    watch_end(&a, session, rc != 0, &own);
    if (!rc && o->capture && !s->captured[0])
        rc = err_set(&own, HONE_EUSAGE, "no node of the graph matches '%s'", o->capture);
    if (!rc && (s->n_faults || s->nan.node[0]))
        rc = err_set(&own, HONE_ECHECK, "%d fault(s) in %d runs of nodes", s->n_faults, s->n_compared);
    texts_free(texts, 3);
    if (e)
        *e = own;
    return rc;
}

/* ---- JSON */

static json_t *number(double x)
{
    char text[32];
    if (isfinite(x))
        return json_real(x);
    snprintf(text, sizeof text, "%g", x);
    return json_string(text);
}

static json_t *node_json(const struct shadow_node *n)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:[I,I,I], s:I, s:o, s:o, s:o, s:f, s:s, s:i}", "op", op_get(n->op)->name,
                     "kernel", n->kernel, "node", n->node, "tensor", n->tensor, "phase", n->phase, "fault",
                     fault_word(n->fault), "row", (json_int_t)n->row[0], (json_int_t)n->row[1], (json_int_t)n->row[2], "column",
                     (json_int_t)n->column, "got", number(n->got), "want", number(n->want), "nmse", number(n->nmse),
                     "tolerance", n->tolerance, "message", n->message, "device", n->device);
}

json_t *shadow_json(const struct shadow *s)
{
    json_t *kernels = json_array(), *faults = json_array(), *worst = json_array();
    for (int i = 0; i < s->n_kernels; i++)
        json_array_append_new(kernels, json_pack("{s:s, s:s, s:i, s:i, s:b, s:o}", "kernel", s->kernels[i].kernel, "op",
                                                 op_get(s->kernels[i].op)->name, "runs", s->kernels[i].compared, "faults",
                                                 s->kernels[i].faults, "reference", s->kernels[i].is_reference, "worst_share",
                                                 number(s->kernels[i].worst)));
    for (int i = 0; i < s->n_faults && i < SHADOW_FAULTS; i++)
        json_array_append_new(faults, node_json(&s->faults[i]));
    for (int i = 0; i < s->n_worst; i++)
        json_array_append_new(worst, node_json(&s->worst[i]));
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:s, s:i, s:i}", "schema_version", 1, "compared", s->n_compared,
                     "n_faults", s->n_faults, "kernels", kernels, "faults", faults, "worst", worst, "first_nan",
                     s->nan.node[0] ? node_json(&s->nan) : json_null(), "captured", s->captured, "devices", s->n_devices,
                     "devices_watched", s->n_watched);
}
