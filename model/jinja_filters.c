/* jinja_filters.c: filters: a table of names, parameters and functions. Arguments are sorted into parameters before a filter
 * sees them, so a surplus or misspelt one is refused in one place.
 *
 * tojson is Hugging Face's (json.dumps, no HTML escapes), the others are Jinja's: sort, unique, min, max and dictsort do not
 * tell cases apart unless told to; default takes undefined values alone unless its second argument is true. */
#include "model/jinja_parts.h"
#include "model/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One call: the arguments by parameter. */
struct filter_call {
    struct value v;
    struct value p[MAX_PARAMETERS];
    bool given[MAX_PARAMETERS];
    const struct args *args;
};
struct filter {
    const char *name;
    struct value (*run)(struct run *, struct filter_call *);
    const char *parameters[MAX_PARAMETERS];
    bool takes_safe; /* knows what to do with text marked safe */
};

/* What one parameter or another says of an item: its attribute "a.b", and lower case unless `cased`. */
static struct value attribute_of(struct run *r, struct value item, struct value path)
{
    struct span s = text_of(path);
    if (path.kind == V_INT)
        return jinja_get_item(r, item, path);
    if (path.kind != V_STRING)
        return path.kind == V_NONE ? item : jinja_fail(r, "an attribute wants a name");
    for (bool more = true; more && !r->rc;) {
        const char *dot = s.n ? memchr(s.data, '.', s.n) : NULL;
        struct span name = {s.data, dot ? (size_t)(dot - s.data) : s.n};
        if (name.n && name.data[0] >= '0' && name.data[0] <= '9')
            return jinja_fail(r, "attributes by number within a path are not known");
        item = jinja_get_item(r, item, of_span(name));
        more = dot != NULL;
        if (more)
            s = (struct span){dot + 1, s.n - name.n - 1};
    }
    return item;
}

static struct value key_of(struct run *r, struct value item, struct value path, bool cased)
{
    if (path.kind == V_STRING && path.n && memchr(path.s, ',', path.n))
        return jinja_fail(r, "several attributes at once are not known");
    struct value key = attribute_of(r, item, path);
    return key.kind == V_STRING && !cased ? jinja_lettered(r, text_of(key), LOWER) : key;
}

static struct value filter_trim(struct run *r, struct filter_call *c)
{
    struct span s = jinja_str(r, c->v), chars;
    jinja_spend(r, s.n / 16);
    if (c->p[0].kind != V_NONE && c->p[0].kind != V_STRING)
        return jinja_fail(r, "trim wants a string of characters");
    chars = text_of(c->p[0]);
    struct value v = of_span(jinja_stripped(s, c->p[0].kind == V_STRING ? &chars : NULL, true, true));
    v.safe = c->v.safe;
    return v;
}

static struct value filter_lower(struct run *r, struct filter_call *c)
{
    return jinja_lettered(r, jinja_str(r, c->v), LOWER);
}

static struct value filter_upper(struct run *r, struct filter_call *c)
{
    return jinja_lettered(r, jinja_str(r, c->v), UPPER);
}

static struct value filter_capitalize(struct run *r, struct filter_call *c)
{
    return jinja_lettered(r, jinja_str(r, c->v), CAPITAL);
}

static struct value filter_title(struct run *r, struct filter_call *c)
{
    return jinja_lettered(r, jinja_str(r, c->v), TITLE_FILTER);
}

static struct value filter_string(struct run *r, struct filter_call *c)
{
    struct value v = of_span(jinja_str(r, c->v));
    v.safe = c->v.safe;
    return v;
}

static struct value filter_safe(struct run *r, struct filter_call *c)
{
    struct value v = of_span(jinja_str(r, c->v));
    v.safe = true;
    return v;
}

static struct value filter_length(struct run *r, struct filter_call *c)
{
    return of_int(jinja_length_of(r, c->v));
}

