/* reference.c: the cache file is named by a hash of all that its content depends on (build, file identity, ids); a file of the wrong size is
 * as good as none. It is written beside its name and renamed, so a kill leaves nothing half. */
#include "lab/reference.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t key_of(const struct reference *r, const struct hone_model *m)
{
    struct stat st = {0};
    stat(m->model->gguf->path, &st);
    uint64_t h[3 + N_TEXTS] = {hash64(hone_build(), strlen(hone_build())), (uint64_t)st.st_size,
                               (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec};
    for (int i = 0; i < r->n_texts; i++)
        h[3 + i] = hash64(r->texts[i].ids, r->texts[i].n * sizeof *r->texts[i].ids);
    return hash64(h, sizeof h);
}

static bool cache_read(struct reference *r, const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f)
        return false;
    size_t n = r->n * (size_t)r->n_vocab;
    bool ok = fread(r->logits, sizeof *r->logits, n, f) == n && fgetc(f) == EOF;
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
    size_t n = r->n * (size_t)r->n_vocab;
    bool ok = fwrite(r->logits, sizeof *r->logits, n, f) == n;
    ok &= fclose(f) == 0;
    if (!ok || rename(partial, path))
        remove(partial);
}

static int compute(struct reference *r, const struct hone_model *m, const struct hone_session_params *base,
                   int (*progress)(void *user, float done), void *user, struct hone_error *e)
{
    struct hone_session_params p = *base;
    struct hone_session *s;
    p.gates = "kernel=ref fuse=off";
    p.type_k = p.type_v = "f32";
    p.recipe = NULL;
    int rc = hone_session_create(&s, m, &p, e);
    size_t at = 0, row = (size_t)r->n_vocab;
    for (int i = 0; i < r->n_texts && !rc; i++) {
        const struct sequence *q = &r->texts[i];
        rc = hone_session_rewind(s, 0, 0, e);
        for (size_t done = 0; done < q->n && !rc;) { /* pieces: progress and a Ctrl-C are then seen within seconds */
            struct hone_token tokens[16];
            size_t n = q->n - done < 16 ? q->n - done : 16;
            for (size_t j = 0; j < n; j++)
                tokens[j] = (struct hone_token){q->ids[done + j], 0, true};
            rc = hone_session_eval(s, tokens, n, e);
            if (!rc)
                memcpy(r->logits + at * row, hone_session_logits(s, 0), n * row * sizeof(float));
            at += n;
            done += n;
            if (!rc && progress && progress(user, (float)at / (float)r->n))
                rc = err_set(e, HONE_ECANCELED, "cancelled");
        }
    }
    hone_session_free(s);
    return rc;
}

int reference_make(struct reference *r, const struct hone_model *m, const struct hone_session_params *p, int n_texts, size_t text_tokens,
                   const char *cache, int (*progress)(void *user, float done), void *user, struct hone_error *e)
{
    *r = (struct reference){.n_texts = n_texts, .n_vocab = hone_model_n_vocab(m)};
    int rc = texts_encode(&r->texts, n_texts, text_tokens, m, e);
    for (int i = 0; i < n_texts && !rc; i++)
        r->n += r->texts[i].n;
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
        struct hone_token *tokens = calloc(q->n, sizeof *tokens);
        if (!tokens)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", q->n);
        for (size_t j = 0; j < q->n; j++)
            tokens[j] = (struct hone_token){q->ids[j], 0, true};
        rc = hone_session_rewind(s, 0, 0, e);
        for (size_t done = 0, n = q->n - q->n / 4; done < q->n && !rc; done += n, n = 1) {
            rc = hone_session_eval(s, tokens + done, n, e);
            for (size_t j = 0; j < n && !rc; j++, at++)
                rc = comparison_add(c, r->logits + at * row, hone_session_logits(s, j), e);
        }
        free(tokens);
    }
    return rc;
}
