/* jinja_string.c: text in templates: Python's str, repr and json.dumps of values, and work on strings by code points.
 *
 * A float is written with the fewest digits that read back as the same double, laid out as Python's repr does. Letters beyond
 * ASCII change case by utf8proc's simple mappings; the hundred code points whose mapping is several, or depends on what stands
 * around them, are refused. A string that is added to grows in place where it was the last to grow, so that a template which
 * gathers its text piece by piece takes time by its length, not by its square. */
#include "model/jinja_parts.h"
#include "model/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

struct value jinja_string_new(struct run *r, const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? jinja_run_alloc(r, n + 1) : NULL;
    if (!copy)
        return of_span(SPAN(""));
    if (n)
        memcpy(copy, s, n);
    return of_span((struct span){copy, n});
}

struct value jinja_joined(struct run *r, struct span a, struct span b)
{
    if (!jinja_spend(r, 1 + b.n / 64))
        return of_span(SPAN(""));
    if (!a.n || !b.n)
        return of_span(a.n ? a : b);
    if (a.data + a.n == r->grown && b.n <= r->grown_free) {
        memcpy(r->grown, b.data, b.n);
        r->grown += b.n;
        r->grown_free -= b.n;
        return of_span((struct span){a.data, a.n + b.n});
    }
    size_t n = a.n + b.n, room = n < 1024 ? n : 2 * n;
    char *s = jinja_run_alloc(r, room);
    if (!s)
        return of_span(SPAN(""));
    memcpy(s, a.data, a.n);
    memcpy(s + a.n, b.data, b.n);
    if (room > n) {
        r->grown = s + n;
        r->grown_free = room - n;
    }
    return of_span((struct span){s, n});
}

void jinja_put_text(struct run *r, struct text *t, const char *s, size_t n)
{
    if (r->rc)
        return;
    if (n > r->limits.output || t->n > r->limits.output - n)
        jinja_fail(r, "a text of more than %zu bytes", r->limits.output);
    else
        r->rc = text_append(t, s, n, r->e);
}

static void put_string(struct run *r, struct text *t, const char *s)
{
    jinja_put_text(r, t, s, strlen(s));
}

struct value jinja_taken(struct run *r, struct text *t)
{
    struct value v = jinja_string_new(r, t->data, r->rc ? 0 : t->n);
    text_free(t);
    return v;
}

/* repr(float): digits and exponent of the shortest %e that reads back, laid out. */
static void put_float(struct run *r, struct text *t, double f, bool json)
{
    char buffer[40], digits[24], *exponent;
    if (isnan(f) || isinf(f)) {
        put_string(r, t, isnan(f) ? (json ? "NaN" : "nan") : f > 0 ? (json ? "Infinity" : "inf") : json ? "-Infinity" : "-inf");
        return;
    }
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(buffer, sizeof buffer, "%.*e", precision, fabs(f));
        if (strtod(buffer, NULL) == fabs(f))
            break;
    }
    exponent = strchr(buffer, 'e');
    int e = atoi(exponent + 1), n = 0;
    for (const char *c = buffer; c < exponent; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    digits[n] = 0;
    if (signbit(f))
        put_string(r, t, "-");
    if (e < -4 || e >= 16) {
        snprintf(buffer, sizeof buffer, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1, e < 0 ? '-' : '+', abs(e));
        put_string(r, t, buffer);
    } else if (e < 0) {
        jinja_put_text(r, t, "0.0000", (size_t)(1 - e));
        put_string(r, t, digits);
    } else {
        for (int i = 0; i <= e; i++)
            jinja_put_text(r, t, i < n ? &digits[i] : "0", 1);
        put_string(r, t, ".");
        put_string(r, t, n > e + 1 ? digits + e + 1 : "0");
    }
}

static void put_int(struct run *r, struct text *t, int64_t i)
{
    char buffer[24];
    snprintf(buffer, sizeof buffer, "%lld", (long long)i);
    put_string(r, t, buffer);
}

static bool printable(utf8proc_int32_t point)
{
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return point == ' ';
    default:
        return true;
    }
}

static utf8proc_int32_t point_at(const char *s, size_t n, size_t *size)
{
    utf8proc_int32_t point;
    *size = utf8_sequence(s, n);
    if (!*size || utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)*size, &point) < 0) {
        *size = 1;
        return (unsigned char)*s;
    }
    return point;
}

