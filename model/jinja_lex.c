/* jinja_lex.c: a template's source as tokens, with Jinja's rules for blanks.
 *
 * Four of them act together: "-" beside a tag takes every blank there, "+" keeps all; trim_blocks takes the newline behind a
 * block or comment; lstrip_blocks takes the blanks between the start of a line and a block or comment. A tag's start rules over
 * the text before it, its end over the text behind it, so data is cut when the tag that follows is met, and `line_starts`
 * remembers whether the last tag's end took a newline. What blanks are is Python's str.isspace.
 *
 * Within a tag the end is looked for only outside brackets: "}}" may close two literals of dicts. Numbers are decimal;
 * other bases, names beyond ASCII and \N escapes are refused.
 *
 * Source: the lexical rules of the Jinja 3.1 documentation ("Whitespace Control"), and of Python's string literals. */
#include "model/jinja_parts.h"
#include "model/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct lexer {
    struct lexed *l;
    struct arena *a;
    struct hone_error *e;
    size_t p; /* where it stands in the source */
    bool line_starts;
};

int jinja_error(struct hone_error *e, struct span source, uint32_t at, const char *format, ...)
{
    char message[256];
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < at && i < source.n; i++) {
        if (source.data[i] == '\n')
            line++, column = 1;
        else if (((unsigned char)source.data[i] & 0xc0) != 0x80)
            column++;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    /* Messages may quote the template: one line, whole characters. */
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    message[utf8_complete(message, strlen(message))] = 0;
    return err_set(e, HONE_EINPUT, "chat template, line %u, column %u: %s", line, column, message);
}

static char at(const struct lexer *x, size_t p)
{
    return p < x->l->source.n ? x->l->source.data[p] : 0;
}

static bool starts(const struct lexer *x, size_t p, const char *text)
{
    size_t n = strlen(text);
    return p <= x->l->source.n && x->l->source.n - p >= n && !memcmp(x->l->source.data + p, text, n);
}

static size_t skip_blanks(const struct lexer *x, size_t p)
{
    size_t size;
    while (p < x->l->source.n && (size = utf8_blank(x->l->source.data + p, x->l->source.n - p)))
        p += size;
    return p;
}

static struct lexeme *add(struct lexer *x, enum lexeme_kind kind, size_t from, struct span text)
{
    struct lexed *l = x->l;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        struct lexeme *grown = arena_array(x->a, cap, sizeof *grown);
        if (!grown) {
            err_set(x->e, HONE_ERESOURCE, "out of memory for a chat template");
            return NULL;
        }
        if (l->n)
            memcpy(grown, l->tokens, l->n * sizeof *grown);
        l->tokens = grown;
        l->cap = cap;
    }
    l->tokens[l->n] = (struct lexeme){.kind = kind, .at = (uint32_t)from, .text = text};
    return &l->tokens[l->n++];
}

/* Text from `from` to the tag at `to`, whose sign is `sign`; `lstrips`: a block's or comment's. */
static int add_data(struct lexer *x, size_t from, size_t to, char sign, bool lstrips)
{
    const char *s = x->l->source.data;
    struct span text = {s + from, to - from};
    if (sign == '-') {
        text = jinja_stripped(text, NULL, false, true);
    } else if (sign != '+' && lstrips) {
        size_t line = text.n;
        while (line > 0 && text.data[line - 1] != '\n')
            line--;
        if (line > 0 || x->line_starts) {
            struct span rest = {text.data + line, text.n - line};
            if (!jinja_stripped(rest, NULL, true, false).n)
                text.n = line;
        }
    }
    return !text.n || add(x, T_DATA, from, text) ? 0 : HONE_ERESOURCE;
}

/* Behind the end of a block or comment ("%}") at p, whose sign stands before it. */
static size_t behind_block(struct lexer *x, size_t p, char sign)
{
    p += 2;
    if (sign == '-')
        p = skip_blanks(x, p);
    else if (sign != '+' && at(x, p) == '\n')
        p++;
    x->line_starts = p > 0 && at(x, p - 1) == '\n';
    return p;
}

static int hex(const struct lexer *x, size_t p, size_t end, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        char c = p + (size_t)i < end ? at(x, p + (size_t)i) : 0;
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (v < 0)
            return -1;
        *out = *out << 4 | (uint32_t)v;
    }
    return 0;
}

/* The escape at p (behind the backslash), up to `end`: its bytes at *to; returns where it ends, 0 for one that is refused. */
static size_t escape(struct lexer *x, size_t p, size_t end, char **to)
{
    static const char from[] = "\\'\"abfnrtv", into[] = "\\'\"\a\b\f\n\r\t\v";
    char c = at(x, p);
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t point = 0;
    if (known) {
        *(*to)++ = into[known - from];
        return p + 1;
    }
    if (c == '\n')
        return p + 1;
    if (c >= '0' && c <= '7') {
        int n = 0;
        for (; n < 3 && p < end && at(x, p) >= '0' && at(x, p) <= '7'; n++, p++)
            point = point * 8 + (uint32_t)(at(x, p) - '0');
        *to += jinja_put_utf8(*to, point);
        return p;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N' || (digits && hex(x, p + 1, end, digits, &point)) || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        jinja_error(x->e, x->l->source, (uint32_t)p - 1, "an escape that is not known, or no character");
        return 0;
    }
    if (digits) {
        *to += jinja_put_utf8(*to, point);
        return p + 1 + (size_t)digits;
    }
    *(*to)++ = '\\';
    return p;
}

