/* jinja_value.c: the values of templates: lists, mappings in the order of their making, truth, equality, order, and what
 * Python's len and iter say of them. As Python: 1, 1.0 and true are equal and the same key; strings order by code point, which
 * is the order of their UTF-8 bytes.
 *
 * Mappings are searched in order: those of templates have a handful of keys, and each comparison is a step of the rendering, so
 * a hostile one ends like any other. A hash table lost: it would be slower for the handful. */
#include "model/jinja_parts.h"
#include "model/utf8.h"

const char *jinja_kind_name(struct value v)
{
    static const char *const names[] = {"an undefined value",
                                        "none",
                                        "a boolean",
                                        "an integer",
                                        "a float",
                                        "a string",
                                        "a list",
                                        "a tuple",
                                        "a view",
                                        "an iterator",
                                        "a mapping",
                                        "a namespace",
                                        "a macro",
                                        "a function",
                                        "a method",
                                        "the loop"};
    return names[v.kind];
}

bool jinja_truth(struct value v)
{
    switch (v.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STRING:
        return v.n > 0;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        return v.list && v.list->n > 0;
    case V_DICT:
        return v.dict && v.dict->n > 0;
    default:
        return true;
    }
}

struct value jinja_list_new(struct run *r, enum value_kind kind)
{
    static struct list nowhere;
    struct list *l = jinja_run_alloc(r, sizeof *l);
    if (!l)
        nowhere = (struct list){0};
    return (struct value){.kind = kind, .list = l ? l : &nowhere};
}

void jinja_list_add(struct run *r, struct list *l, struct value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct value *grown = cap < SIZE_MAX / sizeof *grown ? jinja_run_alloc(r, cap * sizeof *grown) : NULL;
        if (!grown)
            return;
        if (l->n)
            memcpy(grown, l->items, l->n * sizeof *grown);
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = v;
}

struct value jinja_pair(struct run *r, struct value a, struct value b)
{
    struct value v = jinja_list_new(r, V_TUPLE);
    if (!r->rc)
        jinja_list_add(r, v.list, a);
    if (!r->rc)
        jinja_list_add(r, v.list, b);
    return v;
}

struct value jinja_dict_new(struct run *r, enum value_kind kind)
{
    static struct dict nowhere;
    struct dict *d = jinja_run_alloc(r, sizeof *d);
    if (!d)
        nowhere = (struct dict){0};
    return (struct value){.kind = kind, .dict = d ? d : &nowhere};
}

static bool can_be_key(struct value v)
{
    return v.kind <= V_STRING || v.kind == V_TUPLE;
}

const struct value *jinja_dict_find(struct run *r, const struct dict *d, struct value key)
{
    if (can_be_key(key))
        for (size_t i = 0; i < d->n && jinja_spend(r, 1); i++)
            if (jinja_values_equal(r, d->keys[i], key))
                return &d->values[i];
    return NULL;
}

void jinja_dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
    if (!can_be_key(key)) {
        jinja_fail(r, "%s cannot be a key", jinja_kind_name(key));
        return;
    }
    struct value *there = (struct value *)(uintptr_t)jinja_dict_find(r, d, key);
    if (there) {
        *there = v;
        return;
    }
    if (d->n == d->cap && !r->rc) {
        size_t cap = d->cap ? 2 * d->cap : 8;
        struct value *grown = cap < SIZE_MAX / 2 / sizeof *grown ? jinja_run_alloc(r, 2 * cap * sizeof *grown) : NULL;
        if (!grown)
            return;
        if (d->n) {
            memcpy(grown, d->keys, d->n * sizeof *grown);
            memcpy(grown + cap, d->values, d->n * sizeof *grown);
        }
        d->keys = grown;
        d->values = grown + cap;
        d->cap = cap;
    }
    if (r->rc)
        return;
    d->keys[d->n] = key;
    d->values[d->n++] = v;
}

static bool lists_equal(struct run *r, const struct list *a, const struct list *b)
{
    if (a->n != b->n || !jinja_enter(r))
        return false;
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++)
        same = jinja_values_equal(r, a->items[i], b->items[i]);
    leave(r);
    return same;
}

static bool dicts_equal(struct run *r, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n || !jinja_enter(r))
        return false;
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++) {
        const struct value *v = jinja_dict_find(r, b, a->keys[i]);
        same = v && jinja_values_equal(r, a->values[i], *v);
    }
    leave(r);
    return same;
}

