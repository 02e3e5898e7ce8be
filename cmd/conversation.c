/* conversation.c: messages, and the note that a saved session carries: {"unfed": ID, "messages": [{"role", "content"} ...],
 * "tools": [...]}. Without "messages" the session holds plain text. A note is hostile like the rest of its file: all of it is
 * looked at before the conversation takes a word of it.
 *
 * Saving the messages alone and feeding them again was the alternative; but then nothing is saved that one waits for, and an
 * answer read back as text is not always the tokens that were said. */
#include "cmd/conversation.h"

#include "model/utf8.h"

#include <stdlib.h>
#include <string.h>

struct session_files session_files;

void conversation_init(struct conversation *c)
{
    *c = (struct conversation){.unfed = -1};
}

void conversation_clear(struct conversation *c)
{
    while (c->n)
        conversation_drop_last(c);
    c->unfed = -1;
    c->plain = false;
}

void conversation_free(struct conversation *c)
{
    conversation_clear(c);
    free(c->messages);
    c->messages = NULL;
    c->cap = 0;
}

void conversation_drop_last(struct conversation *c)
{
    free((char *)(uintptr_t)c->messages[--c->n].content);
}

/* A copy with U+FFFD for each byte that belongs to no character, or NULL. */
static char *valid_copy(const char *text, size_t n)
{
    struct text out = {0};
    struct hone_error e = {0};
    int rc = text_append(&out, "", 0, &e);
    for (size_t i = 0, size; i < n && !rc; i += size) {
        size_t whole = text[i] ? utf8_sequence(text + i, n - i) : 0;
        size = whole ? whole : 1;
        rc = whole ? text_append(&out, text + i, size, &e) : text_append(&out, "\xef\xbf\xbd", 3, &e);
    }
    if (rc)
        text_free(&out);
    return out.data;
}

int conversation_add(struct conversation *c, const char *role, const char *content, size_t size, struct hone_error *e)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        struct chat_message *messages = realloc(c->messages, cap * sizeof *messages);
        if (!messages)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu messages", cap);
        c->messages = messages;
        c->cap = cap;
    }
    content = content ? content : "";
    char *own = strcmp(role, "assistant") ? strndup(content, size) : valid_copy(content, size);
    if (!own)
        return err_set(e, HONE_ERESOURCE, "no memory for a message of %zu bytes", size);
    c->messages[c->n++] = (struct chat_message){role, own};
    return 0;
}

int conversation_encode(const struct conversation *c, const struct chat_format *f, const struct hone_model *m, size_t first,
                        struct token_list *ids, struct hone_error *e)
{
    struct text rendered = {0};
    int rc = c->unfed < 0 ? 0 : token_append(ids, c->unfed, e);
    if (!rc)
        rc = generate_chat_render(f, m, c->messages, c->n, first, &rendered, e);
    if (!rc)
        rc = tokenizer_encode(m->model->tokenizer, rendered.data ? rendered.data : "", rendered.n,
                              TOKENIZE_SPECIAL | (first ? 0u : TOKENIZE_BOS), ids, e);
    text_free(&rendered);
    return rc;
}

/* ---- sessions in files */

static int bad_note(struct hone_error *e, const char *why)
{
    return err_set(e, HONE_EINPUT, "%s: its note %s", session_files.load, why);
}

static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(role, roles[i]))
            return roles[i];
    return NULL;
}

static int note_messages(struct conversation *c, const json_t *list, struct hone_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
        const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
        const char *role = known_role(json_string_value(json_object_get(one, "role")));
        if (!role || !json_is_string(content))
            rc = bad_note(e, "has a message of no known role, or without text");
        else
            rc = conversation_add(c, role, json_string_value(content), json_string_length(content), e);
    }
    return rc;
}

/* A note into an empty conversation. */
static int note_read(struct conversation *c, const char *note, int32_t n_vocab, struct hone_error *e)
{
    json_error_t why;
    if (!*note) { /* whoever saved it had nothing to say */
        c->plain = true;
        return 0;
    }
    json_t *j = json_loads(note, JSON_REJECT_DUPLICATES, &why);
    const json_t *unfed = json_object_get(j, "unfed"), *messages = json_object_get(j, "messages"),
                 *tools = json_object_get(j, "tools");
    json_int_t id = json_is_integer(unfed) ? json_integer_value(unfed) : -2;
    int rc = 0;
    if (!json_is_object(j))
        rc = bad_note(e, "is none of hone's");
    else if (id < -1 || id >= n_vocab)
        rc = bad_note(e, "names a token that the model has not");
    else if (messages && !json_is_array(messages))
        rc = bad_note(e, "has messages that are no list");
    else
        rc = note_messages(c, messages, e);
    if (!rc && tools)
        rc = generate_take_tools(tools, e);
    c->unfed = (int32_t)id;
    c->plain = !messages;
    json_decref(j);
    return rc;
}

int session_files_load(struct conversation *c, struct hone_session *s, const struct hone_model *m)
{
    struct conversation own;
    struct hone_error e = {0};
    char *note = NULL;
    if (!session_files.load)
        return 0;
    conversation_init(&own);
    int rc = hone_session_restore_noted(s, session_files.load, &note, &e);
    if (!rc && (rc = note_read(&own, note, hone_model_n_vocab(m), &e)))
        hone_session_rewind(s, 0, 0, NULL); /* the session was empty */
    hone_free(note);
    if (rc) {
        conversation_free(&own);
        return cmd_fail(&e);
    }
    conversation_free(c);
    *c = own;
    return 0;
}

static json_t *text_json(const char *text)
{
    json_t *j = json_string(text);
    char *valid = j ? NULL : valid_copy(text, strlen(text));
    if (valid)
        j = json_string(valid);
    free(valid);
    return j;
}

static json_t *note_of(const struct conversation *c)
{
    json_t *j = json_pack("{s:i}", "unfed", (int)c->unfed), *list = c->plain ? NULL : json_array();
    for (size_t i = 0; list && i < c->n; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:o}", "role", c->messages[i].role, "content", text_json(c->messages[i].content)));
    if (list && json_array_size(list) != c->n) {
        json_decref(list);
        json_decref(j);
        return NULL;
    }
    if (list)
        json_object_set_new(j, "messages", list);
    if (list && generate_tools())
        json_object_set(j, "tools", (json_t *)(uintptr_t)generate_tools());
    return j;
}

int session_files_save(const struct conversation *c, struct hone_session *s)
{
    struct hone_error e = {0};
    if (!session_files.save)
        return 0;
    json_t *j = note_of(c);
    char *note = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int rc = note ? hone_session_save_noted(s, session_files.save, note, &e)
                  : err_set(&e, HONE_ERESOURCE, "no memory for a session's note");
    free(note);
    json_decref(j);
    return rc ? cmd_fail(&e) : 0;
}
