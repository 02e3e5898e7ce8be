/* run.c: hone run: a prompt in, text out. With a chat template in the file (or --chat) the prompt is one user message; --raw
 * feeds it as it is. A template that hone does not understand is an error, never a silent guess. Behind a saved session the prompt is the
 * next message of its conversation, or the text that follows. */
#include "cmd/conversation.h"

#include <stdlib.h>
#include <string.h>

static const char *prompt, *prompt_file;
static bool chat, raw;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"-p, --prompt", OPTION_TEXT, &prompt, "TEXT", "the prompt", 0, 0},
        {"-f, --file", OPTION_INPUT, &prompt_file, "FILE", "the prompt from a file; - is stdin", 0, 0},
        {"--chat", OPTION_FLAG, &chat, NULL, "the prompt is a user's message (default if the file has a chat template)", 0, 0},
        {"--raw", OPTION_FLAG, &raw, NULL, "the prompt is text to be continued", 0, 0},
        GENERATE_OPTIONS,
        SESSION_FILE_OPTIONS,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* Text that is to be continued: behind what the session holds, if it does. */
static int encode_plain(struct conversation *c, const struct hone_model *m, const char *text, size_t size, bool held, struct token_list *ids,
                        struct hone_error *e)
{
    int32_t unfed = c->unfed;
    conversation_clear(c);
    c->plain = true;
    int rc = unfed < 0 ? 0 : token_append(ids, unfed, e);
    return rc ? rc : tokenizer_encode(m->model->tokenizer, text, size, TOKENIZE_SPECIAL | (held ? 0u : TOKENIZE_BOS), ids, e);
}

/* The prompt's ids, through the chat template unless raw. */
static int encode(struct conversation *c, const struct hone_model *m, const char *text, size_t size, bool held, struct token_list *ids,
                  struct hone_error *e)
{
    bool asked = chat || generate_args.chat_template || generate_args.template_path || generate_args.tools_path;
    bool wants_chat = !raw && (asked || (held ? !c->plain : generate_template(m) != NULL));
    if (!wants_chat && generate_args.system)
        return err_set(e, HONE_EUSAGE, "-sys needs a chat: the file has no template, so name one with --chat-template");
    if (!wants_chat)
        return encode_plain(c, m, text, size, held, ids, e);
    if (held && c->plain)
        return err_set(e, HONE_EUSAGE, "%s holds text and no conversation: go on with --raw", session_files.load);
    if (held && generate_args.system)
        return err_set(e, HONE_EUSAGE, "-sys: the conversation of %s has begun", session_files.load);
    const struct chat_format *f;
    size_t first = held ? c->n : 0;
    c->plain = false;
    int rc = generate_chat_format(&f, m, e);
    if (!rc && generate_args.system)
        rc = conversation_add(c, "system", generate_args.system, strlen(generate_args.system), e);
    if (!rc)
        rc = conversation_add(c, "user", text, size, e);
    return rc ? rc : conversation_encode(c, f, m, first, ids, e);
}

/* What was generated belongs to what was said; saved, if that is asked for and nothing cut it short. */
static int keep(struct conversation *c, struct hone_session *s, const struct generation *g)
{
    struct hone_error e = {0};
    c->unfed = g->unfed;
    if (!c->plain && conversation_add(c, "assistant", g->text.data, g->text.n, &e))
        return cmd_fail(&e);
    if (interrupted() && session_files.save)
        fprintf(stderr, "hone: interrupted: %s is not written\n", session_files.save);
    return interrupted() ? 0 : session_files_save(c, s);
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
    struct conversation c;
    char *text = NULL;
    size_t size = 0;
    conversation_init(&c);
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "run: '%s' is no option; the prompt comes with -p", args[0]);
    if (!prompt == !prompt_file)
        return cmd_refuse(HONE_EUSAGE, "run: give the prompt by -p TEXT or by -f FILE");
    if (chat && raw)
        return cmd_refuse(HONE_EUSAGE, "run: --chat and --raw exclude each other");
    if (raw && (generate_args.tools_path || generate_args.template_path))
        return cmd_refuse(HONE_EUSAGE, "run: --tools and --chat-template-file are for a chat, and --raw is none");
    int rc = generate_prepare();
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc && prompt_file)
        rc = file_read(&text, &size, prompt_file, &e) ? cmd_fail(&e) : 0;
    if (!rc)
        rc = generate_sampler(&sampler, m);
    if (!rc)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc)
        rc = session_files_load(&c, s, m);
    if (!rc && encode(&c, m, prompt ? prompt : text, prompt ? strlen(prompt) : size, hone_session_length(s, 0) > 0, &ids, &e))
        rc = cmd_fail(&e);
    if (!rc)
        rc = generate(s, m, sampler, ids.ids, ids.n, !output_json(), &g);
    int kept = rc ? 0 : keep(&c, s, &g);
    if (!rc && output_json())
        rc = print_json(s, m, &g, &ids);
    else if (!rc) {
        putchar('\n');
        rc = output_flush();
        generate_report(s, &g);
    }
    rc = rc ? rc : kept;
    if (!rc && interrupted())
        rc = EXIT_INTERRUPTED;
    conversation_free(&c);
    generation_free(&g);
    token_list_free(&ids);
    free(text);
    sampler_free(sampler);
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

const struct command command_run = {
    "run", "generate text from a prompt", "", "hone run -m model.gguf -p 'Why is the sky blue?' -n 64 --temp 0\n"
    "  hone run -m model.gguf --raw -f long.txt -n 0 --save-session long.session\n"
    "  hone run -m model.gguf --raw --load-session long.session -p 'In short:' -n 64\n"
    "  hone run -m model.gguf --tools tools.json -p 'What is the weather in Oslo?' -ctk q8_0 -ctv q8_0", options, run,
};
