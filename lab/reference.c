/* reference.c: the cache file is named by a hash of all that its content depends on (build, file identity, ids); a file of the wrong size is
 * as good as none. It is written beside its name and renamed, so a kill leaves nothing half. */
#include "lab/reference.h"

#include "base/hash.h"
#include "lab/one_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t key_of(const struct reference *r, const struct hone_model *m)
{
    struct stat st = {0};
    stat(m->model->gguf->path, &st);
    uint64_t h[4 + N_TEXTS] = {hash64(hone_build(), strlen(hone_build())), (uint64_t)st.st_size,
                               (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec, r->n};
    for (int i = 0; i < r->n_texts; i++) /* the prompts: the continuations follow from them */
        h[4 + i] = hash64(r->texts[i].ids, (r->first[i] + 1) * sizeof *r->texts[i].ids);
    return hash64(h, sizeof h);
}

/* The file holds the ids of all texts, then the logits. */
static bool cache_read(struct reference *r, const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f)
        return false;
    bool ok = true;
    for (int i = 0; i < r->n_texts && ok; i++)
        ok = fread(r->texts[i].ids, sizeof *r->texts[i].ids, r->texts[i].n, f) == r->texts[i].n;
    for (int i = 0; i < r->n_texts && ok; i++)
        for (size_t j = 0; j < r->texts[i].n; j++)
            ok &= r->texts[i].ids[j] >= 0 && r->texts[i].ids[j] < r->n_vocab;
    size_t n = r->n * (size_t)r->n_vocab;
    ok = ok && fread(r->logits, sizeof *r->logits, n, f) == n && fgetc(f) == EOF;
    fclose(f);
    return ok;
}

static void cache_write(const struct reference *r, const char *path)
{
    char partial[4200];
    snprintf(partial, sizeof partial, "%s.%ld.partial", path, (long)getpid());
    FILE *f = fopen(partial, "wbe");
    if (!f)
        return; /* a cache that cannot be written is only slower */
    bool ok = true;
    for (int i = 0; i < r->n_texts; i++)
        ok &= fwrite(r->texts[i].ids, sizeof *r->texts[i].ids, r->texts[i].n, f) == r->texts[i].n;
    size_t n = r->n * (size_t)r->n_vocab;
    ok &= fwrite(r->logits, sizeof *r->logits, n, f) == n;
    ok &= fclose(f) == 0;
    if (!ok || rename(partial, path))
        remove(partial);
}

struct job {
    struct reference *r;
    struct hone_session *s;
    int (*progress)(void *user, float done);
    void *user;
    size_t done; /* compared positions so far, of all texts */
};

/* Feeds tokens [from, to) of a text in pieces (progress and a Ctrl-C are then seen within seconds) and keeps the logits of compared
 * positions. */
static int feed(struct job *j, const struct sequence *q, size_t first, size_t from, size_t to, struct hone_error *e)
{
    size_t row = (size_t)j->r->n_vocab;
    int rc = 0;
    while (from < to && !rc) {
        struct hone_token tokens[16];
        size_t n = to - from < 16 ? to - from : 16, kept = 0;
        for (size_t i = 0; i < n; i++) {
            bool want = from + i >= first;
            tokens[i] = (struct hone_token){q->ids[from + i], 0, want};
            kept += want;
        }
        rc = hone_session_eval(j->s, tokens, n, e);
        if (!rc && kept)
            memcpy(j->r->logits + j->done * row, hone_session_logits(j->s, 0), kept * row * sizeof(float));
        j->done += kept;
        from += n;
        if (!rc && j->progress && j->progress(j->user, (float)j->done / (float)j->r->n))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
    }
    return rc;
}