static struct value filter_default(struct run *r, struct filter_call *c)
{
    (void)r;
    bool missing = c->v.kind == V_UNDEFINED || (c->given[1] && jinja_truth(c->p[1]) && !jinja_truth(c->v));
    return !missing ? c->v : c->given[0] ? c->p[0] : of_span(SPAN(""));
}

static struct value filter_tojson(struct run *r, struct filter_call *c)
{
    struct json_style style = {NULL, SPAN(", "), SPAN(": "), c->given[0] && jinja_truth(c->p[0]),
                               c->given[3] && jinja_truth(c->p[3])};
    struct value indent = c->p[1];
    char spaces[65];
    if (indent.kind == V_INT || indent.kind == V_BOOL) {
        int64_t n = as_int(indent) < 0 ? 0 : as_int(indent);
        if (n > 64)
            return jinja_fail(r, "tojson indents by at most 64");
        memset(spaces, ' ', sizeof spaces);
        spaces[n] = 0;
        style.indent = spaces;
        style.item = SPAN(",");
    } else if (indent.kind != V_NONE) {
        return jinja_fail(r, "tojson wants an integer to indent by");
    }
    if (c->p[2].kind != V_NONE) {
        struct list *l = c->p[2].kind == V_LIST || c->p[2].kind == V_TUPLE ? c->p[2].list : NULL;
        if (!l || l->n != 2 || l->items[0].kind != V_STRING || l->items[1].kind != V_STRING)
            return jinja_fail(r, "tojson wants two strings as separators");
        style.item = text_of(l->items[0]);
        style.key = text_of(l->items[1]);
    }
    struct text t = {0};
    jinja_put_json(r, &t, c->v, &style, 0);
    return jinja_taken(r, &t);
}

static struct value filter_join(struct run *r, struct filter_call *c)
{
    struct text t = {0};
    struct span between = c->given[0] ? jinja_str(r, c->p[0]) : SPAN("");
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && jinja_spend(r, 1); i++) {
        struct span s = jinja_str(r, attribute_of(r, l->items[i], c->p[1]));
        if (i)
            jinja_put_text(r, &t, between.data, between.n);
        jinja_put_text(r, &t, s.data, s.n);
    }
    return jinja_taken(r, &t);
}

static struct value filter_first(struct run *r, struct filter_call *c)
{
    if (c->v.kind == V_ITER)
        return c->v.list->n ? c->v.list->items[0] : undefined(SPAN("the first item"));
    struct list *l = jinja_walk(r, c->v);
    return l->n && !r->rc ? l->items[0] : undefined(SPAN("the first item"));
}

static struct value filter_last(struct run *r, struct filter_call *c)
{
    if (c->v.kind == V_ITER)
        return jinja_fail(r, "the last item of an iterator is not known: make it a list");
    struct list *l = jinja_walk(r, c->v);
    return l->n && !r->rc ? l->items[l->n - 1] : undefined(SPAN("the last item"));
}

static struct value filter_list(struct run *r, struct filter_call *c)
{
    struct value out = jinja_list_new(r, V_LIST);
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        jinja_list_add(r, out.list, l->items[i]);
    return out;
}

static struct value filter_replace(struct run *r, struct filter_call *c)
{
    if (!c->given[0] || !c->given[1] || (c->p[2].kind != V_NONE && c->p[2].kind != V_INT))
        return jinja_fail(r, "replace wants two strings and perhaps a count");
    return jinja_replaced(r, jinja_str(r, c->v), jinja_str(r, c->p[0]), jinja_str(r, c->p[1]),
                          c->p[2].kind == V_INT ? c->p[2].i : -1);
}

