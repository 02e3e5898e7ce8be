/* chat.c: hone chat: a conversation with line editing (libedit) and history. Each turn feeds only what is new: the answer's tokens
 * are in the cache already. A line that ends with a backslash goes on in the next one. Ctrl-C ends an answer, not the program; Ctrl-D or
 * /exit ends it, /clear forgets the conversation. Without a terminal each line of stdin is one message. A conversation is saved at its end
 * and goes on where it was loaded. */
#include "cmd/conversation.h"

#include <editline/readline.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option *options(int *n)
{
    static const struct option table[] = {SESSION_OPTIONS, GENERATE_OPTIONS, SESSION_FILE_OPTIONS};
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

struct chat {
    struct hone_model *m;
    struct hone_session *s;
    struct sampler *sampler;
    const struct chat_format *format;
    struct conversation said;
};

static int chat_reset(struct chat *c, struct hone_error *e)
{
    conversation_clear(&c->said);
    int rc = hone_session_rewind(c->s, 0, 0, e);
    if (!rc && generate_args.system)
        rc = conversation_add(&c->said, "system", generate_args.system, strlen(generate_args.system), e);
    return rc;
}

static char *read_piece(bool terminal, bool first)
{
    if (terminal)
        return readline(first ? "> " : ". ");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n')
        line[n - 1] = 0;
    return line;
}

/* One message: lines joined while they end with a backslash. NULL at the end of input. */
static char *read_message(bool terminal)
{
    char *whole = read_piece(terminal, true);
    while (whole && *whole && whole[strlen(whole) - 1] == '\\') {
        whole[strlen(whole) - 1] = '\n';
        char *more = read_piece(terminal, false);
        if (!more)
            break;
        size_t n = strlen(whole), k = strlen(more);
        char *joined = realloc(whole, n + k + 1);
        if (joined) {
            memcpy(joined + n, more, k + 1);
            whole = joined;
        }
        free(more);
        if (!joined)
            break;
    }
    return whole;
}

/* The message and, behind the last answer, what the template puts between. */
static int turn(struct chat *c, const char *message)
{
    struct hone_error e = {0};
    struct token_list ids = {0};
    struct generation g = {0};
    bool fresh = hone_session_length(c->s, 0) == 0;
    size_t first = fresh ? 0 : c->said.n;
    int rc = conversation_add(&c->said, "user", message, strlen(message), &e);
    if (!rc)
        rc = conversation_encode(&c->said, c->format, c->m, first, &ids, &e);
    if (rc) {
        rc = cmd_fail(&e);
        goto done;
    }
    if ((size_t)hone_session_n_ctx(c->s) < (size_t)hone_session_length(c->s, 0) + ids.n + 1) {
        fprintf(stderr, "hone: the context of %d positions is full: /clear to begin anew, or start with a larger -c\n",
                hone_session_n_ctx(c->s));
        conversation_drop_last(&c->said);
        goto done;
    }
    interrupt_clear();
    int32_t before = hone_session_length(c->s, 0);
    rc = generate(c->s, c->m, c->sampler, ids.ids, ids.n, true, &g);
    putchar('\n');
    if (!rc && hone_session_length(c->s, 0) == before) { /* interrupted before the message was in: it never was said */
        conversation_drop_last(&c->said);
        goto done;
    }
    c->said.unfed = g.unfed;
    if (!rc)
        rc = output_flush();
    if (!rc && conversation_add(&c->said, "assistant", g.text.data, g.text.n, &e))
        rc = cmd_fail(&e);
done:
    token_list_free(&ids);
    generation_free(&g);
    return rc;
}

static int converse(struct chat *c)
{
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct hone_error e = {0};
    int rc = session_files.load ? 0 : chat_reset(c, &e) ? cmd_fail(&e) : 0;
    if (terminal)
        fprintf(stderr, "%s, chat template: %s. /clear forgets, /exit or Ctrl-D ends, \\ at the end of a line goes on.\n",
                model_args.model, generate_args.template_path ? generate_args.template_path : chat_format_name(c->format));
    while (!rc) {
        char *line = read_message(terminal);
        if (!line || !strcmp(line, "/exit")) {
            free(line);
            break;
        }
        if (!strcmp(line, "/clear")) {
            rc = chat_reset(c, &e) ? cmd_fail(&e) : 0;
        } else if (line[strspn(line, " \t\r\n")]) {
            if (terminal)
                add_history(line);
            rc = turn(c, line);
            if (!terminal && interrupted())
                rc = EXIT_INTERRUPTED;
        }
        free(line);
    }
    return rc;
}

static int load(struct chat *c)
{
    int rc = session_files_load(&c->said, c->s, c->m);
    if (rc || !session_files.load)
        return rc;
    if (c->said.plain)
        return cmd_refuse(HONE_EUSAGE, "%s holds text and no conversation: go on with hone run --raw", session_files.load);
    if (generate_args.system)
        return cmd_refuse(HONE_EUSAGE, "-sys: the conversation of %s has begun", session_files.load);
    return 0;
}

static int run(int n_args, char **args)
{
    struct chat c = {0};
    struct hone_error e = {0};
    conversation_init(&c.said);
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "chat: '%s' is no option", args[0]);
    int rc = generate_prepare();
    if (!rc)
        rc = cmd_open_model(&c.m);
    if (!rc)
        rc = generate_sampler(&c.sampler, c.m);
    if (!rc)
        rc = cmd_open_session(&c.s, c.m, NULL);
    if (!rc)
        rc = load(&c);
    if (!rc && generate_chat_format(&c.format, c.m, &e)) /* behind the load, which may bring tools */
        rc = cmd_fail(&e);
    if (!rc)
        rc = converse(&c);
    if (!rc)
        rc = session_files_save(&c.said, c.s);
    conversation_free(&c.said);
    sampler_free(c.sampler);
    hone_session_free(c.s);
    hone_model_close(c.m);
    return rc;
}

const struct command command_chat = {
    "chat", "talk with a model", "", "hone chat -m model.gguf --temp 0.7\n  hone chat -m model.gguf --load-session talk.session --save-session talk.session",
    options, run,
};