static void put_quoted(struct run *r, struct text *t, struct span s)
{
    bool single = s.n && memchr(s.data, '\'', s.n), doubled = s.n && memchr(s.data, '"', s.n);
    char quote = single && !doubled ? '"' : '\'', buffer[16];
    jinja_put_text(r, t, &quote, 1);
    for (size_t i = 0, size; i < s.n && !r->rc; i += size) {
        utf8proc_int32_t point = point_at(s.data + i, s.n - i, &size);
        if (point == quote || point == '\\') {
            jinja_put_text(r, t, "\\", 1);
            jinja_put_text(r, t, s.data + i, 1);
        } else if (point == '\n' || point == '\r' || point == '\t') {
            put_string(r, t, point == '\n' ? "\\n" : point == '\r' ? "\\r" : "\\t");
        } else if (printable(point)) {
            jinja_put_text(r, t, s.data + i, size);
        } else {
            snprintf(buffer, sizeof buffer,
                     point < 0x100     ? "\\x%02x"
                     : point < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                     (unsigned)point);
            put_string(r, t, buffer);
        }
    }
    jinja_put_text(r, t, &quote, 1);
}

static void put_reprs(struct run *r, struct text *t, struct value v)
{
    bool is_dict = v.kind == V_DICT;
    size_t n = is_dict ? v.dict->n : v.list->n;
    put_string(r, t, is_dict ? "{" : v.kind == V_LIST ? "[" : "(");
    for (size_t i = 0; i < n && !r->rc; i++) {
        if (i)
            put_string(r, t, ", ");
        jinja_put_repr(r, t, is_dict ? v.dict->keys[i] : v.list->items[i]);
        if (is_dict) {
            put_string(r, t, ": ");
            jinja_put_repr(r, t, v.dict->values[i]);
        }
    }
    put_string(r, t, is_dict ? "}" : v.kind == V_LIST ? "]" : n == 1 ? ",)" : ")");
}

void jinja_put_repr(struct run *r, struct text *t, struct value v)
{
    if (!jinja_spend(r, 1 + (v.kind == V_STRING ? v.n / 16 : 0)) || !jinja_enter(r))
        return;
    switch (v.kind) {
    case V_NONE:
        put_string(r, t, "None");
        break;
    case V_BOOL:
        put_string(r, t, v.b ? "True" : "False");
        break;
    case V_INT:
        put_int(r, t, v.i);
        break;
    case V_FLOAT:
        put_float(r, t, v.f, false);
        break;
    case V_STRING:
        if (v.safe)
            jinja_fail(r, "text marked safe within a list that is printed is not known");
        put_quoted(r, t, text_of(v));
        break;
    case V_UNDEFINED:
        put_string(r, t, "Undefined");
        break;
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        put_reprs(r, t, v);
        break;
    default:
        jinja_fail(r, "%s cannot be printed", jinja_kind_name(v));
        break;
    }
    leave(r);
}

struct span jinja_str(struct run *r, struct value v)
{
    if (r->rc || v.kind == V_UNDEFINED)
        return SPAN("");
    if (v.kind == V_STRING)
        return text_of(v);
    struct text t = {0};
    jinja_put_repr(r, &t, v);
    return text_of(jinja_taken(r, &t));
}

static void put_json_string(struct run *r, struct text *t, struct span s, bool ascii)
{
    char buffer[24];
    put_string(r, t, "\"");
    for (size_t i = 0, size; i < s.n && !r->rc; i += size) {
        static const char from[] = "\"\\\n\r\t\b\f", into[] = "\"\\nrtbf";
        utf8proc_int32_t point = point_at(s.data + i, s.n - i, &size);
        const char *known = point && point < 0x80 ? strchr(from, (int)point) : NULL;
        if (known) {
            jinja_put_text(r, t, "\\", 1);
            jinja_put_text(r, t, &into[known - from], 1);
        } else if (point < 0x20 || (ascii && point > 0x7e)) {
            if (point < 0x10000)
                snprintf(buffer, sizeof buffer, "\\u%04x", (unsigned)point);
            else
                snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xd800u + (unsigned)((point - 0x10000) >> 10),
                         0xdc00u + (unsigned)((point - 0x10000) & 0x3ff));
            put_string(r, t, buffer);
        } else {
            jinja_put_text(r, t, s.data + i, size);
        }
    }
    put_string(r, t, "\"");
}