static struct value filter_items(struct run *r, struct filter_call *c)
{
    struct value out = jinja_list_new(r, V_ITER);
    if (c->v.kind == V_UNDEFINED)
        return out;
    if (c->v.kind != V_DICT)
        return jinja_fail(r, "%s has no items: a mapping is wanted", jinja_kind_name(c->v));
    for (size_t i = 0; i < c->v.dict->n && !r->rc; i++) {
        struct value both = jinja_pair(r, c->v.dict->keys[i], c->v.dict->values[i]);
        if (!r->rc)
            jinja_list_add(r, out.list, both);
    }
    return out;
}

/* Behind the first `from` arguments: those of the test or filter that is named there. */
static struct args rest_of(const struct args *a, int from)
{
    return (struct args){a->v + from, a->names + from, a->n - from};
}

/* select, reject, selectattr, rejectattr. */
static struct value chosen(struct run *r, struct filter_call *c, bool by_attribute, bool wanted)
{
    const struct args *a = c->args;
    struct value out = jinja_list_new(r, V_ITER);
    int test = by_attribute;
    if (!jinja_truth(c->v)) /* of none, even */
        return out;
    if (a->n < by_attribute || (a->n > test && a->v[test].kind != V_STRING))
        return jinja_fail(r, "the name of %s is wanted", a->n < by_attribute ? "an attribute" : "a test");
    struct args rest = rest_of(a, a->n > test ? test + 1 : a->n);
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && jinja_spend(r, 1); i++) {
        struct value v = by_attribute ? attribute_of(r, l->items[i], a->v[0]) : l->items[i];
        bool holds = a->n > test ? jinja_call_test(r, text_of(a->v[test]), v, &rest) : jinja_truth(v);
        if (holds == wanted && !r->rc)
            jinja_list_add(r, out.list, l->items[i]);
    }
    return out;
}

static struct value filter_select(struct run *r, struct filter_call *c)
{
    return chosen(r, c, false, true);
}

static struct value filter_reject(struct run *r, struct filter_call *c)
{
    return chosen(r, c, false, false);
}

static struct value filter_selectattr(struct run *r, struct filter_call *c)
{
    return chosen(r, c, true, true);
}

static struct value filter_rejectattr(struct run *r, struct filter_call *c)
{
    return chosen(r, c, true, false);
}

/* map("filter", arguments...) or map(attribute="a.b", default=x). */
static struct value filter_map(struct run *r, struct filter_call *c)
{
    const struct args *a = c->args;
    struct value out = jinja_list_new(r, V_ITER), path = of_none(), other = undefined(SPAN(""));
    bool by_attribute = a->n > 0 && a->names[0].n > 0;
    if (!jinja_truth(c->v))
        return out;
    for (int i = 0; i < a->n && by_attribute; i++) {
        if (span_is(a->names[i], "attribute"))
            path = a->v[i];
        else if (span_is(a->names[i], "default"))
            other = a->v[i];
        else
            return jinja_fail(r, "map does not take '%.*s'", SHOWN(a->names[i]));
    }
    if (by_attribute ? path.kind == V_NONE : !a->n || a->v[0].kind != V_STRING)
        return jinja_fail(r, "map wants a filter's name, or an attribute");
    struct args rest = by_attribute ? (struct args){0} : rest_of(a, 1);
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && jinja_spend(r, 1); i++) {
        struct value v =
            by_attribute ? attribute_of(r, l->items[i], path) : jinja_call_filter(r, text_of(a->v[0]), l->items[i], &rest);
        v = by_attribute && v.kind == V_UNDEFINED && other.kind != V_UNDEFINED ? other : v;
        if (!r->rc)
            jinja_list_add(r, out.list, v);
    }
    return out;
}

/* Items with the keys that they are sorted by. */
struct keyed {
    struct value key, item;
};

