/* generate.c: the loop of prefill, sample, show. Text is shown only up to the last complete UTF-8 sequence; the rest waits for
 * the next token. */
#include "cmd/generate.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generate_args generate_args = {.n_predict = -1, .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f,
                                      .repeat_penalty = 1, .repeat_last_n = 64};

void generation_free(struct generation *g)
{
    text_free(&g->text);
    token_list_free(&g->ids);
}

int generate_sampler(struct sampler **out, const struct hone_model *m)
{
    const struct generate_args *a = &generate_args;
    struct sampler_params p = {.temperature = a->temperature, .top_k = a->top_k, .top_p = a->top_p, .min_p = a->min_p,
                               .repeat_penalty = a->repeat_penalty, .repeat_last_n = a->repeat_last_n, .seed = a->seed};
    struct hone_error e = {0};
    return sampler_create(out, &p, hone_model_n_vocab(m), &e) ? cmd_fail(&e) : 0;
}

/* What the two options name; both for as long as the process lives. */
static char *template_text;
static json_t *tools;

static int read_template(const char *path, struct hone_error *e)
{
    enum { LIMIT = 1 << 20 };
    size_t n;
    int rc = file_read(&template_text, &n, path, e);
    if (!rc && (n > LIMIT || strlen(template_text) != n))
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes, or a NUL among them: no chat template", path, n);
    else if (!rc && (rc = chat_template_check(template_text, e)))
        err_prefix(e, "%s", path);
    return rc;
}

static int read_tools(const char *path, struct hone_error *e)
{
    json_error_t why;
    char *text;
    size_t n;
    int rc = file_read(&text, &n, path, e);
    if (rc)
        return rc;
    tools = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!tools)
        return err_set(e, HONE_EINPUT, "%s:%d:%d: no JSON: %s", path, why.line, why.column, why.text);
    rc = chat_tools_check(tools, e);
    if (rc)
        err_prefix(e, "%s", path);
    return rc;
}

int generate_prepare(void)
{
    const struct generate_args *a = &generate_args;
    struct hone_error e = {0};
    if (a->chat_template && (a->template_path || a->tools_path))
        return cmd_refuse(HONE_EUSAGE, "--chat-template names a family, which has no template of its own%s",
                          a->tools_path ? " and no tools" : "; --chat-template-file gives one");
    if (a->template_path && !strcmp(a->template_path, "-") && a->tools_path && !strcmp(a->tools_path, "-"))
        return cmd_refuse(HONE_EUSAGE, "stdin is the template or the tools, not both");
    if ((a->template_path && read_template(a->template_path, &e)) || (a->tools_path && read_tools(a->tools_path, &e)))
        return cmd_fail(&e);
    return 0;
}

const char *generate_template(const struct hone_model *m)
{
    return template_text ? template_text : tokenizer_chat_template(m->model->tokenizer);
}

const json_t *generate_tools(void)
{
    return tools;
}

int generate_take_tools(const json_t *saved, struct hone_error *e)
{
    if (tools)
        return json_equal(tools, saved) ? 0 : err_set(e, HONE_EUSAGE, "--tools are others than those that the saved conversation began with");
    int rc = chat_tools_check(saved, e);
    if (!rc)
        tools = json_deep_copy(saved);
    return rc;
}

static struct chat_template template_of(const struct hone_model *m)
{
    return (struct chat_template){.text = generate_template(m), .tools = tools, .path = template_text ? generate_args.template_path : NULL};
}

int generate_chat_format(const struct chat_format **f, const struct hone_model *m, struct hone_error *e)
{
    const struct chat_template t = template_of(m);
    return chat_format_find(f, generate_args.chat_template, &t, e);
}

int generate_chat_render(const struct chat_format *f, const struct hone_model *m, const struct chat_message *messages, size_t n, size_t first,
                         struct text *out, struct hone_error *e)
{
    const struct tokenizer *t = m->model->tokenizer;
    struct chat_template by = template_of(m);
    struct text eos = {0};
    int32_t id = tokenizer_eos(t);
    int rc = id < 0 ? 0 : tokenizer_token_bytes(t, id, true, &eos, e);
    by.eos_token = eos.data;
    if (!rc)
        rc = chat_render(f, &by, messages, n, first, true, out, e);
    text_free(&eos);
    return rc;
}

