/* ladder.c: the rungs. First the reference (everything on references, f32 KV), then the KV type, then each op that has a fast
 * kernel, the matrix product first since nothing else shows beside it while it is slow, then each fusion, then everything
 * without a single gate. Over several devices one device with all their threads comes last, to stand beside. Each rung is a
 * session of its own on the same model; weights that one rung packed stay packed, and the references read them so.
 *
 * Correctness comes before speed in each rung: a rung that is wrong is not timed. */
#include "lab/ladder.h"

#include "base/clock.h"
#include "graph/fuse.h"
#include "lab/one_device.h"
#include "lab/reference.h"
#include "lab/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ladder {
    const struct hone_model *m;
    const struct ladder_options *o;
    struct reference ref;
    bool op_on[N_OPS];    /* allowed off the reference */
    bool op_there[N_OPS]; /* in the model's graph */
    bool fuse_on[N_FUSIONS];
    bool kv_f16;
    int devices;
    json_t *earlier; /* rungs of the run that is resumed, by name */
    rung_fn *each;
    ladder_progress_fn *progress;
    void *user;
    char what[100];
};

static int tell(void *user, float done)
{
    struct ladder *l = user;
    return l->progress ? l->progress(l->user, l->what, done) : 0;
}

static void append(char *text, size_t size, const char *more)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", more);
}

static const char *user_gates(const struct ladder *l)
{
    return l->o->session.gates ? l->o->session.gates : "";
}

/* What is not allowed yet stays on the reference; a quantize node appears and runs with the product that wants it. The user's gates come
 * first: for what is not allowed yet, the later ones win. */
static void gates_now(const struct ladder *l, char *text, size_t size)
{
    snprintf(text, size, "%s%sfuse=off", user_gates(l), *user_gates(l) ? " " : "");
    for (int f = 0; f < N_FUSIONS; f++)
        if (l->fuse_on[f]) {
            append(text, size, " fuse.");
            append(text, size, fusion_get((enum fusion_id)f)->name);
            append(text, size, "=on");
        }
    const char *before = " skip=";
    for (int op = 0; op < N_OPS; op++)
        if (!l->op_on[op] && l->op_there[op]) {
            append(text, size, before);
            append(text, size, op_get((enum op)op)->name);
            before = ",";
        }
}

static int open_rung(const struct ladder *l, struct rung *r, struct hone_session **s, struct hone_error *e)
{
    struct hone_session_params p = l->o->session;
    p.recipe = NULL;
    p.gates = r->gates;
    p.type_k = p.type_v = l->kv_f16 ? NULL : "f32";
    p.progress = NULL;
    if (r->kind == RUNG_ONE_DEVICE)
        p = one_device_params(&p);
    return hone_session_create(s, l->m, &p, e);
}

/* The distinct kernels of a plan whose op is `op` (-1: any but references), or whose node the fusion f made (f >= 0). */
static void describe_plan(struct rung *r, const struct plan *p, int op, int f)
{
    r->nodes = 0;
    r->kernels[0] = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        bool mine = f >= 0 ? s->node->n_parts && s->node->fusion == f : op < 0 || (int)s->node->op == op;
        if (!mine || (f < 0 && op < 0 && !strcmp(s->kernel->variant, "ref")))
            continue;
        char name[128];
        kernel_name(s->backend, s->kernel, name, sizeof name);
        r->nodes++;
        if (!strstr(r->kernels, name)) {
            if (r->kernels[0])
                append(r->kernels, sizeof r->kernels, " ");
            append(r->kernels, sizeof r->kernels, name);
        }
    }
}

static int count_references(const struct plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += !strcmp(p->steps[i].kernel->variant, "ref");
    return n;
}

/* Median tokens a second over steps of n tokens each, from a short context, for about the allowed time. */
static int throughput(const struct ladder *l, struct hone_session *s, int32_t n, double *rate, struct hone_error *e)
{
    enum { MOST = 64 };
    struct hone_token tokens[MOST];
    double samples[MOST];
    const struct sequence *q = &l->ref.texts[0];
    INVARIANT(n <= MOST);
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){q->ids[(size_t)i % q->n], 0, i + 1 == n};
    int rc = hone_session_rewind(s, 0, 0, e);
    int count = 0;
    int64_t end = clock_ns() + (int64_t)(l->o->seconds * 1e9);
    do {
        int64_t start = clock_ns();
        if (!rc && hone_session_length(s, 0) + n > hone_session_n_ctx(s))
            rc = hone_session_rewind(s, 0, 0, e);
        if (!rc)
            rc = hone_session_eval(s, tokens, (size_t)n, e);
        samples[count++] = (double)n / ((double)(clock_ns() - start) / 1e9);
    } while (!rc && count < MOST && (count < 3 || clock_ns() < end));
    *rate = stats_median(samples, (size_t)count);
    return rc;
}

