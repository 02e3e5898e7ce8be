/* chat_template.c: conversations through the file's own template, run by the interpreter (jinja.h): for templates of no family
 * that chat.c knows by hand.
 *
 * A conversation goes on behind an answer that the model wrote itself, so only what stands behind that answer is wanted.
 * Templates may change an answer (trim it, drop its thinking), so it is not looked for: the conversation is rendered with a
 * mark in its place, and what follows the mark is what follows the answer.
 *
 * The bos token is the tokenizer's to add; the template is given an empty one. Today's date is told only to templates that have
 * no date of their own to fall back on: the same prompt shall be the same text tomorrow. */
#include "model/chat.h"

#include "model/jinja.h"

#include <string.h>
#include <time.h>

static const char mark[] = "the answer that hone holds 5f0c61";

static json_t *context_of(const struct chat_message *messages, size_t n, size_t marked, bool assistant_turn,
                          const char *eos_token)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "role", messages[i].role, "content", i + 1 == marked ? mark : messages[i].content));
    json_t *context =
        json_pack("{s:o, s:n, s:n, s:b, s:s, s:s}", "messages", list, "tools", "documents", "add_generation_prompt",
                  assistant_turn, "bos_token", "", "eos_token", eos_token ? eos_token : "");
    if (context && json_array_size(list) == n)
        return context;
    json_decref(context);
    return NULL;
}

/* Behind the only mark in the text. */
static const char *behind_mark(const char *text)
{
    const char *at = strstr(text, mark);
    return at && !strstr(at + 1, mark) ? at + sizeof mark - 1 : NULL;
}

int chat_template_check(const char *template_text, struct hone_error *e)
{
    struct jinja *j;
    int rc = jinja_parse(&j, template_text, strlen(template_text), e);
    if (!rc)
        jinja_free(j);
    return rc;
}

int chat_template_render(const char *template_text, const char *eos_token, const struct chat_message *messages, size_t n,
                         size_t first, bool assistant_turn, struct text *out, struct hone_error *e)
{
    struct jinja *j = NULL;
    struct text whole = {0};
    json_t *context = NULL;
    int64_t now = strstr(template_text, "strftime_now is defined") ? -1 : (int64_t)time(NULL);
    if (!eos_token && strstr(template_text, "eos_token"))
        return err_set(e, HONE_EINPUT, "the chat template writes the end token, and the model names none");
    if (first > n || (first > 0 && strcmp(messages[first - 1].role, "assistant")))
        return err_set(e, HONE_EINPUT, "a conversation goes on behind an answer only");
    int rc = jinja_parse(&j, template_text, strlen(template_text), e);
    if (rc)
        goto done;
    if (!(context = context_of(messages, n, first, assistant_turn, eos_token))) {
        rc = err_set(e, HONE_EINPUT, "a message is no valid UTF-8");
        goto done;
    }
    if ((rc = jinja_render(j, context, now, NULL, &whole, e)))
        goto done;
    const char *text = whole.data ? whole.data : "";
    if (first > 0 && !(text = behind_mark(text)))
        rc = err_set(e, HONE_EINPUT,
                     "the chat template does not write an earlier answer, so the conversation cannot go on behind it");
    else
        rc = text_append(out, text, strlen(text), e);
done:
    text_free(&whole);
    json_decref(context);
    jinja_free(j);
    return rc;
}