int token_append(struct token_list *l, int32_t id, struct hone_error *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        int32_t *ids = realloc(l->ids, cap * sizeof *ids);
        if (!ids)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", cap);
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

static int prefill(struct hone_session *s, struct sampler *sampler, const int32_t *ids, size_t n, struct hone_error *e)
{
    struct hone_token *tokens = calloc(n, sizeof *tokens);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (struct hone_token){ids[i], 0, i + 1 == n};
        sampler_accept(sampler, ids[i]);
    }
    int rc = hone_session_eval(s, tokens, n, e);
    free(tokens);
    return rc;
}

/* Shows what is complete of g->text from *shown on; everything when it is the end. */
static void show(const struct generation *g, size_t *shown, bool end)
{
    size_t rest = g->text.n - *shown, n = end ? rest : utf8_complete(g->text.data + *shown, rest);
    if (n) {
        fwrite(g->text.data + *shown, 1, n, stdout);
        fflush(stdout);
    }
    *shown += n;
}

static int decode(struct hone_session *s, const struct hone_model *m, struct sampler *sampler, bool stream, struct generation *g,
                  struct hone_error *e)
{
    const struct generate_args *a = &generate_args;
    size_t shown = 0;
    int rc = 0;
    g->stopped = "n";
    g->unfed = -1;
    while (!rc && (a->n_predict < 0 || g->ids.n < (size_t)a->n_predict)) {
        int32_t id;
        rc = sampler_next(sampler, hone_session_logits(s, 0), &id, e);
        if (rc)
            break;
        sampler_accept(sampler, id);
        if (hone_is_end(m, id) && !a->ignore_eos) {
            g->stopped = "end token";
            break;
        }
        rc = token_append(&g->ids, id, e);
        g->unfed = id;
        if (!rc)
            rc = tokenizer_token_bytes(m->model->tokenizer, id, a->ignore_eos || tools, &g->text, e); /* calls are marked by control tokens */
        if (!rc && stream && g->text.n)
            show(g, &shown, false);
        if (!rc && ferror(stdout))
            rc = err_set(e, HONE_ERESOURCE, "cannot write to stdout");
        if (rc || (a->n_predict >= 0 && g->ids.n >= (size_t)a->n_predict))
            break;
        if (hone_session_length(s, 0) >= hone_session_n_ctx(s)) {
            g->stopped = "context";
            break;
        }
        rc = hone_session_eval(s, &(struct hone_token){id, 0, true}, 1, e);
        if (!rc)
            g->unfed = -1;
    }
    if (stream && g->text.n)
        show(g, &shown, true);
    return rc;
}

int generate(struct hone_session *s, const struct hone_model *m, struct sampler *sampler, const int32_t *ids, size_t n, bool stream,
             struct generation *g)
{
    struct hone_error e = {0};
    g->n_prompt = n;
    g->unfed = -1;
    if (n == 0)
        return cmd_refuse(HONE_EINPUT, "the prompt is empty: there is nothing to continue");
    interrupt_session(s);
    int64_t start = clock_ns();
    int rc = prefill(s, sampler, ids, n, &e);
    progress_end();
    int64_t mid = clock_ns();
    g->prefill_ns = mid - start;
    if (!rc)
        rc = decode(s, m, sampler, stream, g, &e);
    g->decode_ns = clock_ns() - mid;
    if (rc == HONE_ECANCELED || (!rc && interrupted())) {
        g->stopped = "interrupted";
        rc = 0;
    }
    return rc ? cmd_fail(&e) : 0;
}

json_t *kernels_json(struct hone_session *s)
{
    const struct plan *p;
    struct hone_error e = {0};
    json_t *all = json_object();
    if (session_plan(s, 1, 1, &p, &e))
        return all;
    for (int i = 0; i < p->n_steps; i++) {
        char name[128];
        kernel_name(p->steps[i].backend, p->steps[i].kernel, name, sizeof name);
        json_int_t n = json_integer_value(json_object_get(all, name));
        json_object_set_new(all, name, json_integer(n + 1));
    }
    return all;
}

void generate_report(const struct hone_session *s, const struct generation *g)
{
    (void)s;
    fprintf(stderr, "hone: prefill of %zu tokens in %.2f s", g->n_prompt, (double)g->prefill_ns / 1e9);
    if (g->ids.n > 1)
        fprintf(stderr, ", decode of %zu in %.2f s", g->ids.n - 1, (double)g->decode_ns / 1e9);
    fprintf(stderr, "; stopped by %s; a demonstration, not a measurement: nothing was verified\n", g->stopped);
}