static void put_json_key(struct run *r, struct text *t, struct value key, const struct json_style *style)
{
    if (key.kind == V_STRING) {
        put_json_string(r, t, text_of(key), style->ascii);
    } else if (key.kind >= V_NONE && key.kind <= V_FLOAT) {
        put_string(r, t, "\"");
        jinja_put_json(r, t, key, style, 0);
        put_string(r, t, "\"");
    } else {
        jinja_fail(r, "%s cannot be a key in JSON", jinja_kind_name(key));
    }
}

static void new_line(struct run *r, struct text *t, const struct json_style *style, int level)
{
    if (!style->indent)
        return;
    put_string(r, t, "\n");
    for (int i = 0; i < level && !r->rc; i++)
        put_string(r, t, style->indent);
}

/* The order in which a mapping's entries are written. */
static size_t *key_order(struct run *r, const struct dict *d, bool sort)
{
    size_t *order = jinja_run_alloc(r, (d->n + 1) * sizeof *order);
    for (size_t i = 0; i < d->n && order; i++) {
        size_t k = i;
        for (; sort && k > 0 && jinja_values_order(r, d->keys[i], d->keys[order[k - 1]]) < 0 && !r->rc; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    return order;
}

static void put_json_entries(struct run *r, struct text *t, struct value v, const struct json_style *style, int level)
{
    bool is_dict = v.kind == V_DICT;
    size_t n = is_dict ? v.dict->n : v.list->n;
    size_t *order = is_dict ? key_order(r, v.dict, style->sort) : NULL;
    put_string(r, t, is_dict ? "{" : "[");
    for (size_t i = 0; i < n && !r->rc; i++) {
        if (i)
            jinja_put_text(r, t, style->item.data, style->item.n);
        new_line(r, t, style, level + 1);
        if (is_dict) {
            put_json_key(r, t, v.dict->keys[order[i]], style);
            jinja_put_text(r, t, style->key.data, style->key.n);
        }
        jinja_put_json(r, t, is_dict ? v.dict->values[order[i]] : v.list->items[i], style, level + 1);
    }
    if (n)
        new_line(r, t, style, level);
    put_string(r, t, is_dict ? "}" : "]");
}

void jinja_put_json(struct run *r, struct text *t, struct value v, const struct json_style *style, int level)
{
    if (!jinja_spend(r, 1 + (v.kind == V_STRING ? v.n / 16 : 0)) || !jinja_enter(r))
        return;
    switch (v.kind) {
    case V_NONE:
        put_string(r, t, "null");
        break;
    case V_BOOL:
        put_string(r, t, v.b ? "true" : "false");
        break;
    case V_INT:
        put_int(r, t, v.i);
        break;
    case V_FLOAT:
        put_float(r, t, v.f, true);
        break;
    case V_STRING:
        put_json_string(r, t, text_of(v), style->ascii);
        break;
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        put_json_entries(r, t, v, style, level);
        break;
    default:
        jinja_fail(r, "%s cannot be written as JSON", jinja_kind_name(v));
        break;
    }
    leave(r);
}

size_t jinja_points(struct span s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_point_offset(struct span s, size_t index)
{
    size_t i = 0;
    while (index && i < s.n) {
        i += utf8_step(s.data + i, s.n - i);
        index--;
    }
    return i;
}

/* Size of the character at s that is to be stripped: a blank, or one of `chars`. */
static size_t strippable(const char *s, size_t n, const struct span *chars)
{
    if (!chars)
        return utf8_blank(s, n);
    size_t size = utf8_sequence(s, n);
    for (size_t i = 0, k; size && i < chars->n; i += k) {
        k = utf8_step(chars->data + i, chars->n - i);
        if (k == size && !memcmp(chars->data + i, s, size))
            return size;
    }
    return 0;
}

struct span jinja_stripped(struct span s, const struct span *chars, bool left, bool right)
{
    size_t size;
    while (left && s.n && (size = strippable(s.data, s.n, chars))) {
        s.data += size;
        s.n -= size;
    }
    while (right && s.n) {
        for (size = 1; size < s.n && size < 4 && ((unsigned char)s.data[s.n - size] & 0xc0) == 0x80;)
            size++;
        if (strippable(s.data + s.n - size, size, chars) != size)
            break;
        s.n -= size;
    }
    return s;
}

int jinja_put_utf8(char *to, uint32_t point)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)to);
}