/* Stable: runs of 2, 4, 8... are merged. */
static void sort_keyed(struct run *r, struct keyed *k, struct keyed *spare, size_t n, bool reverse)
{
    for (size_t width = 1; width < n && !r->rc; width *= 2)
        for (size_t from = 0; from < n && !r->rc; from += 2 * width) {
            size_t mid = from + width < n ? from + width : n, end = mid + width < n ? mid + width : n, a = from, b = mid;
            for (size_t i = from; i < end && !r->rc; i++) {
                int order = a < mid && b < end ? jinja_values_order(r, k[a].key, k[b].key) : 0;
                bool left = a < mid && (b >= end || (reverse ? order >= 0 : order <= 0));
                spare[i] = left ? k[a++] : k[b++];
            }
            for (size_t i = from; i < end && !r->rc; i++)
                k[i] = spare[i];
        }
}

static struct value sorted(struct run *r, const struct list *l, struct value path, bool cased, bool reverse)
{
    struct value out = jinja_list_new(r, V_LIST);
    struct keyed *k = jinja_run_alloc(r, (2 * l->n + 1) * sizeof *k);
    for (size_t i = 0; i < l->n && k && !r->rc; i++)
        k[i] = (struct keyed){key_of(r, l->items[i], path, cased), l->items[i]};
    if (r->rc)
        return out;
    sort_keyed(r, k, k + l->n, l->n, reverse);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        jinja_list_add(r, out.list, k[i].item);
    return out;
}

static struct value filter_sort(struct run *r, struct filter_call *c)
{
    return sorted(r, jinja_walk(r, c->v), c->p[2], c->given[1] && jinja_truth(c->p[1]), c->given[0] && jinja_truth(c->p[0]));
}

static struct value filter_dictsort(struct run *r, struct filter_call *c)
{
    int64_t by = 0;
    if (c->v.kind != V_DICT)
        return jinja_fail(r, "dictsort wants a mapping");
    if (c->given[1] && (c->p[1].kind != V_STRING || !(span_is(text_of(c->p[1]), "key") || span_is(text_of(c->p[1]), "value"))))
        return jinja_fail(r, "dictsort sorts by key or by value");
    if (c->given[1])
        by = c->p[1].s[0] == 'v';
    struct value items = filter_items(r, c);
    return sorted(r, items.list, of_int(by), c->given[0] && jinja_truth(c->p[0]), c->given[2] && jinja_truth(c->p[2]));
}

static struct value filter_unique(struct run *r, struct filter_call *c)
{
    struct value out = jinja_list_new(r, V_ITER), keys = jinja_list_new(r, V_LIST);
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        struct value key = key_of(r, l->items[i], c->p[1], c->given[0] && jinja_truth(c->p[0]));
        bool there = false;
        for (size_t k = 0; k < keys.list->n && !there && !r->rc; k++)
            there = jinja_values_equal(r, keys.list->items[k], key);
        if (there || r->rc)
            continue;
        jinja_list_add(r, keys.list, key);
        jinja_list_add(r, out.list, l->items[i]);
    }
    return out;
}

static struct value extreme(struct run *r, struct filter_call *c, int sign)
{
    struct list *l = jinja_walk(r, c->v);
    bool cased = c->given[0] && jinja_truth(c->p[0]);
    if (!l->n)
        return undefined(SPAN("an item of nothing"));
    struct value best = l->items[0], best_key = key_of(r, best, c->p[1], cased);
    for (size_t i = 1; i < l->n && !r->rc; i++) {
        struct value key = key_of(r, l->items[i], c->p[1], cased);
        if (!r->rc && jinja_values_order(r, key, best_key) * sign > 0) {
            best = l->items[i];
            best_key = key;
        }
    }
    return best;
}

static struct value filter_min(struct run *r, struct filter_call *c)
{
    return extreme(r, c, -1);
}

static struct value filter_max(struct run *r, struct filter_call *c)
{
    return extreme(r, c, 1);
}

static struct value filter_sum(struct run *r, struct filter_call *c)
{
    struct value v = c->given[1] ? c->p[1] : of_int(0);
    struct list *l = jinja_walk(r, c->v);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        v = jinja_arithmetic(r, O_ADD, v, attribute_of(r, l->items[i], c->p[0]));
    return v;
}

