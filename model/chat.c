/* chat.c: three families of chat formats, and what a template of each family adds to it.
 *
 * Templates are Jinja programs, and those of other families are run (chat_template.c). These three are not: their rules work
 * without a template too (--chat-template). What changes the text of a plain conversation is read off the template as facts: a default system
 * prompt, whether contents are trimmed, a date, where a system message goes, what becomes of past thinking. A template that has
 * the markers of a family and something that these facts do not explain is run like an unknown one, since wrong text is
 * worse than none, and so is one that the user gives: a ChatML template that mentions thinking must be one of those whose rule is known. Of 68 published
 * templates, all that are taken render as Jinja renders them (golden/chat.py).
 *
 * The text never begins with a bos token, though many templates do: the tokenizer adds it (TOKENIZE_BOS) where the file wants
 * one, and twice would be wrong. Templates that ask for today's date get the date that they name as their own default, so that
 * the same prompt is the same text tomorrow.
 *
 * Contents are not searched for markers. Who wants to keep a user from writing "<|im_end|>" must encode contents apart. */
#include "model/chat.h"

#include "model/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MARKERS = 4 };

/* One call of chat_render. */
struct render {
    const char *template_text; /* never NULL */
    const struct chat_message *messages;
    size_t n, first;
    bool assistant_turn;
    struct text *out;
    struct hone_error *e;
};

struct chat_format {
    const char *name;
    const char *has[MAX_MARKERS];   /* all of these are in its templates */
    const char *lacks[MAX_MARKERS]; /* and none of these */
    const char *turn_end;           /* behind an assistant's content */
    int (*render)(struct render *);
    bool (*knows)(const char *template_text); /* its rule for contents is known; NULL: there is but one */
};

static int put_n(struct render *r, const char *s, size_t n)
{
    return text_append(r->out, s, n, r->e);
}

static int put(struct render *r, const char *s)
{
    return put_n(r, s, strlen(s));
}

static struct gguf_string trimmed(struct gguf_string s)
{
    size_t size;
    while ((size = utf8_blank(s.data, s.size))) {
        s.data += size;
        s.size -= size;
    }
    for (size = 1; size <= 3 && size <= s.size; size++)
        if (utf8_blank(s.data + s.size - size, size) == size) {
            s.size -= size;
            size = 0;
        }
    return s;
}

static struct gguf_string without_newlines(struct gguf_string s)
{
    while (s.size && s.data[0] == '\n')
        s.data++, s.size--;
    while (s.size && s.data[s.size - 1] == '\n')
        s.size--;
    return s;
}

static struct gguf_string content_of(const struct chat_message *m, bool trim)
{
    struct gguf_string s = {m->content, strlen(m->content)};
    return trim ? trimmed(s) : s;
}

static bool says(const struct render *r, const char *text)
{
    return strstr(r->template_text, text) != NULL;
}

