/* verify.c: the order of things. Logits of both sides lie in files while a few texts are compared (at most about half a
 * gigabyte at a time), since they come from processes that run one after the other: two models in memory at once would ask for
 * a machine twice as large.
 *
 * The texts that are compared are prompts and A's own continuations (lab/reference.h says why), so where B's greedy text leaves
 * A's, the same position is among those compared, and it can be told whether it was a near-tie. */
#include "lab/verify.h"

#include "base/hash.h"
#include "base/mmap.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const class_names[VERIFY_N_CLASSES] = {"bit-identical", "within tolerance", "token-identical",
                                                          "quality-equal", "different"};

const char *verify_class_name(enum verify_class c)
{
    return class_names[c];
}

int verify_class_find(const char *name, enum verify_class *c)
{
    for (int i = 0; i < VERIFY_N_CLASSES; i++)
        if (!strcmp(name, class_names[i]) || (i == VERIFY_WITHIN_TOLERANCE && !strcmp(name, "within-tolerance"))) {
            *c = (enum verify_class)i;
            return 0;
        }
    return -1;
}

static void tell(const struct verify *v, const char *what, double done)
{
    if (v->o.tell)
        v->o.tell(v->o.user, what, (float)done);
}

size_t verify_first(const struct verify *v, const struct verify_text *t)
{
    return v->synthetic ? 0 : t->n_prompt - 1;
}

size_t verify_prefill(const struct verify *v, const struct verify_text *t)
{
    bool older = !v->side[0].has_jobs || !v->side[1].has_jobs;
    if (older) /* it knows no change within a text: one whole, the next token by token */
        return (t - v->texts) % 2 ? 1 : t->n;
    return t->n_prompt + (t->n - t->n_prompt + 1) / 2;
}

void verify_place(const struct verify *v, size_t compared, int *text, size_t *position)
{
    int i = 0;
    for (; i + 1 < v->o.n_texts; i++) {
        size_t n = v->texts[i].n - verify_first(v, &v->texts[i]);
        if (compared < n)
            break;
        compared -= n;
    }
    *text = i;
    *position = compared + verify_first(v, &v->texts[i]);
}

/* ---- greedy arrays */

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *greedy_jobs(const struct verify *v)
{
    json_t *jobs = json_array();
    for (int i = 0; i < v->o.n_texts; i++)
        json_array_append_new(jobs, json_pack("{s:o, s:I}", "tokens", ids_json(v->texts[i].ids, v->texts[i].n_prompt), "greedy",
                                              (json_int_t)v->o.n_greedy));
    return jobs;
}

/* Ids of an answer into `to`; they may be any JSON. */
static int read_greedy(const struct verify *v, int side, const json_t *answer, int32_t *to, struct hone_error *e)
{
    const json_t *list = json_object_get(answer, "greedy");
    if (json_array_size(list) != v->o.n_greedy)
        return err_set(e, HONE_EINPUT, "side %s gave %zu greedy tokens, not %zu", side ? "B" : "A", json_array_size(list),
                       v->o.n_greedy);
    for (size_t i = 0; i < v->o.n_greedy; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (id < 0 || id >= hone_model_n_vocab(v->side[side].model))
            return err_set(e, HONE_EINPUT, "side %s gave the token %lld", side ? "B" : "A", (long long)id);
        to[i] = (int32_t)id;
    }
    return 0;
}

static void read_about(struct verify_side *s, json_t *about)
{
    const char *build = json_string_value(json_object_get(about, "build")),
               *k = json_string_value(json_object_get(about, "type_k")),
               *v = json_string_value(json_object_get(about, "type_v"));
    snprintf(s->build, sizeof s->build, "%s", build ? build : "");
    if (k && v) {
        snprintf(s->type_k, sizeof s->type_k, "%s", k);
        snprintf(s->type_v, sizeof s->type_v, "%s", v);
    }
    s->kernels = json_incref(json_object_get(about, "kernels"));
}