static bool judge(const struct ladder *l, struct rung *r)
{
    comparison_judge_for(&r->right, l->m, l->o->kl_bound);
    if (r->right.verdict != CLASS_DIFFERENT)
        return true;
    snprintf(r->why, sizeof r->why, "%s", r->right.reason);
    return false;
}

static bool take_over(const struct ladder *l, struct rung *r)
{
    json_t *j = json_object_get(l->earlier, r->name);
    const char *gates = json_string_value(json_object_get(j, "gates"));
    const json_t *devices = json_object_get(j, "devices");
    if (!j || !gates || strcmp(gates, r->gates) || (devices ? json_integer_value(devices) : 1) != r->devices)
        return false;
    r->decode = json_number_value(json_object_get(j, "decode_tokens_per_second"));
    r->prefill = json_number_value(json_object_get(j, "prefill_tokens_per_second"));
    r->kept = json_is_true(json_object_get(j, "kept"));
    r->nodes = (int)json_integer_value(json_object_get(j, "nodes"));
    r->references = (int)json_integer_value(json_object_get(j, "references"));
    const char *kernels = json_string_value(json_object_get(j, "kernels")), *why = json_string_value(json_object_get(j, "why"));
    snprintf(r->kernels, sizeof r->kernels, "%s", kernels ? kernels : "");
    snprintf(r->why, sizeof r->why, "%s", why ? why : "");
    r->resumed = true;
    return true;
}

/* Runs one rung as gates_now says. r->kept tells how it ended. */
static int climb(struct ladder *l, struct rung *r, int op, int f, struct hone_error *e)
{
    struct hone_session *s = NULL;
    const struct plan *decode, *prefill;
    r->devices = r->kind == RUNG_ONE_DEVICE ? 1 : l->devices;
    if (r->kind == RUNG_LOCAL || r->kind == RUNG_ONE_DEVICE)
        snprintf(r->gates, sizeof r->gates, "%s", user_gates(l));
    else
        gates_now(l, r->gates, sizeof r->gates);
    int rc = 0;
    if (take_over(l, r)) {
        rc = l->each(l->user, r) ? err_set(e, HONE_ECANCELED, "cancelled") : 0;
        return rc;
    }
    snprintf(l->what, sizeof l->what, "%s", r->name);
    tell(l, 0);
    rc = open_rung(l, r, &s, e);
    if (!rc)
        rc = session_plan(s, 32, 1, &prefill, e);
    if (!rc) {
        r->references = count_references(prefill);
        rc = session_plan(s, 1, 1, &decode, e);
    }
    if (!rc) {
        r->references += count_references(decode);
        describe_plan(r, decode, op, f);
        if (f >= 0 && !r->nodes)
            snprintf(r->why, sizeof r->why, "never fires: %.150s",
                     decode->fuse_misses[f].text[0] ? decode->fuse_misses[f].text : "its pattern is not in this model, or the rungs before take it");
        rc = reference_compare(&l->ref, s, &r->right, e);
    }
    if (!rc)
        r->kept = judge(l, r);
    if (!rc && r->kept)
        rc = throughput(l, s, 1, &r->decode, e);
    if (!rc && r->kept)
        rc = throughput(l, s, 32, &r->prefill, e);
    for (int i = 0; s && i < N_FUSIONS; i++)
        r->declined += session_declines(s)[i].count;
    hone_session_free(s);
    if (!rc && l->each(l->user, r))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    return rc;
}

static int rung_simple(struct ladder *l, enum rung_kind kind, const char *name, struct rung *r, struct hone_error *e)
{
    *r = (struct rung){.kind = kind};
    snprintf(r->name, sizeof r->name, "%s", name);
    int rc = climb(l, r, -1, -1, e);
    comparison_free(&r->right);
    return rc;
}

/* Has op a kernel beside the reference on any backend? One that runs by name alone counts where the user's gates name it. */
static bool op_has_kernel(const struct ladder *l, int op)
{
    int n_backends, n;
    const struct backend *const *list = backend_list(&n_backends);
    for (int b = 0; b < n_backends; b++) {
        const struct kernel *const *k = list[b]->kernels(&n);
        for (int i = 0; i < n; i++)
            if ((int)k[i]->op == op && strcmp(k[i]->variant, "ref") != 0 && (!k[i]->by_name_only || strstr(user_gates(l), k[i]->variant)))
                return true;
    }
    return false;
}

static int rung_op(struct ladder *l, int op, struct hone_error *e)
{
    struct rung r = {.kind = RUNG_OP};
    snprintf(r.name, sizeof r.name, "%s", op_get((enum op)op)->name);
    l->op_on[op] = true;
    if (op == OP_MUL_MAT)
        l->op_on[OP_QUANTIZE] = true;
    int rc = climb(l, &r, op, -1, e);
    if (!rc && !r.kept) {
        l->op_on[op] = false;
        if (op == OP_MUL_MAT)
            l->op_on[OP_QUANTIZE] = false;
    }
    comparison_free(&r.right);
    return rc;
}