static struct value filter_reverse(struct run *r, struct filter_call *c)
{
    struct list *l = jinja_walk(r, c->v);
    struct value out = jinja_list_new(r, V_ITER);
    struct text t = {0};
    for (size_t i = l->n; i-- > 0 && !r->rc;) {
        if (c->v.kind == V_STRING)
            jinja_put_text(r, &t, l->items[i].s, l->items[i].n);
        else
            jinja_list_add(r, out.list, l->items[i]);
    }
    return c->v.kind == V_STRING ? jinja_taken(r, &t) : out;
}

static struct value filter_indent(struct run *r, struct filter_call *c)
{
    bool first = c->given[1] && jinja_truth(c->p[1]), blank = c->given[2] && jinja_truth(c->p[2]);
    struct span s = jinja_str(r, c->v), by = SPAN("    ");
    if (c->given[0] && c->p[0].kind == V_STRING)
        by = text_of(c->p[0]);
    else if (c->given[0] && c->p[0].kind == V_INT)
        by = text_of(jinja_arithmetic(r, O_MUL, of_span(SPAN(" ")), c->p[0]));
    else if (c->given[0])
        return jinja_fail(r, "indent wants an integer or a string");
    struct text t = {0};
    struct value lines = jinja_split_lines(r, text_of(jinja_joined(r, s, SPAN("\n"))), false);
    if (first)
        jinja_put_text(r, &t, by.data, by.n);
    for (size_t i = 0; i < lines.list->n && !r->rc; i++) {
        struct value line = lines.list->items[i];
        if (i)
            jinja_put_text(r, &t, "\n", 1);
        if (i && (line.n || blank))
            jinja_put_text(r, &t, by.data, by.n);
        jinja_put_text(r, &t, line.s, line.n);
    }
    return jinja_taken(r, &t);
}

/* A string that is wholly a number; blanks around it are taken. */
static bool parsed(struct value v, int64_t *i, double *f)
{
    struct span s = jinja_stripped(text_of(v), NULL, true, true);
    char buffer[64], *end;
    if (!s.n || s.n >= sizeof buffer)
        return false;
    memcpy(buffer, s.data, s.n);
    buffer[s.n] = 0;
    if (strspn(buffer, i ? "0123456789+-" : "0123456789+-.eE") != s.n)
        return false;
    errno = 0;
    if (i)
        *i = strtoll(buffer, &end, 10);
    else
        *f = strtod(buffer, &end);
    return end == buffer + s.n && !(i && errno);
}

static struct value filter_int(struct run *r, struct filter_call *c)
{
    int64_t i = 0;
    double f = 0;
    if (c->v.kind == V_UNDEFINED)
        return jinja_fail(r, "'%.*s' is not defined, so it is no integer", SHOWN(text_of(c->v)));
    if (c->v.kind == V_INT || c->v.kind == V_BOOL)
        return of_int(as_int(c->v));
    if (c->v.kind == V_STRING && parsed(c->v, &i, NULL))
        return of_int(i);
    if (c->v.kind == V_FLOAT)
        f = c->v.f;
    else if (c->v.kind != V_STRING || !parsed(c->v, NULL, &f))
        return c->given[0] ? c->p[0] : of_int(0);
    if (!(f < 9.2e18 && f > -9.2e18))
        return jinja_fail(r, "an integer of more than 64 bits");
    return of_int((int64_t)f);
}

static struct value filter_float(struct run *r, struct filter_call *c)
{
    double f = 0;
    if (c->v.kind == V_UNDEFINED)
        return jinja_fail(r, "'%.*s' is not defined, so it is no number", SHOWN(text_of(c->v)));
    if (is_number(c->v))
        return of_float(as_double(c->v));
    if (c->v.kind == V_STRING && parsed(c->v, NULL, &f))
        return of_float(f);
    return c->given[0] ? c->p[0] : of_float(0);
}

