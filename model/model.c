/* model.c: opening a model: the file, the architecture that it names, the tokenizer, then the architecture's own keys and
 * tensors. Nothing of the weights is read here, so a mapped model of any size is ready as soon as its vocabulary is. */
#include "model/model.h"

#include "model/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCH(name) extern const struct arch arch_##name;
#include "model/arch/arch.def"
#undef ARCH

static const struct arch *const table[] = {
#define ARCH(name) &arch_##name,
#include "model/arch/arch.def"
#undef ARCH
};

const struct arch *arch_by_name(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i]->name) == size && !memcmp(table[i]->name, name, size))
            return table[i];
    return NULL;
}

static char names[1024];

static void names_join(void)
{
    for (size_t i = 0, n = 0; i < sizeof table / sizeof *table && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", table[i]->name);
}

const char *arch_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, names_join);
    return names;
}

/* Which tensors of the file nobody asked for. */
static int check_unused(const struct loader *l, struct hone_error *e)
{
    const struct gguf *g = l->model->gguf;
    char list[300] = "";
    int n_unused = 0;
    for (int64_t i = 0; i < g->n_tensors; i++) {
        if (l->used[i])
            continue;
        size_t n = strlen(list);
        if (n + g->tensors[i].name.size + 3 < sizeof list)
            snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", g->tensors[i].cname);
        n_unused++;
    }
    return n_unused ? err_set(e, HONE_EINPUT, "%s: %d tensor(s) that the architecture %s does not know: %s", g->path, n_unused,
                              l->prefix, list)
                    : 0;
}

static int load(struct model *m, struct hone_error *e)
{
    struct gguf *g = m->gguf;
    struct gguf_string name;
    int rc = gguf_get_string(g, "general.architecture", true, &name, e);
    if (rc)
        return rc;
    m->arch = arch_by_name(name.data, name.size);
    if (!m->arch)
        return err_set(e, HONE_EINPUT, "%s: architecture '%.*s' is not one that hone knows: %s", g->path,
                       (int)(name.size < 60 ? name.size : 60), name.data, arch_names());
    rc = tokenizer_open(&m->tokenizer, g, e);
    if (rc)
        return rc;
    struct loader l = {.model = m, .prefix = m->arch->name, .layer = -1};
    l.used = arena_array(&m->arena, (size_t)g->n_tensors + 1, sizeof *l.used);
    m->weights = arena_array(&m->arena, (size_t)g->n_tensors + 1, sizeof *m->weights);
    if (!l.used || !m->weights)
        return err_set(e, HONE_ERESOURCE, "%s: no memory for %lld tensors", g->path, (long long)g->n_tensors);
    m->n_layer = loader_int(&l, "block_count", REQUIRED, 0, 1, 1024);
    m->n_embd = loader_int(&l, "embedding_length", REQUIRED, 0, 1, 1 << 20);
    m->n_ctx_train = loader_int(&l, "context_length", REQUIRED, 0, 1, 1 << 30);
    const struct gguf_tensor *embd = gguf_tensor(g, "token_embd.weight");
    if (!embd)
        loader_refuse(&l, "the tensor token_embd.weight is missing");
    else if (embd->n_dims != 2 || embd->ne[1] > INT32_MAX)
        loader_refuse(&l, "the tensor token_embd.weight has %d dimensions, not [embedding, vocabulary]", embd->n_dims);
    else
        m->n_vocab = (int32_t)embd->ne[1];
    if (!l.error.code && tokenizer_size(m->tokenizer) > m->n_vocab)
        loader_refuse(&l, "the vocabulary has %d tokens but token_embd.weight only %d rows", tokenizer_size(m->tokenizer),
                      m->n_vocab);
    if (!l.error.code) {
        m->memory = arena_array(&m->arena, (size_t)m->n_layer, sizeof *m->memory);
        if (!m->memory)
            return err_set(e, HONE_ERESOURCE, "%s: no memory for %d layers", g->path, m->n_layer);
        rc = m->arch->load(m, &l, &l.error);
    }
    if (!l.error.code && l.n_missing)
        loader_refuse(&l, "%d tensor(s) missing for the architecture %s: %s", l.n_missing, l.prefix, l.missing);
    if (l.error.code) {
        if (e)
            *e = l.error;
        return l.error.code;
    }
    return rc ? rc : check_unused(&l, e);
}

int model_from_gguf(struct model **out, struct gguf *g, struct hone_error *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        gguf_close(g);
        return err_set(e, HONE_ERESOURCE, "no memory for a model");
    }
    m->gguf = g;
    int rc = load(m, e);
    if (rc) {
        model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_open(struct model **out, const char *path, struct hone_error *e)
{
    struct gguf *g;
    int rc = gguf_open(&g, path, e);
    return rc ? rc : model_from_gguf(out, g, e);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    tokenizer_close(m->tokenizer);
    gguf_close(m->gguf);
    arena_free(&m->arena);
    free(m);
}