/* Both runs of one side. */
static int run_greedy(struct verify *v, int side, struct hone_error *e)
{
    struct verify_side *s = &v->side[side];
    json_t *jobs = greedy_jobs(v), *answers[2] = {NULL, NULL}, *about = NULL;
    int rc = 0;
    for (int run = 0; run < 2 && !rc; run++) {
        char what[40];
        snprintf(what, sizeof what, "tokens of %s, run %d", side ? "B" : "A", run + 1);
        tell(v, what, (2 * side + run) / 8.0);
        rc = side_jobs(v, side, jobs, &answers[run], run ? NULL : &about, e);
    }
    for (int i = 0; i < v->o.n_texts && !rc; i++) {
        const json_t *one = json_array_get(answers[0], (size_t)i), *two = json_array_get(answers[1], (size_t)i);
        const json_t *hash = json_object_get(one, "logits_hash"), *again = json_object_get(two, "logits_hash");
        rc = read_greedy(v, side, one, v->texts[i].greedy[side], e);
        s->steady &=
            json_equal(json_object_get(one, "greedy"), json_object_get(two, "greedy")) && (!hash || json_equal(hash, again));
    }
    if (!rc)
        read_about(s, about);
    json_decref(about);
    json_decref(jobs);
    json_decref(answers[0]);
    json_decref(answers[1]);
    return rc;
}

/* SHA-256 of the ids of all arrays, and of their texts. */
static int hash_side(struct verify *v, int side, struct hone_error *e)
{
    struct verify_side *s = &v->side[side];
    const struct tokenizer *t = s->model->model->tokenizer;
    size_t n = v->o.n_greedy;
    int32_t *all = calloc((size_t)v->o.n_texts * n, sizeof *all);
    struct text text = {0};
    struct sha256 hash;
    int rc = all ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", (size_t)v->o.n_texts * n);
    for (int i = 0; i < v->o.n_texts && !rc; i++) {
        memcpy(all + (size_t)i * n, v->texts[i].greedy[side], n * sizeof *all);
        rc = degenerate_find(&v->texts[i].degenerate[side], t, v->texts[i].greedy[side], n, e);
        if (!rc && tokenizer_size(t))
            rc = tokenizer_decode(t, v->texts[i].greedy[side], n, true, &text, e);
        if (!rc)
            rc = text_append(&text, "", 1, e); /* a NUL between texts */
    }
    if (!rc)
        rc = hash_sha256(&hash, all, (size_t)v->o.n_texts * n * sizeof *all, e);
    if (!rc) {
        memcpy(s->tokens_sha, hash.hex, sizeof hash.hex);
        rc = hash_sha256(&hash, text.data, text.n, e);
    }
    if (!rc)
        memcpy(s->text_sha, hash.hex, sizeof hash.hex);
    text_free(&text);
    free(all);
    return rc;
}

static int run_arrays(struct verify *v, struct hone_error *e)
{
    int rc = 0;
    for (int side = 0; side < 2 && !rc; side++) {
        rc = run_greedy(v, side, e);
        if (!rc)
            rc = hash_side(v, side, e);
    }
    for (int i = 0; i < v->o.n_texts && !rc; i++) {
        struct verify_text *t = &v->texts[i];
        while (t->first_difference < v->o.n_greedy && t->greedy[0][t->first_difference] == t->greedy[1][t->first_difference])
            t->first_difference++;
        v->arrays_equal += t->first_difference == v->o.n_greedy;
        v->n_degenerate += t->degenerate[0].kind || t->degenerate[1].kind;
        if (!v->synthetic) /* the continuation that is compared */
            memcpy(t->ids + t->n_prompt, t->greedy[0], v->o.n_greedy * sizeof *t->ids);
    }
    return rc;
}

/* ---- logits */

static void logits_path(const struct verify *v, int side, int text, char *path, size_t size)
{
    snprintf(path, size, "%s/logits-%s-%d", v->o.scratch, side ? "B" : "A", text);
}

static int run_logits(struct verify *v, int side, int from, int to, struct hone_error *e)
{
    json_t *jobs = json_array(), *answers = NULL;
    for (int i = from; i < to; i++) {
        const struct verify_text *t = &v->texts[i];
        char path[4200];
        logits_path(v, side, i, path, sizeof path);
        json_array_append_new(jobs, json_pack("{s:o, s:I, s:I, s:s}", "tokens", ids_json(t->ids, t->n), "prefill",
                                              (json_int_t)verify_prefill(v, t), "from", (json_int_t)verify_first(v, t),
                                              "logits", path));
    }
    int rc = side_jobs(v, side, jobs, &answers, NULL, e);
    json_decref(jobs);
    json_decref(answers);
    return rc;
}

