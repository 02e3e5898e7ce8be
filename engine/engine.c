/* engine.c: the model side of the public library: open, ask, tokenize. Sessions are in session.h and its files. */
#include "engine/cuts.h"
#include "engine/engine.h"

#include "build.h"
#include "graph/weights.h"

#include <stdlib.h>
#include <string.h>

const char *hone_build(void)
{
    return HONE_VERSION " (" BUILD_COMMIT ", " BUILD_COMPILER ", " BUILD_FLAGS ")";
}

const char *build_settings(void)
{
    return BUILD_SETTINGS;
}

int build_number(void)
{
    return BUILD_NUMBER;
}

int hone_model_open(struct hone_model **out, const char *path, struct hone_error *e)
{
    struct hone_error own = {0};
    struct hone_model *m = calloc(1, sizeof *m);
    int rc = m ? model_open(&m->model, path, &own) : err_set(&own, HONE_ERESOURCE, "no memory for a model");
    if (rc) {
        free(m);
        m = NULL;
    }
    *out = m;
    if (e)
        *e = own;
    return rc;
}

void hone_model_close(struct hone_model *m)
{
    if (!m)
        return;
    cuts_forget(m->model);
    for (int i = 0; i < m->model->n_weights; i++)
        weight_free(m->model->weights[i]);
    model_close(m->model);
    free(m);
}

int32_t hone_model_n_vocab(const struct hone_model *m)
{
    return m->model->n_vocab;
}

int32_t hone_model_n_ctx_train(const struct hone_model *m)
{
    return m->model->n_ctx_train;
}

const char *hone_model_arch(const struct hone_model *m)
{
    return m->model->arch->name;
}

bool hone_is_end(const struct hone_model *m, int32_t token)
{
    return tokenizer_is_end(m->model->tokenizer, token);
}

int hone_tokenize(const struct hone_model *m, const char *text, size_t size, bool add_special, bool parse_special, int32_t **ids,
                  size_t *n, struct hone_error *e)
{
    struct hone_error own = {0};
    struct token_list list = {0};
    unsigned flags = (add_special ? TOKENIZE_BOS : 0u) | (parse_special ? TOKENIZE_SPECIAL : 0u);
    int rc = tokenizer_encode(m->model->tokenizer, text, size, flags, &list, &own);
    if (rc)
        token_list_free(&list);
    *ids = list.ids;
    *n = rc ? 0 : list.n;
    if (e)
        *e = own;
    return rc;
}

int hone_detokenize(const struct hone_model *m, const int32_t *ids, size_t n, bool special, char **text, size_t *size,
                    struct hone_error *e)
{
    struct hone_error own = {0};
    struct text out = {0};
    int rc = tokenizer_decode(m->model->tokenizer, ids, n, special, &out, &own);
    if (!rc)
        rc = text_append(&out, "", 0, &own); /* an empty result is a string too */
    if (rc)
        text_free(&out);
    *text = out.data;
    *size = rc ? 0 : out.n;
    if (e)
        *e = own;
    return rc;
}

void hone_free(void *p)
{
    free(p);
}
