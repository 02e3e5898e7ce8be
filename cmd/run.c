/* run.c: hone run: a prompt in, text out. With a chat template in the file (or --chat) the prompt is one user message; --raw
 * feeds it as it is. A template that hone does not understand is an error, never a silent guess. */
#include "cmd/generate.h"

#include <stdlib.h>
#include <string.h>

static const char *prompt, *prompt_file;
static bool chat, raw;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"-p, --prompt", OPTION_TEXT, &prompt, "TEXT", "the prompt", 0, 0},
        {"-f, --file", OPTION_TEXT, &prompt_file, "FILE", "the prompt from a file; - is stdin", 0, 0},
        {"--chat", OPTION_FLAG, &chat, NULL, "the prompt is a user's message (default if the file has a chat template)", 0, 0},
        {"--raw", OPTION_FLAG, &raw, NULL, "the prompt is text to be continued", 0, 0},
        GENERATE_OPTIONS,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* The prompt's ids, through the chat template unless raw. */
static int encode(const struct hone_model *m, const char *text, size_t size, struct token_list *ids, struct hone_error *e)
{
    const struct tokenizer *t = m->model->tokenizer;
    const char *template_text = tokenizer_chat_template(t);
    bool wants_chat = !raw && (chat || template_text || generate_args.chat_template);
    if (!wants_chat && generate_args.system)
        return err_set(e, HONE_EUSAGE, "-sys needs a chat: the file has no template, so name one with --chat-template");
    if (!wants_chat)
        return tokenizer_encode(t, text, size, TOKENIZE_SPECIAL | TOKENIZE_BOS, ids, e);
    const struct chat_format *f;
    int rc = generate_chat_format(&f, m, e);
    if (rc)
        return rc;
    struct chat_message messages[2] = {{"system", generate_args.system}, {"user", text}};
    size_t first = generate_args.system ? 0 : 1;
    struct text rendered = {0};
    rc = generate_chat_render(f, m, messages + first, 2 - first, 0, &rendered, e);
    if (!rc)
        rc = tokenizer_encode(t, rendered.data, rendered.n, TOKENIZE_SPECIAL | TOKENIZE_BOS, ids, e);
    text_free(&rendered);
    return rc;
}

static int print_json(struct hone_session *s, const struct hone_model *m, const struct generation *g, const struct token_list *ids)
{
    json_t *tokens = json_array(), *input = json_array();
    for (size_t i = 0; i < g->ids.n; i++)
        json_array_append_new(tokens, json_integer(g->ids.ids[i]));
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(input, json_integer(ids->ids[i]));
    json_t *text = json_stringn(g->text.data ? g->text.data : "", g->text.n);
    if (!text) /* cut inside a UTF-8 sequence, or bytes that are none */
        text = json_null();
    return output_print(json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:f, s:f, s:o}", "model", m->model->gguf->path, "arch",
                                  hone_model_arch(m), "prompt_tokens", input, "tokens", tokens, "text", text, "stopped",
                                  g->stopped ? g->stopped : "", "prefill_seconds", (double)g->prefill_ns / 1e9, "decode_seconds",
                                  (double)g->decode_ns / 1e9, "kernels", kernels_json(s)));
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct sampler *sampler = NULL;
    struct token_list ids = {0};
    struct generation g = {0};
    struct hone_error e = {0};
    char *text = NULL;
    size_t size = 0;
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "run: '%s' is no option; the prompt comes with -p", args[0]);
    if (!prompt == !prompt_file)
        return cmd_refuse(HONE_EUSAGE, "run: give the prompt by -p TEXT or by -f FILE");
    if (chat && raw)
        return cmd_refuse(HONE_EUSAGE, "run: --chat and --raw exclude each other");
    int rc = cmd_open_model(&m);
    if (!rc && prompt_file)
        rc = file_read(&text, &size, prompt_file, &e) ? cmd_fail(&e) : 0;
    if (!rc && encode(m, prompt ? prompt : text, prompt ? strlen(prompt) : size, &ids, &e))
        rc = cmd_fail(&e);
    if (!rc)
        rc = generate_sampler(&sampler, m);
    if (!rc)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc)
        rc = generate(s, m, sampler, ids.ids, ids.n, !output_json(), &g);
    if (!rc && output_json())
        rc = print_json(s, m, &g, &ids);
    else if (!rc) {
        putchar('\n');
        rc = output_flush();
        generate_report(s, &g);
    }
    if (!rc && interrupted())
        rc = EXIT_INTERRUPTED;
    generation_free(&g);
    token_list_free(&ids);
    free(text);
    sampler_free(sampler);
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

const struct command command_run = {
    "run", "generate text from a prompt", "", "hone run -m model.gguf -p 'Why is the sky blue?' -n 64 --temp 0", options, run,
};