/* -log p of the next token. */
static double loss_of(const float *x, int32_t n, int32_t next)
{
    double top = (double)x[0], sum = 0;
    for (int32_t i = 1; i < n; i++)
        top = (double)x[i] > top ? (double)x[i] : top;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum) - (double)x[next];
}

/* Where B's array left A's: may it have? The compared position is the one that the token was chosen at. */
static void judge_departure(struct verify *v, struct verify_text *t, size_t compared)
{
    const struct compare_position *p = &v->logits.positions[compared];
    t->near_tie = (double)p->gap <= 4 * (double)p->rms && (double)p->nmse <= compare_bound();
}

static int compare_text(struct verify *v, int i, const struct mapping m[2], struct hone_error *e)
{
    struct verify_text *t = &v->texts[i];
    size_t n_vocab = (size_t)v->logits.n_vocab, first = verify_first(v, t), begin = v->logits.n;
    for (int side = 0; side < 2; side++)
        if (m[side].size != (t->n - first) * n_vocab * sizeof(float))
            return err_set(e, HONE_EINPUT, "side %s gave %zu bytes of logits for text %d, not %zu", side ? "B" : "A",
                           m[side].size, i, (t->n - first) * n_vocab * sizeof(float));
    int rc = 0;
    for (size_t at = first; at < t->n && !rc; at++) {
        const float *a = (const float *)(const void *)m[0].data + (at - first) * n_vocab;
        const float *b = (const float *)(const void *)m[1].data + (at - first) * n_vocab;
        bool same = !memcmp(a, b, n_vocab * sizeof *a);
        size_t k = v->logits.n;
        rc = comparison_add(&v->logits, a, b, e);
        if (rc)
            break;
        if (!same && v->first_bits == SIZE_MAX)
            v->first_bits = k;
        if (v->logits.positions[k].top_ref != v->logits.positions[k].top_got && v->first_token == SIZE_MAX)
            v->first_token = k;
        if (at + 1 < t->n) {
            double loss[2] = {loss_of(a, (int32_t)n_vocab, t->ids[at + 1]), loss_of(b, (int32_t)n_vocab, t->ids[at + 1])};
            v->loss[0] += loss[0];
            v->loss[1] += loss[1];
            v->loss_error += (loss[1] - loss[0]) * (loss[1] - loss[0]); /* a sum of squares until all are there */
        }
    }
    if (!rc && t->first_difference < v->o.n_greedy && !v->synthetic)
        judge_departure(v, t, begin + t->first_difference);
    return rc;
}

static int compare_texts(struct verify *v, int from, int to, struct hone_error *e)
{
    int rc = 0;
    for (int i = from; i < to; i++) {
        struct mapping m[2] = {{0}};
        char path[4200];
        for (int side = 0; side < 2; side++) {
            logits_path(v, side, i, path, sizeof path);
            if (!rc)
                rc = mapping_open(&m[side], path, e);
            unlink(path); /* what is mapped stays */
        }
        if (!rc)
            rc = compare_text(v, i, m, e);
        mapping_close(&m[0]);
        mapping_close(&m[1]);
    }
    return rc;
}

static int run_comparison(struct verify *v, struct hone_error *e)
{
    enum { SIDE_BYTES = 256 << 20 };
    size_t row = (size_t)v->logits.n_vocab * sizeof(float), positions = 0;
    int rc = 0;
    for (int from = 0, to; from < v->o.n_texts && !rc; from = to) {
        size_t bytes = 0;
        for (to = from; to < v->o.n_texts && (to == from || bytes < SIDE_BYTES); to++)
            bytes += v->texts[to].n * row;
        for (int side = 0; side < 2 && !rc; side++) {
            tell(v, side ? "logits of B" : "logits of A", 0.5 + 0.4 * (2 * from + side * (to - from)) / (2.0 * v->o.n_texts));
            rc = run_logits(v, side, from, to, e);
        }
        rc = rc ? rc : compare_texts(v, from, to, e);
    }
    if (rc)
        return rc;
    for (int i = 0; i < v->o.n_texts; i++)
        positions += v->texts[i].n - verify_first(v, &v->texts[i]) - 1;
    double n = (double)positions;
    v->loss[0] /= n;
    v->loss[1] /= n;
    double change = v->loss[1] - v->loss[0], variance = v->loss_error / n - change * change;
    v->loss_error = n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
    comparison_judge(&v->logits, v->o.kl_bound);
    if (v->first_bits == SIZE_MAX)
        v->first_bits = v->logits.n;
    if (v->first_token == SIZE_MAX)
        v->first_token = v->logits.n;
    v->compared = true;
    return 0;
}