static int lex_string(struct lexer *x)
{
    size_t from = x->p, end = from + 1;
    char quote = at(x, from);
    while (end < x->l->source.n && at(x, end) != quote)
        end += at(x, end) == '\\' ? 2 : 1;
    if (end >= x->l->source.n)
        return jinja_error(x->e, x->l->source, (uint32_t)from, "a string that does not end");
    /* An escape is never shorter than what it stands for. */
    char *s = arena_alloc(x->a, end - from), *to = s;
    if (!s)
        return err_set(x->e, HONE_ERESOURCE, "out of memory for a chat template");
    for (size_t p = from + 1; p < end;) {
        if (at(x, p) != '\\')
            *to++ = at(x, p++);
        else if (!(p = escape(x, p + 1, end, &to)))
            return HONE_EINPUT;
    }
    x->p = end + 1;
    return add(x, T_STRING, from, (struct span){s, (size_t)(to - s)}) ? 0 : HONE_ERESOURCE;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with "_" between them, copied to *to without. */
static size_t digits(const struct lexer *x, size_t p, char **to, const char *limit)
{
    while (is_digit(at(x, p)) || (at(x, p) == '_' && is_digit(at(x, p + 1)))) {
        if (at(x, p) != '_' && *to < limit)
            *(*to)++ = at(x, p);
        p++;
    }
    return p;
}

static int lex_number(struct lexer *x)
{
    char buffer[128], *to = buffer;
    const char *limit = buffer + sizeof buffer - 8;
    size_t from = x->p, p = digits(x, from, &to, limit);
    bool is_float = false;
    if (at(x, p) == '.' && is_digit(at(x, p + 1))) {
        *to++ = '.';
        p = digits(x, p + 1, &to, limit);
        is_float = true;
    }
    size_t exponent = p + 1 + (at(x, p + 1) == '+' || at(x, p + 1) == '-');
    if ((at(x, p) == 'e' || at(x, p) == 'E') && is_digit(at(x, exponent))) {
        *to++ = 'e';
        if (at(x, p + 1) == '-')
            *to++ = '-';
        p = digits(x, exponent, &to, limit);
        is_float = true;
    }
    *to = 0;
    char c = at(x, p);
    bool runs_on = c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool zeros = !is_float && buffer[0] == '0' && strspn(buffer, "0") != strlen(buffer);
    errno = 0;
    struct lexeme t = {0};
    if (is_float)
        t.f = strtod(buffer, NULL);
    else
        t.i = strtoll(buffer, NULL, 10);
    if (runs_on || zeros || to >= limit || errno)
        return jinja_error(x->e, x->l->source, (uint32_t)from, "a number that is not known: decimal ones up to 64 bits are");
    x->p = p;
    struct lexeme *added = add(x, is_float ? T_FLOAT : T_INT, from, (struct span){x->l->source.data + from, p - from});
    if (!added)
        return HONE_ERESOURCE;
    if (is_float)
        added->f = t.f;
    else
        added->i = t.i;
    return 0;
}

static int lex_operator(struct lexer *x, int *depth)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(x, x->p, two[i]))
            n = 2;
    char c = at(x, x->p);
    if (!c || !strchr("+-/*%~[](){}=!<>.:|,", c) || (c == '!' && n == 1))
        return jinja_error(x->e, x->l->source, (uint32_t)x->p, "a character that begins nothing");
    if (n == 1 && strchr("([{", c))
        ++*depth;
    if (n == 1 && strchr(")]}", c) && --*depth < 0)
        return jinja_error(x->e, x->l->source, (uint32_t)x->p, "'%c' closes nothing", c);
    struct span text = {x->l->source.data + x->p, n};
    if (!add(x, T_OPERATOR, x->p, text))
        return HONE_ERESOURCE;
    x->p += n;
    return 0;
}

static bool name_char(char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (!first && is_digit(c));
}