/* Code points whose full case mapping is several code points, or not by the point alone. */
static bool special_case(utf8proc_int32_t c)
{
    return c == 0xdf || c == 0x130 || c == 0x149 || c == 0x1f0 || c == 0x345 || c == 0x390 || c == 0x3a3 || c == 0x3b0 ||
           c == 0x587 || (c >= 0x1c4 && c <= 0x1cc) || (c >= 0x1f1 && c <= 0x1f3) || (c >= 0x10d0 && c <= 0x10ff) ||
           (c >= 0x1c80 && c <= 0x1cbf) || (c >= 0x1e96 && c <= 0x1e9e) || (c >= 0x1f50 && c <= 0x1f57) ||
           (c >= 0x1f80 && c <= 0x1fff) || (c >= 0xfb00 && c <= 0xfb17);
}

static utf8proc_int32_t in_case(struct run *r, utf8proc_int32_t c, bool upper)
{
    if (c < 0x80)
        return upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (special_case(c))
        jinja_fail(r, "the case of U+%04X is not known", (unsigned)c);
    return upper ? utf8proc_toupper(c) : utf8proc_tolower(c);
}

static bool is_letter(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

struct value jinja_lettered(struct run *r, struct span s, enum lettering how)
{
    struct text t = {0};
    char buffer[4];
    bool begins = true; /* a word */
    jinja_spend(r, s.n / 16);
    for (size_t i = 0, size; i < s.n && !r->rc; i += size) {
        utf8proc_int32_t c = point_at(s.data + i, s.n - i, &size);
        utf8proc_int32_t to = in_case(r, c, how == UPPER || (how != LOWER && begins));
        jinja_put_text(r, &t, buffer, (size_t)jinja_put_utf8(buffer, (uint32_t)to));
        if (how == CAPITAL)
            begins = false;
        else if (how == TITLE)
            begins = !is_letter(c);
        else if (how == TITLE_FILTER)
            begins = (c < 0x80 && c && strchr("-({[<", (int)c)) || utf8_blank(s.data + i, s.n - i);
    }
    return jinja_taken(r, &t);
}

const char *jinja_find_span(struct run *r, struct span in, struct span what)
{
    if (!jinja_spend(r, 1 + in.n / 16))
        return NULL;
    return what.n ? in.n ? memmem(in.data, in.n, what.data, what.n) : NULL : in.data;
}

struct value jinja_replaced(struct run *r, struct span s, struct span from, struct span to, int64_t count)
{
    struct text t = {0};
    size_t done = 0;
    while (count != 0 && !r->rc) {
        const char *found = jinja_find_span(r, (struct span){s.data + done, s.n - done}, from);
        if (!found)
            break;
        size_t at = (size_t)(found - s.data), step = from.n;
        jinja_put_text(r, &t, s.data + done, at - done);
        jinja_put_text(r, &t, to.data, to.n);
        count -= count > 0;
        done = at + step;
        if (!from.n) { /* before every character and at the end */
            if (done >= s.n)
                break;
            step = utf8_step(s.data + done, s.n - done);
            jinja_put_text(r, &t, s.data + done, step);
            done += step;
        }
    }
    jinja_put_text(r, &t, s.data + done, s.n - done);
    return jinja_taken(r, &t);
}

/* Python's str.splitlines. */
struct value jinja_split_lines(struct run *r, struct span s, bool keep)
{
    struct value v = jinja_list_new(r, V_LIST);
    size_t from = 0;
    for (size_t i = 0, size; i < s.n && !r->rc;) {
        utf8proc_int32_t c = point_at(s.data + i, s.n - i, &size);
        bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (c == '\r' && i + 1 < s.n && s.data[i + 1] == '\n')
            size = 2;
        if (ends) {
            jinja_list_add(r, v.list, of_span((struct span){s.data + from, (keep ? i + size : i) - from}));
            from = i + size;
        }
        i += size;
    }
    if (from < s.n && !r->rc)
        jinja_list_add(r, v.list, of_span((struct span){s.data + from, s.n - from}));
    return v;
}

struct value jinja_escaped(struct run *r, struct span s)
{
    struct text t = {0};
    for (size_t i = 0; i < s.n && !r->rc; i++) {
        const char *as = s.data[i] == '&'    ? "&amp;"
                         : s.data[i] == '<'  ? "&lt;"
                         : s.data[i] == '>'  ? "&gt;"
                         : s.data[i] == '"'  ? "&#34;"
                         : s.data[i] == '\'' ? "&#39;"
                                             : NULL;
        jinja_put_text(r, &t, as ? as : s.data + i, as ? strlen(as) : 1);
    }
    return jinja_taken(r, &t);
}