static bool is_role(const struct chat_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* A piece of a string literal in a template: escapes end here. */
static int put_literal(struct render *r, const char *s, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        char c = s[i];
        if (c == '\\' && i + 1 < n) {
            c = s[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        rc = put_n(r, &c, 1);
    }
    return rc;
}

/* ChatML. */

/* The default system prompt: what the template has, as a plain literal, between the opening of a system turn and its end. */
static bool chatml_default(const struct render *r, const char **text, size_t *n)
{
    static const char opening[] = "<|im_start|>system";
    for (const char *p = r->template_text; (p = strstr(p, opening)); p++) {
        const char *s = p + sizeof opening - 1;
        if (*s == '\n')
            s++;
        else if (!strncmp(s, "\\n", 2))
            s += 2;
        else
            continue;
        const char *end = strstr(s, "<|im_end|>");
        size_t quote = strcspn(s, "'\"{");
        /* An escaped quote is text. */
        while (s[quote] && s[quote] != '{' && quote > 0 && s[quote - 1] == '\\')
            quote += 1 + strcspn(s + quote + 1, "'\"{");
        if (!end || (size_t)(end - s) > quote)
            continue;
        *text = s;
        *n = (size_t)(end - s);
        return true;
    }
    return false;
}

/* Cuts an assistant's content at its last "</think>" into what it thought and what it said. */
static void split_thinking(struct gguf_string *content, struct gguf_string *thought)
{
    static const char begin[] = "<think>", end[] = "</think>";
    enum { BEGIN = sizeof begin - 1, END = sizeof end - 1 };
    struct gguf_string s = *content;
    size_t first = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i + END <= s.size; i++)
        if (!memcmp(s.data + i, end, END)) {
            first = first == SIZE_MAX ? i : first;
            last = i;
        }
    *thought = (struct gguf_string){s.data, 0};
    if (last == SIZE_MAX)
        return;
    *content = (struct gguf_string){s.data + last + END, s.size - last - END};
    while (content->size && content->data[0] == '\n')
        content->data++, content->size--;
    size_t from = 0;
    for (size_t i = 0; i + BEGIN <= first; i++)
        if (!memcmp(s.data + i, begin, BEGIN))
            from = i + BEGIN;
    *thought = without_newlines((struct gguf_string){s.data + from, first - from});
}

/* Rules that ChatML templates follow. A template belongs to the first row whose texts it has or lacks; to none: refused. */
enum {
    TRIMS = 1,        /* every content */
    THINKS = 2,       /* an assistant's thinking is dropped, but kept behind the last user's message */
    ALWAYS_THINKS = 4 /* and there a block of thinking stands even where there was none (else only in the last message) */
};
static const struct chatml_rule {
    const char *has[3];
    const char *lacks[3];
    unsigned flags;
} chatml_rules[] = {
    {{"['content'] | trim"}, {"think", "function calling AI model"}, TRIMS},
    {{"['content']|trim"}, {"think", "function calling AI model"}, TRIMS},
    {{NULL}, {"think", "function calling AI model"}, 0},
    {{"render_content(message.content, true)|trim", "last_query_index"}, {NULL}, TRIMS | THINKS | ALWAYS_THINKS}, /* Qwen 3.5 */
    {{"split('</think>')[-1].lstrip('\\n')", "last_query_index", "loop.last or (not loop.last and reasoning_content)"},
     {NULL},
     THINKS}, /* Qwen 3 */
};

static const struct chatml_rule *chatml_rule(const char *template_text)
{
    for (size_t i = 0; i < sizeof chatml_rules / sizeof *chatml_rules; i++) {
        const struct chatml_rule *rule = &chatml_rules[i];
        bool fits = true;
        for (int k = 0; k < 3; k++)
            fits = fits && (!rule->has[k] || strstr(template_text, rule->has[k])) &&
                   (!rule->lacks[k] || !strstr(template_text, rule->lacks[k]));
        if (fits)
            return rule;
    }
    return NULL;
}

/* What a thinking model's answer opens with when nothing is said about thinking: the literal in the last "else" behind the
 * template's add_generation_prompt. */
static int chatml_open_thinking(struct render *r)
{
    const char *p = r->template_text, *tail = NULL, *other = NULL;
    for (; (p = strstr(p, "add_generation_prompt")); p++)
        tail = p;
    for (p = tail; p && (p = strstr(p, "else")); p++)
        other = p;
    const char *literal = other ? strchr(other, '\'') : NULL;
    return literal ? put_literal(r, literal + 1, strcspn(literal + 1, "'")) : 0;
}

static int chatml_turn(struct render *r, size_t i, const struct chatml_rule *rule, size_t last_user)
{
    const struct chat_message *m = &r->messages[i];
    struct gguf_string content = content_of(m, rule->flags & TRIMS), thought = {"", 0};
    int rc;
    if ((rc = put(r, "<|im_start|>")) || (rc = put(r, m->role)) || (rc = put(r, "\n")))
        return rc;
    if ((rule->flags & THINKS) && is_role(m, "assistant")) {
        split_thinking(&content, &thought);
        thought = rule->flags & TRIMS ? trimmed(thought) : thought;
        if (i > last_user && ((rule->flags & ALWAYS_THINKS) || thought.size || i + 1 == r->n)) {
            if ((rc = put(r, "<think>\n")) || (rc = put_n(r, thought.data, thought.size)) || (rc = put(r, "\n</think>\n\n")))
                return rc;
            while (content.size && content.data[0] == '\n')
                content.data++, content.size--;
        }
    }
    rc = put_n(r, content.data, content.size);
    return rc ? rc : put(r, "<|im_end|>\n");
}

static int chatml_render(struct render *r)
{
    const struct chatml_rule *rule = chatml_rule(r->template_text);
    if (!rule) /* the user named the format */
        rule = chatml_rule("");
    const char *text;
    size_t n, last_user = r->n ? r->n - 1 : 0;
    int rc = 0;
    for (size_t i = 0; i < r->n; i++)
        if (is_role(&r->messages[i], "user"))
            last_user = i;
    if (r->first == 0 && (r->n == 0 || !is_role(&r->messages[0], "system")) && chatml_default(r, &text, &n)) {
        rc = put(r, "<|im_start|>system\n");
        if (!rc)
            rc = put_literal(r, text, n);
        if (!rc)
            rc = put(r, "<|im_end|>\n");
    }
    for (size_t i = r->first; i < r->n && !rc; i++)
        rc = chatml_turn(r, i, rule, last_user);
    if (rc || !r->assistant_turn)
        return rc;
    rc = put(r, "<|im_start|>assistant\n");
    return rc || !(rule->flags & THINKS) ? rc : chatml_open_thinking(r);
}

static bool chatml_knows(const char *template_text)
{
    return chatml_rule(template_text) != NULL;
}

/* Llama 3. */

static int llama3_turn(struct render *r, const char *role)
{
    int rc = put(r, "<|start_header_id|>");
    if (!rc)
        rc = put(r, role);
    return rc ? rc : put(r, "<|end_header_id|>\n\n");
}

/* From 3.1 on there is always a system turn, and it begins with two dates. */
static int llama3_system(struct render *r, struct gguf_string content)
{
    static const char key[] = "date_string = \"";
    const char *date = "26 Jul 2024";
    size_t n = strlen(date);
    for (const char *p = r->template_text; (p = strstr(p, key)); p++)
        if (strcspn(p + sizeof key - 1, "\"") < 40) {
            date = p + sizeof key - 1;
            n = strcspn(date, "\"");
            break;
        }
    int rc;
    if ((rc = llama3_turn(r, "system")) || (rc = put(r, "Cutting Knowledge Date: December 2023\nToday Date: ")) ||
        (rc = put_n(r, date, n)) || (rc = put(r, "\n\n")) || (rc = put_n(r, content.data, content.size)))
        return rc;
    return put(r, "<|eot_id|>");
}

static int llama3_render(struct render *r)
{
    bool dated = says(r, "Cutting Knowledge Date: December 2023");
    int rc = 0;
    size_t i = r->first;
    if (dated && i == 0) {
        bool has_system = r->n && is_role(&r->messages[0], "system");
        rc = llama3_system(r, has_system ? content_of(&r->messages[0], true) : (struct gguf_string){"", 0});
        i += has_system;
    }
    for (; i < r->n && !rc; i++) {
        struct gguf_string content = content_of(&r->messages[i], true);
        rc = llama3_turn(r, r->messages[i].role);
        if (!rc)
            rc = put_n(r, content.data, content.size);
        if (!rc)
            rc = put(r, "<|eot_id|>");
    }
    return rc || !r->assistant_turn ? rc : llama3_turn(r, "assistant");
}

/* Gemma. */

static int gemma_render(struct render *r)
{
    bool has_system = r->n && is_role(&r->messages[0], "system");
    if (has_system && says(r, "System role not supported"))
        return err_set(r->e, HONE_EINPUT, "the model's chat template takes no system message");
    int rc = 0;
    for (size_t i = has_system; i < r->n && !rc; i++) {
        const char *role = r->messages[i].role;
        if (is_role(&r->messages[i], "user") != ((i - has_system) % 2 == 0))
            return err_set(r->e, HONE_EINPUT, "message %zu is of role %s: Gemma's template wants user and assistant in turn",
                           i + 1, role);
        if (i < r->first)
            continue;
        struct gguf_string content = content_of(&r->messages[i], true);
        rc = put(r, "<start_of_turn>");
        if (!rc)
            rc = put(r, is_role(&r->messages[i], "assistant") ? "model" : role);
        if (!rc)
            rc = put(r, "\n");
        /* The system message stands before the first user's. */
        if (!rc && has_system && i == 1)
            rc = put(r, r->messages[0].content);
        if (!rc && has_system && i == 1)
            rc = put(r, "\n\n");
        if (!rc)
            rc = put_n(r, content.data, content.size);
        if (!rc)
            rc = put(r, "<end_of_turn>\n");
    }
    return rc || !r->assistant_turn ? rc : put(r, "<start_of_turn>model\n");
}

static bool llama3_knows(const char *template_text)
{
    return !strstr(template_text, "Cutting Knowledge") || strstr(template_text, "\"Today Date: \" + date_string");
}

static const struct chat_format formats[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>"}, {"<|im_sep|>"}, "<|im_end|>\n", chatml_render, chatml_knows},
    {"gemma", {"<start_of_turn>", "<end_of_turn>"}, {NULL}, "<end_of_turn>\n", gemma_render, NULL},
    {"llama3",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     {">>>", "functions as JSON spec"},
     "<|eot_id|>",
     llama3_render,
     llama3_knows},
};
enum { N_FORMATS_OF_CHAT = sizeof formats / sizeof *formats };

const char *chat_format_names(void)
{
    return "chatml, gemma, llama3";
}

const char *chat_format_name(const struct chat_format *f)
{
    return f->name;
}

static bool matches(const struct chat_format *f, const char *template_text)
{
    for (int i = 0; i < MAX_MARKERS; i++)
        if ((f->has[i] && !strstr(template_text, f->has[i])) || (f->lacks[i] && strstr(template_text, f->lacks[i])))
            return false;
    return !f->knows || f->knows(template_text);
}

/* What runs the file's own template. */
static const struct chat_format own_template = {.name = "the file's own template"};

/* What goes wrong in a template can be avoided by naming a family, which has no tools; the user's own he can mend. */
static int err_with_ways_out(struct hone_error *e, const struct hone_error *why, const struct chat_template *t)
{
    if (t->path)
        return err_set(e, why->code, "%s: %s", t->path, why->message);
    if (t->tools)
        return err_set(e, why->code, "%s", why->message);
    return err_set(e, why->code, "%s; name another with --chat-template (%s), or give the prompt as it is with --raw", why->message,
                   chat_format_names());
}

/* A template that is run. */
static int find_own(const struct chat_format **out, const struct chat_template *t, struct hone_error *e)
{
    struct hone_error why = {0};
    if (!strstr(t->text, "messages"))
        err_set(&why, HONE_EINPUT, "the %schat template writes no messages", t->path ? "" : "model's ");
    if (why.code || chat_template_check(t->text, &why))
        return err_with_ways_out(e, &why, t);
    *out = &own_template;
    return 0;
}

static int find_for_tools(const struct chat_format **out, const char *name, const struct chat_template *t, struct hone_error *e)
{
    if (name)
        return err_set(e, HONE_EUSAGE, "--chat-template %.40s has no tools: they need the model's own template, or --chat-template-file", name);
    if (t->path && !strstr(t->text, "tools"))
        return err_set(e, HONE_EINPUT, "%s: the chat template takes no tools", t->path);
    if (!t->text || !strstr(t->text, "tools"))
        return err_set(e, HONE_EINPUT, "the model's chat template %s; give one that takes tools with --chat-template-file",
                       t->text ? "takes no tools" : "is missing, and tools need one");
    return find_own(out, t, e);
}

int chat_format_find(const struct chat_format **out, const char *name, const struct chat_template *t, struct hone_error *e)
{
    if (t->tools)
        return find_for_tools(out, name, t, e);
    if (!name && t->path)
        return find_own(out, t, e);
    for (int i = 0; i < N_FORMATS_OF_CHAT; i++)
        if (name ? !strcmp(name, formats[i].name) : t->text && matches(&formats[i], t->text)) {
            *out = &formats[i];
            return 0;
        }
    if (name)
        return err_set(e, HONE_EUSAGE, "unknown chat template \"%.40s\"; known: %s", name, chat_format_names());
    if (!t->text)
        return err_set(e, HONE_EINPUT, "the model has no chat template; name one with --chat-template (%s), or give the prompt as it is with --raw",
                       chat_format_names());
    return find_own(out, t, e);
}

int chat_render(const struct chat_format *f, const struct chat_template *t, const struct chat_message *messages, size_t n, size_t first,
                bool assistant_turn, struct text *out, struct hone_error *e)
{
    struct render r = {t->text ? t->text : "", messages, n, first, assistant_turn, out, e};
    size_t before = out->n;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        if (!is_role(&messages[i], "system") && !is_role(&messages[i], "user") && !is_role(&messages[i], "assistant"))
            rc = err_set(e, HONE_EINPUT, "message %zu is of role %.40s; known: system, user, assistant", i + 1,
                         messages[i].role);
    if (!rc && f == &own_template) {
        struct hone_error why = {0};
        rc = chat_template_render(t, messages, n, first, assistant_turn, out, &why);
        return rc ? err_with_ways_out(e, &why, t) : 0;
    }
    INVARIANT(!t->tools);
    /* The turn that a model wrote before these messages is still open. */
    if (!rc && first > 0 && first <= n && is_role(&messages[first - 1], "assistant"))
        rc = put(&r, f->turn_end);
    if (!rc)
        rc = f->render(&r);
    if (rc && out->data) {
        out->n = before;
        out->data[before] = 0;
    }
    return rc;
}