/* What stands in a tag, and its end. */
static int lex_tag(struct lexer *x, bool block)
{
    const char *end = block ? "%}" : "}}";
    size_t opened = x->p;
    int depth = 0, rc = 0;
    while (!rc) {
        x->p = skip_blanks(x, x->p);
        if (x->p >= x->l->source.n)
            return jinja_error(x->e, x->l->source, (uint32_t)opened, "a tag that does not end");
        char c = at(x, x->p), sign = c == '-' || (c == '+' && block) ? c : 0;
        size_t p = x->p + (sign != 0);
        if (depth == 0 && starts(x, p, end)) {
            if (!add(x, block ? T_BLOCK_END : T_PRINT_END, x->p, (struct span){x->l->source.data + x->p, 2}))
                return HONE_ERESOURCE;
            if (block)
                x->p = behind_block(x, p, sign);
            else {
                x->p = sign ? skip_blanks(x, p + 2) : p + 2;
                x->line_starts = at(x, x->p - 1) == '\n';
            }
            return 0;
        }
        if (c == '\'' || c == '"') {
            rc = lex_string(x);
        } else if (is_digit(c)) {
            rc = lex_number(x);
        } else if (name_char(c, true)) {
            size_t from = x->p;
            while (name_char(at(x, x->p), false))
                x->p++;
            rc = add(x, T_NAME, from, (struct span){x->l->source.data + from, x->p - from}) ? 0 : HONE_ERESOURCE;
        } else {
            rc = lex_operator(x, &depth);
        }
    }
    return rc;
}

/* Whether the block tag at p is `name` alone; then *end is its "%}" and *sign what stands before that. */
static bool bare_tag(const struct lexer *x, size_t p, const char *name, size_t *end, char *sign)
{
    p += 2;
    p += at(x, p) == '-' || at(x, p) == '+';
    p = skip_blanks(x, p);
    if (!starts(x, p, name))
        return false;
    p = skip_blanks(x, p + strlen(name));
    *sign = at(x, p) == '-' || at(x, p) == '+' ? at(x, p) : 0;
    *end = p + (*sign != 0);
    return starts(x, *end, "%}");
}

static int lex_raw(struct lexer *x, size_t end, char sign)
{
    size_t from = sign == '-' ? skip_blanks(x, end + 2) : end + 2;
    x->line_starts = at(x, from - 1) == '\n';
    for (size_t p = from; p < x->l->source.n; p++)
        if (starts(x, p, "{%") && bare_tag(x, p, "endraw", &end, &sign)) {
            int rc = add_data(x, from, p, at(x, p + 2), true);
            x->p = behind_block(x, end, sign);
            return rc;
        }
    return jinja_error(x->e, x->l->source, (uint32_t)from, "a raw block that does not end");
}

static int lex_comment(struct lexer *x)
{
    for (size_t p = x->p + 2; p < x->l->source.n; p++)
        if (starts(x, p, "#}")) {
            char sign = p > x->p + 2 && (at(x, p - 1) == '-' || at(x, p - 1) == '+') ? at(x, p - 1) : 0;
            x->p = behind_block(x, p, sign);
            return 0;
        }
    return jinja_error(x->e, x->l->source, (uint32_t)x->p, "a comment that does not end");
}

static int lex_all(struct lexer *x)
{
    int rc = 0;
    size_t from = 0, end;
    char sign;
    while (!rc && x->p < x->l->source.n) {
        char kind = at(x, x->p) == '{' ? at(x, x->p + 1) : 0;
        if (kind != '{' && kind != '%' && kind != '#') {
            x->p++;
            continue;
        }
        char before = at(x, x->p + 2);
        if ((rc = add_data(x, from, x->p, before, kind != '{')))
            break;
        if (kind == '#') {
            rc = lex_comment(x);
        } else if (kind == '%' && bare_tag(x, x->p, "raw", &end, &sign)) {
            rc = lex_raw(x, end, sign);
        } else {
            if (!add(x, kind == '%' ? T_BLOCK : T_PRINT, x->p, (struct span){x->l->source.data + x->p, 2}))
                return HONE_ERESOURCE;
            x->p += 2 + (before == '-' || before == '+');
            rc = lex_tag(x, kind == '%');
        }
        from = x->p;
    }
    if (!rc)
        rc = add_data(x, from, x->l->source.n, '+', false);
    return rc || add(x, T_END, x->l->source.n, (struct span){"", 0}) ? rc : HONE_ERESOURCE;
}

int jinja_lex(struct lexed *l, struct arena *a, const char *text, size_t n, struct hone_error *e)
{
    if (n > 16u << 20)
        return err_set(e, HONE_EINPUT, "a chat template of %zu bytes: 16 MiB are the most", n);
    char *s = arena_alloc(a, n + 1), *to = s;
    if (!s)
        return err_set(e, HONE_ERESOURCE, "out of memory for a chat template");
    for (size_t i = 0; i < n;) {
        size_t size = utf8_sequence(text + i, n - i);
        if (!size)
            return err_set(e, HONE_EINPUT, "the chat template is no UTF-8 at byte %zu", i);
        if (text[i] == '\r') {
            *to++ = '\n';
            i += i + 1 < n && text[i + 1] == '\n' ? 2 : 1;
            continue;
        }
        memcpy(to, text + i, size);
        to += size;
        i += size;
    }
    *l = (struct lexed){.source = {s, (size_t)(to - s)}};
    if (l->source.n && s[l->source.n - 1] == '\n')
        l->source.n--;
    struct lexer x = {l, a, e, 0, true};
    return lex_all(&x);
}