static int compute(struct reference *r, const struct hone_model *m, const struct hone_session_params *base,
                   int (*progress)(void *user, float done), void *user, struct hone_error *e)
{
    struct hone_session_params p = one_device_params(base); /* so it is the same for every split, and may be kept for all */
    struct one_device_place place;
    struct job j = {.r = r, .progress = progress, .user = user};
    p.gates = "kernel=ref fuse=off";
    p.type_k = p.type_v = "f32";
    p.recipe = NULL;
    one_device_enter(&place);
    int rc = hone_session_create(&j.s, m, &p, e);
    for (int i = 0; i < r->n_texts && !rc; i++) {
        struct sequence *q = &r->texts[i];
        size_t first = r->first[i];
        rc = hone_session_rewind(j.s, 0, 0, e);
        if (model_is_synthetic(m)) {
            rc = rc ? rc : feed(&j, q, first, 0, q->n, e);
            continue;
        }
        if (!rc)
            rc = feed(&j, q, first, 0, first + 1, e);
        for (size_t at = first + 1; at < q->n && !rc; at++) { /* the last id's own logits are compared too */
            q->ids[at] = hone_greedy(j.s);
            rc = feed(&j, q, first, at, at + 1, e);
        }
    }
    hone_session_free(j.s);
    one_device_leave(&place);
    return rc;
}

/* Room for the continuations behind the prompts. */
static int extend(struct reference *r, const struct hone_model *m, size_t n_greedy, struct hone_error *e)
{
    for (int i = 0; i < r->n_texts; i++) {
        struct sequence *q = &r->texts[i];
        r->first[i] = model_is_synthetic(m) ? 0 : q->n - 1;
        int32_t *ids = realloc(q->ids, (q->n + n_greedy) * sizeof *ids);
        if (!ids)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", q->n + n_greedy);
        q->ids = ids;
        if (!model_is_synthetic(m)) {
            memset(ids + q->n, 0, n_greedy * sizeof *ids);
            q->n += n_greedy;
        }
        r->n += q->n - r->first[i];
    }
    return 0;
}

int reference_make(struct reference *r, const struct hone_model *m, const struct hone_session_params *p, int n_texts, size_t prompt_tokens,
                   size_t n_greedy, const char *cache, int (*progress)(void *user, float done), void *user, struct hone_error *e)
{
    *r = (struct reference){.n_texts = n_texts, .n_vocab = hone_model_n_vocab(m)};
    int rc = texts_encode(&r->texts, n_texts, model_is_synthetic(m) ? prompt_tokens + n_greedy : prompt_tokens, m, e);
    if (!rc)
        rc = extend(r, m, n_greedy, e);
    if (!rc) {
        r->logits = malloc(r->n * (size_t)r->n_vocab * sizeof *r->logits);
        if (!r->logits)
            rc = err_set(e, HONE_ERESOURCE, "no memory for the reference's logits: %.1f MiB",
                         (double)r->n * r->n_vocab * sizeof(float) / 0x1p20);
    }
    if (!rc) {
        char path[4096] = "";
        if (cache)
            snprintf(path, sizeof path, "%s/reference-%016llx.logits", cache, (unsigned long long)key_of(r, m));
        if (!cache || !cache_read(r, path)) {
            rc = compute(r, m, p, progress, user, e);
            if (!rc && cache)
                cache_write(r, path);
        }
    }
    if (rc)
        reference_free(r);
    return rc;
}

void reference_free(struct reference *r)
{
    texts_free(r->texts, r->n_texts);
    free(r->logits);
    *r = (struct reference){0};
}

int reference_compare(const struct reference *r, struct hone_session *s, struct comparison *c, struct hone_error *e)
{
    int rc = 0;
    size_t at = 0, row = (size_t)r->n_vocab;
    c->n_vocab = r->n_vocab;
    for (int i = 0; i < r->n_texts && !rc; i++) {
        const struct sequence *q = &r->texts[i];
        size_t first = r->first[i];
        struct hone_token *tokens = calloc(q->n, sizeof *tokens);
        if (!tokens)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", q->n);
        for (size_t j = 0; j < q->n; j++)
            tokens[j] = (struct hone_token){q->ids[j], 0, j >= first};
        rc = hone_session_rewind(s, 0, 0, e);
        for (size_t done = 0, n = first + (q->n - first + 1) / 2; done < q->n && !rc; done += n, n = 1) {
            rc = hone_session_eval(s, tokens + done, n, e);
            for (size_t j = 0; !rc && hone_session_logits(s, j); j++, at++)
                rc = comparison_add(c, r->logits + at * row, hone_session_logits(s, j), e);
        }
        free(tokens);
    }
    return rc;
}