static struct value filter_abs(struct run *r, struct filter_call *c)
{
    if (!is_number(c->v))
        return jinja_fail(r, "%s has no absolute value", jinja_kind_name(c->v));
    if (c->v.kind == V_FLOAT)
        return of_float(fabs(c->v.f));
    return as_int(c->v) < 0 ? jinja_arithmetic(r, O_SUB, of_int(0), c->v) : of_int(as_int(c->v));
}

static struct value filter_round(struct run *r, struct filter_call *c)
{
    char buffer[400];
    int64_t places = c->given[0] && c->p[0].kind == V_INT ? c->p[0].i : 0;
    if (!is_number(c->v) || c->given[1] || places < 0 || places > 30 || (c->given[0] && c->p[0].kind != V_INT))
        return jinja_fail(r, "round to these places, or in this way, is not known");
    if (c->v.kind != V_FLOAT)
        return of_int(as_int(c->v));
    snprintf(buffer, sizeof buffer, "%.*f", (int)places, c->v.f);
    return of_float(strtod(buffer, NULL));
}

static const struct filter filters[] = {
    {"trim", filter_trim, {"chars"}, true},
    {"lower", filter_lower, {NULL}, false},
    {"upper", filter_upper, {NULL}, false},
    {"capitalize", filter_capitalize, {NULL}, false},
    {"title", filter_title, {NULL}, false},
    {"string", filter_string, {NULL}, true},
    {"safe", filter_safe, {NULL}, true},
    {"length", filter_length, {NULL}, true},
    {"count", filter_length, {NULL}, true},
    {"default", filter_default, {"default_value", "boolean"}, true},
    {"d", filter_default, {"default_value", "boolean"}, true},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, true},
    {"join", filter_join, {"d", "attribute"}, false},
    {"first", filter_first, {NULL}, false},
    {"last", filter_last, {NULL}, false},
    {"list", filter_list, {NULL}, false},
    {"replace", filter_replace, {"old", "new", "count"}, false},
    {"items", filter_items, {NULL}, false},
    {"select", filter_select, {"*"}, false},
    {"reject", filter_reject, {"*"}, false},
    {"selectattr", filter_selectattr, {"*"}, false},
    {"rejectattr", filter_rejectattr, {"*"}, false},
    {"map", filter_map, {"*"}, false},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, false},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, false},
    {"unique", filter_unique, {"case_sensitive", "attribute"}, false},
    {"min", filter_min, {"case_sensitive", "attribute"}, false},
    {"max", filter_max, {"case_sensitive", "attribute"}, false},
    {"sum", filter_sum, {"attribute", "start"}, false},
    {"reverse", filter_reverse, {NULL}, false},
    {"indent", filter_indent, {"width", "first", "blank"}, false},
    {"int", filter_int, {"default"}, false},
    {"float", filter_float, {"default"}, false},
    {"abs", filter_abs, {NULL}, false},
    {"round", filter_round, {"precision", "method"}, false},
};

static const struct filter *filter_named(struct span name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (span_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}

bool jinja_is_filter(struct span name)
{
    return filter_named(name) != NULL;
}

struct value jinja_call_filter(struct run *r, struct span name, struct value v, const struct args *args)
{
    const struct filter *f = filter_named(name);
    struct filter_call c = {.v = v, .args = args};
    int n = 0;
    if (!f)
        return jinja_fail(r, "the filter '%.*s' is not known", SHOWN(name));
    if (v.safe && !f->takes_safe)
        return jinja_fail(r, "the filter '%s' on text marked safe is not known", f->name);
    while (n < MAX_PARAMETERS && f->parameters[n])
        n++;
    if (!r->rc && !(n && f->parameters[0][0] == '*') && !jinja_bind_args(r, f->name, args, f->parameters, n, c.p, c.given))
        return v;
    return r->rc || !jinja_spend(r, 1) ? v : f->run(r, &c);
}
