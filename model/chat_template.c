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

static json_t *context_of(const struct chat_template *t, const struct chat_message *messages, size_t n, size_t marked,
                          bool assistant_turn)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "role", messages[i].role, "content", i + 1 == marked ? mark : messages[i].content));
    json_t *context =
        json_pack("{s:o, s:O?, s:n, s:b, s:s, s:s}", "messages", list, "tools", t->tools, "documents", "add_generation_prompt",
                  assistant_turn, "bos_token", "", "eos_token", t->eos_token ? t->eos_token : "");
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

/* Letters, digits and what else names of functions have. */
static bool tool_name(const char *name)
{
    size_t n = strlen(name);
    return n >= 1 && n <= 64 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static const char *tool_fault(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
    const json_t *description = json_object_get(function, "description"), *parameters = json_object_get(function, "parameters");
    const json_t *kind = json_object_get(parameters, "type");
    const char *type = json_string_value(json_object_get(tool, "type"));
    return !json_is_object(tool)                         ? "is no object"
           : !type || strcmp(type, "function") != 0      ? "has not the type \"function\""
           : !json_is_object(function)                   ? "has no object \"function\""
           : !json_is_string(name)                       ? "has a function without a name"
           : !tool_name(json_string_value(name))         ? "has a name that is not 1 to 64 letters, digits, '_', '.' or '-'"
           : description && !json_is_string(description) ? "has a description that is no text"
           : parameters && !json_is_object(parameters)   ? "has parameters that are no object"
           : kind && (!json_is_string(kind) || strcmp(json_string_value(kind), "object") != 0)
               ? "has parameters that are no schema of an object"
               : NULL;
}

int chat_tools_check(const json_t *tools, struct hone_error *e)
{
    enum { MOST = 1024 };
    size_t n = json_array_size(tools);
    if (!json_is_array(tools) || !n || n > MOST)
        return err_set(e, HONE_EINPUT, "tools are an array of 1 to %d functions", MOST);
    for (size_t i = 0; i < n; i++) {
        const char *fault = tool_fault(json_array_get(tools, i));
        if (fault)
            return err_set(e, HONE_EINPUT, "tool %zu %s", i + 1, fault);
    }
    return 0;
}

/* A template may speak of tools and write none: then the model would answer as if there were none. */
static bool tools_written(const json_t *tools, const char *text)
{
    return !tools ||
           strstr(text, json_string_value(json_object_get(json_object_get(json_array_get(tools, 0), "function"), "name")));
}

int chat_template_render(const struct chat_template *t, const struct chat_message *messages, size_t n, size_t first,
                         bool assistant_turn, struct text *out, struct hone_error *e)
{
    struct jinja *j = NULL;
    struct text whole = {0};
    json_t *context = NULL;
    int64_t now = strstr(t->text, "strftime_now is defined") ? -1 : (int64_t)time(NULL);
    if (!t->eos_token && strstr(t->text, "eos_token"))
        return err_set(e, HONE_EINPUT, "the chat template writes the end token, and the model names none");
    if (first > n || (first > 0 && strcmp(messages[first - 1].role, "assistant")))
        return err_set(e, HONE_EINPUT, "a conversation goes on behind an answer only");
    int rc = jinja_parse(&j, t->text, strlen(t->text), e);
    if (rc)
        goto done;
    if (!(context = context_of(t, messages, n, first, assistant_turn))) {
        rc = err_set(e, HONE_EINPUT, "a message is no valid UTF-8");
        goto done;
    }
    if ((rc = jinja_render(j, context, now, NULL, &whole, e)))
        goto done;
    const char *text = whole.data ? whole.data : "";
    if (!tools_written(t->tools, text)) {
        rc = err_set(e, HONE_EINPUT, "the chat template does not write the tools that it is given");
        goto done;
    }
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