bool jinja_values_equal(struct run *r, struct value a, struct value b)
{
    if (!jinja_spend(r, 1))
        return false;
    if (is_number(a) && is_number(b)) {
        if (a.kind != V_FLOAT && b.kind != V_FLOAT)
            return as_int(a) == as_int(b);
        /* An integer beyond 2^53 equals a float only if it is one exactly. */
        double x = as_double(a), y = as_double(b);
        if (x != y || (a.kind == V_FLOAT && b.kind == V_FLOAT))
            return x == y;
        return x < 9.2e18 && x > -9.2e18 && (int64_t)x == as_int(a.kind == V_FLOAT ? b : a);
    }
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_STRING:
        return a.n == b.n && jinja_spend(r, a.n / 64) && (!a.n || !memcmp(a.s, b.s, a.n));
    case V_LIST:
    case V_TUPLE:
        return a.list == b.list || lists_equal(r, a.list, b.list);
    case V_DICT:
        return a.dict == b.dict || dicts_equal(r, a.dict, b.dict);
    case V_NAMESPACE:
    case V_MACRO:
        return a.dict == b.dict;
    default:
        jinja_fail(r, "%s has no equality that is known", jinja_kind_name(a));
        return false;
    }
}

static int lists_order(struct run *r, const struct list *a, const struct list *b)
{
    int order = 0;
    if (!jinja_enter(r))
        return 0;
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && jinja_values_equal(r, a->items[i], b->items[i]))
        i++;
    if (i < n && !r->rc)
        order = jinja_values_order(r, a->items[i], b->items[i]);
    else
        order = (a->n > b->n) - (a->n < b->n);
    leave(r);
    return order;
}

int jinja_values_order(struct run *r, struct value a, struct value b)
{
    if (!jinja_spend(r, 1))
        return 0;
    if (is_number(a) && is_number(b)) {
        if (a.kind != V_FLOAT && b.kind != V_FLOAT)
            return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
        double x = as_double(a), y = as_double(b);
        if (x != x || y != y)
            jinja_fail(r, "not a number has no order");
        return (x > y) - (x < y);
    }
    if (a.kind == V_STRING && b.kind == V_STRING) {
        size_t n = a.n < b.n ? a.n : b.n;
        int c = n && jinja_spend(r, n / 64) ? memcmp(a.s, b.s, n) : 0;
        return c ? c : (a.n > b.n) - (a.n < b.n);
    }
    if ((a.kind == V_LIST || a.kind == V_TUPLE) && a.kind == b.kind)
        return lists_order(r, a.list, b.list);
    jinja_fail(r, "%s and %s have no order", jinja_kind_name(a), jinja_kind_name(b));
    return 0;
}

struct list *jinja_walk(struct run *r, struct value v)
{
    struct value out = jinja_list_new(r, V_LIST);
    if (r->rc || v.kind == V_UNDEFINED)
        return out.list;
    if (v.kind == V_ITER) {
        *out.list = *v.list;
        *v.list = (struct list){0};
    } else if (is_list(v)) {
        return v.list;
    } else if (v.kind == V_DICT) {
        *out.list = (struct list){v.dict->keys, v.dict->n, v.dict->n};
    } else if (v.kind == V_STRING) {
        for (size_t i = 0, size; i < v.n && !r->rc; i += size) {
            size = utf8_step(v.s + i, v.n - i);
            jinja_list_add(r, out.list, of_span((struct span){v.s + i, size}));
        }
    } else {
        jinja_fail(r, "%s cannot be walked", jinja_kind_name(v));
    }
    return out.list;
}

int64_t jinja_length_of(struct run *r, struct value v)
{
    switch (v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STRING:
        jinja_spend(r, v.n / 64);
        return (int64_t)jinja_points(text_of(v));
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        return (int64_t)v.list->n;
    case V_DICT:
        return (int64_t)v.dict->n;
    default:
        jinja_fail(r, "%s has no length", jinja_kind_name(v));
        return 0;
    }
}

struct value jinja_from_json(struct run *r, const json_t *j)
{
    struct value v = of_none();
    const char *key;
    json_t *item;
    size_t i;
    if (!jinja_spend(r, 1) || !jinja_enter(r))
        return v;
    switch (json_typeof(j)) {
    case JSON_STRING:
        v = jinja_string_new(r, json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        v = of_int(json_integer_value(j));
        break;
    case JSON_REAL:
        v = of_float(json_real_value(j));
        break;
    case JSON_TRUE:
        v = of_bool(true);
        break;
    case JSON_FALSE:
        v = of_bool(false);
        break;
    case JSON_NULL:
        break;
    case JSON_ARRAY:
        v = jinja_list_new(r, V_LIST);
        json_array_foreach(j, i, item)
        {
            struct value one = jinja_from_json(r, item);
            if (r->rc)
                break;
            jinja_list_add(r, v.list, one);
        }
        break;
    case JSON_OBJECT:
        v = jinja_dict_new(r, V_DICT);
        json_object_foreach((json_t *)(uintptr_t)j, key, item)
        {
            struct value name = jinja_string_new(r, key, strlen(key)), one = jinja_from_json(r, item);
            if (r->rc)
                break;
            jinja_dict_set(r, v.dict, name, one);
        }
        break;
    }
    leave(r);
    return v;
}