/* ---- all of it */

static int make_texts(struct verify *v, struct hone_error *e)
{
    struct sequence *list;
    size_t more = v->o.n_greedy;
    int rc =
        texts_encode(&list, v->o.n_texts, v->synthetic ? v->o.prompt_tokens + more : v->o.prompt_tokens, v->side[0].model, e);
    v->texts = rc ? NULL : calloc((size_t)v->o.n_texts, sizeof *v->texts);
    if (!rc && !v->texts)
        rc = err_set(e, HONE_ERESOURCE, "no memory for %d texts", v->o.n_texts);
    for (int i = 0; i < v->o.n_texts && !rc; i++) {
        struct verify_text *t = &v->texts[i];
        t->n_prompt = v->synthetic ? list[i].n - more : list[i].n;
        t->n = t->n_prompt + more;
        t->ids = calloc(t->n, sizeof *t->ids);
        t->greedy[0] = calloc(more, sizeof *t->ids);
        t->greedy[1] = calloc(more, sizeof *t->ids);
        if (!t->ids || !t->greedy[0] || !t->greedy[1])
            rc = err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", t->n);
        else
            memcpy(t->ids, list[i].ids, list[i].n * sizeof *t->ids);
    }
    texts_free(list, v->o.n_texts);
    return rc;
}

/* Ids of one side mean something on the other. */
static bool comparable(const struct verify *v)
{
    return hone_model_n_vocab(v->side[0].model) == hone_model_n_vocab(v->side[1].model) && !json_array_size(v->tokenizer);
}

static int run_all(struct verify *v, struct hone_error *e)
{
    int rc = verify_facts(v, e);
    if (rc || !comparable(v))
        return rc;
    v->logits.n_vocab = hone_model_n_vocab(v->side[0].model);
    rc = make_texts(v, e);
    if (!rc)
        rc = run_arrays(v, e);
    if (!rc)
        rc = run_comparison(v, e);
    if (!rc && v->first_bits < v->logits.n) {
        tell(v, "nodes", 0.9);
        rc = verify_look(v, v->o.scratch, e);
    }
    for (int side = 0; side < 2 && v->o.shadow && !rc; side++) {
        tell(v, side ? "shadow of B" : "shadow of A", 0.95);
        rc = side_shadow(v, side, e);
    }
    return rc;
}

int verify_run(struct verify *v, struct arm *a, struct arm *b, const struct verify_options *o, struct hone_error *e)
{
    const char *tmp = o->scratch ? o->scratch : getenv("TMPDIR");
    char folder[4100];
    *v = (struct verify){.o = *o, .first_bits = SIZE_MAX, .first_token = SIZE_MAX};
    snprintf(folder, sizeof folder, "%.4000s/hone-verify-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return err_set(e, HONE_ERESOURCE, "%s: %s", folder, strerror(errno));
    v->o.scratch = folder;
    int rc = side_open(v, 0, a, e);
    if (!rc)
        rc = side_open(v, 1, b, e);
    if (!rc)
        rc = run_all(v, e);
    if (!rc)
        verify_judge(v);
    for (int i = 0; i < v->o.n_texts; i++) /* of a run that failed */
        for (int side = 0; side < 2; side++) {
            char path[4200];
            logits_path(v, side, i, path, sizeof path);
            unlink(path);
        }
    for (int side = 0; side < 2; side++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/jobs-%s", folder, side ? "B" : "A");
        unlink(path);
    }
    rmdir(folder);
    v->o.scratch = NULL;
    return rc;
}

void verify_free(struct verify *v)
{
    for (int i = 0; v->texts && i < v->o.n_texts; i++) {
        free(v->texts[i].ids);
        free(v->texts[i].greedy[0]);
        free(v->texts[i].greedy[1]);
    }
    free(v->texts);
    comparison_free(&v->logits);
    json_decref(v->tokenizer);
    json_decref(v->tokenizer_minor);
    json_decref(v->weights);
    side_close(&v->side[1]);
    side_close(&v->side[0]);
    *v = (struct verify){0};
}