static int rung_fusion(struct ladder *l, int f, struct hone_error *e)
{
    struct rung r = {.kind = RUNG_FUSION};
    snprintf(r.name, sizeof r.name, "fuse.%s", fusion_get((enum fusion_id)f)->name);
    l->fuse_on[f] = true;
    int rc = climb(l, &r, -1, f, e);
    if (!rc && !r.kept)
        l->fuse_on[f] = false;
    comparison_free(&r.right);
    return rc;
}

static int survey(struct ladder *l, struct hone_error *e)
{
    struct hone_session *s;
    const struct plan *p;
    struct hone_session_params params = l->o->session;
    params.gates = "kernel=ref fuse=off";
    params.recipe = NULL;
    int rc = hone_session_create(&s, l->m, &params, e);
    if (rc)
        return rc;
    rc = session_plan(s, 1, 1, &p, e);
    for (int i = 0; !rc && i < p->n_steps; i++)
        l->op_there[p->steps[i].node->op] = true;
    hone_session_free(s);
    return rc;
}

static int read_earlier(struct ladder *l, struct hone_error *e)
{
    l->earlier = json_object();
    if (!l->o->resume)
        return 0;
    FILE *f = fopen(l->o->resume, "re");
    if (!f)
        return err_set(e, HONE_EINPUT, "%s: cannot be opened to resume from", l->o->resume);
    json_error_t je;
    json_t *j;
    int line = 0;
    while ((j = json_loadf(f, JSON_DISABLE_EOF_CHECK, &je))) {
        const char *name = json_string_value(json_object_get(j, "rung"));
        line++;
        if (name)
            json_object_set(l->earlier, name, j);
        json_decref(j);
    }
    bool clean = feof(f);
    fclose(f);
    return clean ? 0 : err_set(e, HONE_EINPUT, "%s: record %d is no JSON: %s", l->o->resume, line + 1, je.text);
}

int ladder_run(const struct hone_model *m, const struct ladder_options *o, rung_fn *each, ladder_progress_fn *progress, void *user,
               bool *all_local, struct hone_error *e)
{
    struct ladder l = {.m = m, .o = o, .each = each, .progress = progress, .user = user};
    struct rung r;
    int threads;
    l.devices = devices_of(&o->session, &threads);
    *all_local = false;
    if (strlen(user_gates(&l)) > sizeof r.gates / 2)
        return err_set(e, HONE_EUSAGE, "gates of %zu bytes are more than a ladder carries", strlen(user_gates(&l)));
    int rc = read_earlier(&l, e);
    if (!rc)
        rc = survey(&l, e);
    snprintf(l.what, sizeof l.what, "reference logits");
    if (!rc)
        rc = reference_make(&l.ref, m, &o->session, o->n_texts, o->prompt_tokens, o->n_greedy, o->cache, tell, &l, e);
    if (!rc)
        rc = rung_simple(&l, RUNG_REFERENCE, "reference", &r, e);
    if (!rc) {
        l.kv_f16 = true;
        rc = rung_simple(&l, RUNG_KV, "kv=f16", &r, e);
        l.kv_f16 = r.kept;
    }
    if (!rc && l.op_there[OP_MUL_MAT] && op_has_kernel(&l, OP_MUL_MAT))
        rc = rung_op(&l, OP_MUL_MAT, e);
    for (int op = 0; op < N_OPS && !rc; op++)
        if (op != OP_MUL_MAT && op != OP_QUANTIZE && l.op_there[op] && op_has_kernel(&l, op))
            rc = rung_op(&l, op, e);
    for (int f = 0; f < N_FUSIONS && !rc; f++)
        rc = rung_fusion(&l, f, e);
    if (!rc) {
        rc = rung_simple(&l, RUNG_LOCAL, "all local", &r, e);
        *all_local = !rc && r.kept && !r.references && !r.declined;
    }
    if (!rc && l.devices > 1) {
        struct one_device_place place;
        one_device_enter(&place);
        rc = rung_simple(&l, RUNG_ONE_DEVICE, "one device", &r, e);
        one_device_leave(&place);
    }
    reference_free(&l.ref);
    json_decref(l.earlier);
    return rc;
}

json_t *rung_json(const struct rung *r)
{
    static const char *const kinds[] = {"reference", "kv", "op", "fusion", "local", "one device"};
    json_t *j =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:b, s:b, s:I, s:s, s:i}", "schema_version", 1, "rung",
                  r->name, "kind", kinds[r->kind], "gates", r->gates, "kernels", r->kernels, "nodes", r->nodes, "references",
                  r->references, "decode_tokens_per_second", r->decode, "prefill_tokens_per_second", r->prefill, "kept",
                  r->kept, "resumed", r->resumed, "declined", (json_int_t)r->declined, "why", r->why, "devices", r->devices);
    if (!r->resumed)
        json_object_set_new(j, "correctness", comparison_json(&r->right));
    return j;
}
