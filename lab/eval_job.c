/* eval_job.c: jobs are hostile like any input: every field has its type and range, and an unknown one is an error rather than
 * half a job. The logits go to the file as they come, a step's rows at a time, so a long text needs no memory for all of them.
 */
#include "lab/eval_job.h"

#include "base/hash.h"
#include "lab/node_dump.h"
#include "model/sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct hone_session *s;
    int32_t n_vocab;
    int32_t *ids;
    size_t n, prefill, from, greedy, rows;
    const char *path;
    FILE *file;
    uint64_t hash;
    bool has_nodes;
    size_t step;
    struct node_dump dump;
    json_t *nodes;
};

static int read_number(const json_t *job, const char *key, size_t lo, size_t hi, size_t *out, struct hone_error *e)
{
    const json_t *v = json_object_get(job, key);
    if (!v)
        return 0;
    json_int_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < (json_int_t)lo || x > (json_int_t)hi)
        return err_set(e, HONE_EINPUT, "'%s' is no number from %zu to %zu", key, lo, hi);
    *out = (size_t)x;
    return 0;
}

static int read_path(const json_t *job, const char *key, const char **out, struct hone_error *e)
{
    const json_t *v = json_object_get(job, key);
    const char *text = json_string_value(v);
    if (v && (!text || !*text || strlen(text) != json_string_length(v)))
        return err_set(e, HONE_EINPUT, "'%s' is no path", key);
    *out = text;
    return 0;
}

static int check_keys(const json_t *o, const char *const *known, struct hone_error *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return err_set(e, HONE_EINPUT, "'%.40s' is nothing that a job has", key);
    }
    return 0;
}

static int read_nodes(struct job *j, const json_t *o, struct hone_error *e)
{
    static const char *const known[] = {"step", "file", "first", "bytes", NULL};
    const char *path = NULL;
    size_t first = 0, bytes = SIZE_MAX;
    if (!json_is_object(o))
        return err_set(e, HONE_EINPUT, "'nodes' is no object");
    int rc = check_keys(o, known, e);
    if (!rc)
        rc = read_number(o, "step", 0, j->n - j->prefill, &j->step, e);
    if (!rc)
        rc = read_path(o, "file", &path, e);
    if (!rc)
        rc = read_number(o, "first", 0, INT32_MAX, &first, e);
    if (!rc)
        rc = read_number(o, "bytes", 0, INT64_MAX, &bytes, e);
    j->has_nodes = true;
    j->dump = (struct node_dump){.file = path, .first = (int)first, .bytes = bytes};
    return rc;
}

static int read_job(struct job *j, const json_t *job, struct hone_error *e)
{
    static const char *const known[] = {"tokens", "prefill", "greedy", "logits", "from", "nodes", NULL};
    const json_t *tokens = json_object_get(job, "tokens"), *nodes = json_object_get(job, "nodes");
    if (!json_is_object(job) || !json_array_size(tokens))
        return err_set(e, HONE_EINPUT, "a job is an object with an array 'tokens' that is not empty");
    int rc = check_keys(job, known, e);
    j->n = json_array_size(tokens);
    j->ids = calloc(j->n, sizeof *j->ids);
    if (!j->ids)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", j->n);
    for (size_t i = 0; i < j->n && !rc; i++) {
        const json_t *id = json_array_get(tokens, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x >= j->n_vocab)
            rc = err_set(e, HONE_EINPUT, "token %zu is no id from 0 to %d", i, j->n_vocab - 1);
        j->ids[i] = (int32_t)x;
    }
    j->prefill = j->n;
    j->from = j->n - 1;
    if (!rc)
        rc = read_number(job, "prefill", 1, j->n, &j->prefill, e);
    if (!rc)
        rc = read_number(job, "from", 0, j->n - 1, &j->from, e);
    if (!rc)
        rc = read_number(job, "greedy", 0, 1 << 24, &j->greedy, e);
    if (!rc)
        rc = read_path(job, "logits", &j->path, e);
    if (!rc && nodes)
        rc = read_nodes(j, nodes, e);
    return rc;
}

/* The step's wanted rows: hashed and, of the job's own tokens, written. */
static int keep_rows(struct job *j, bool write, struct hone_error *e)
{
    size_t size = (size_t)j->n_vocab * sizeof(float), i = 0;
    for (const float *row; (row = hone_session_logits(j->s, i)); i++) {
        uint64_t h[2] = {j->hash, hash64(row, size)};
        j->hash = hash64(h, sizeof h);
        if (write && j->file && fwrite(row, 1, size, j->file) != size)
            return err_set(e, HONE_ERESOURCE, "%s: %s", j->path, strerror(errno));
    }
    j->rows += i;
    return 0;
}

static int feed(struct job *j, size_t at, size_t n, struct hone_error *e)
{
    struct hone_token *tokens = calloc(n, sizeof *tokens);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (struct hone_token){j->ids[at + i], 0, at + i >= j->from};
    int rc = hone_session_eval(j->s, tokens, n, e);
    free(tokens);
    return rc ? rc : keep_rows(j, true, e);
}

static int feed_all(struct job *j, struct hone_error *e)
{
    int rc = 0;
    for (size_t at = 0, n = j->prefill, step = 0; at < j->n && !rc; at += n, n = 1, step++) {
        bool watched = j->has_nodes && step == j->step;
        if (watched)
            rc = node_dump_begin(&j->dump, j->s, e);
        if (!rc)
            rc = feed(j, at, n, e);
        if (watched) {
            int ended = node_dump_end(&j->dump, j->s, !rc, &j->nodes, e);
            return ended ? ended : rc;
        }
    }
    return rc;
}

static int go_on(struct job *j, json_t *greedy, struct hone_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < j->greedy && !rc; i++) {
        int32_t id = hone_greedy(j->s);
        json_array_append_new(greedy, json_integer(id));
        if (i + 1 < j->greedy)
            rc = hone_session_eval(j->s, &(struct hone_token){id, 0, true}, 1, e);
        if (!rc && i + 1 < j->greedy)
            rc = keep_rows(j, false, e);
    }
    return rc;
}

int eval_job_run(struct hone_session *s, const struct hone_model *m, const json_t *job, json_t **answer, struct hone_error *e)
{
    struct job j = {.s = s, .n_vocab = hone_model_n_vocab(m)};
    json_t *greedy = json_array();
    *answer = NULL;
    int rc = read_job(&j, job, e);
    if (!rc && j.path && !(j.file = fopen(j.path, "wbe")))
        rc = err_set(e, HONE_ERESOURCE, "%s: %s", j.path, strerror(errno));
    if (!rc)
        rc = hone_session_rewind(s, 0, 0, e);
    if (!rc)
        rc = feed_all(&j, e);
    if (!rc && !j.has_nodes)
        rc = go_on(&j, greedy, e);
    if (j.file && fclose(j.file) && !rc)
        rc = err_set(e, HONE_ERESOURCE, "%s: %s", j.path, strerror(errno));
    if (!rc) {
        char hash[20];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j.hash);
        *answer = json_pack("{s:O, s:I, s:s}", "greedy", greedy, "rows", (json_int_t)j.rows, "logits_hash", hash);
        if (*answer && j.nodes)
            json_object_set(*answer, "nodes", j.nodes);
        rc = *answer ? 0 : err_set(e, HONE_ERESOURCE, "no memory for an answer");
    }
    json_decref(greedy);
    json_decref(j.nodes);
    free(j.ids);
    return rc;
}

int session_kv_formats(struct hone_session *s, const char **k, const char **v, struct hone_error *e)
{
    const struct plan *p;
    int rc = session_plan(s, 1, 1, &p, e);
    *k = *v = "";
    for (int i = 0; !rc && i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].node->n_src; j++) {
            const struct tensor *t = p->steps[i].node->src[j];
            const struct tensor *root = t && t->base ? t->base : t;
            if (root && !strncmp(root->name, "cache_k-", 8))
                *k = format_get(root->format)->name;
            else if (root && !strncmp(root->name, "cache_v-", 8))
                *v = format_get(root->format)->name;
        }
    return rc;
}
