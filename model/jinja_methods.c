/* jinja_methods.c: what stands behind a dot or in brackets: items of mappings and lists, and methods.
 *
 * x.name asks Python's attributes first and x["name"] the items first, so a mapping's `items` is its method behind a dot, even
 * where it has such a key. Names of Python's methods are therefore known beyond those that can be called: asking whether one is
 * there must be answered as Python does. Methods that change a list or a mapping are not there: Hugging Face's sandbox hides
 * them. Names that begin with "__" are refused. */
#include "model/jinja_parts.h"
#include "model/utf8.h"

static bool in_words(const char *words, struct span name)
{
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == name.n && !memcmp(w, name.data, n))
            return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

/* Python's attributes of a value, and those of them that the sandbox hides. */
static const char *attributes_of(struct value v, const char **hidden)
{
    *hidden = "";
    switch (v.kind) {
    case V_STRING:
        return "capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha "
               "isascii "
               "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
               "maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
               "splitlines startswith strip swapcase title translate upper zfill";
    case V_LIST:
        *hidden = "append clear extend insert pop remove reverse sort";
        return "append clear copy count extend index insert pop remove reverse sort";
    case V_TUPLE:
        return "count index";
    case V_DICT:
        *hidden = "clear pop popitem setdefault update";
        return "clear copy fromkeys get items keys pop popitem setdefault update values";
    case V_INT:
    case V_BOOL:
        return "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes";
    case V_FLOAT:
        return "as_integer_ratio conjugate fromhex hex imag is_integer real";
    case V_VIEW:
        return "count index isdisjoint mapping start step stop";
    case V_ITER:
        return "close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw";
    default:
        return "";
    }
}

static bool python_attribute(struct run *r, struct value of, struct span name, struct value *out)
{
    const char *hidden, *known = attributes_of(of, &hidden);
    if (name.n >= 2 && name.data[0] == '_' && name.data[1] == '_') {
        *out = jinja_fail(r, "names that begin with __ are not known");
        return true;
    }
    if (!in_words(known, name))
        return false;
    *out = undefined(name);
    if (in_words(hidden, name))
        return true;
    struct method *m = jinja_run_alloc(r, sizeof *m);
    if (m) {
        *m = (struct method){name, of};
        *out = (struct value){.kind = V_METHOD, .method = m};
    }
    return true;
}

static struct value loop_attribute(struct run *r, struct value of, struct span name)
{
    const struct loop *l = of.loop;
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    static const char *const names[] = {"index", "index0", "revindex", "revindex0", "length",
                                        "first", "last",   "depth",    "depth0"};
    const struct value values[] = {of_int(i + 1),   of_int(i),           of_int(n - i), of_int(n - i - 1), of_int(n),
                                   of_bool(i == 0), of_bool(i == n - 1), of_int(1),     of_int(0)};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (span_is(name, names[k]))
            return values[k];
    if (span_is(name, "previtem"))
        return i > 0 ? l->items->items[i - 1] : undefined(SPAN("loop.previtem"));
    if (span_is(name, "nextitem"))
        return i + 1 < n ? l->items->items[i + 1] : undefined(SPAN("loop.nextitem"));
    if (span_is(name, "cycle")) {
        struct method *m = jinja_run_alloc(r, sizeof *m);
        if (m)
            *m = (struct method){name, of};
        return m ? (struct value){.kind = V_METHOD, .method = m} : of_none();
    }
    return jinja_fail(r, "loop.%.*s is not known", SHOWN(name));
}

struct value jinja_get_attr(struct run *r, struct value of, struct span name)
{
    struct value v;
    if (r->rc)
        return of;
    switch (of.kind) {
    case V_UNDEFINED:
        return jinja_fail(r, "'%.*s' is not defined, so it has no '%.*s'", SHOWN(text_of(of)), SHOWN(name));
    case V_LOOP:
        return loop_attribute(r, of, name);
    case V_MACRO:
    case V_BUILTIN:
    case V_METHOD:
        return jinja_fail(r, "%s has no '%.*s' that is known", jinja_kind_name(of), SHOWN(name));
    default:
        break;
    }
    if (of.kind != V_NAMESPACE && python_attribute(r, of, name, &v))
        return v;
    if (of.kind == V_DICT || of.kind == V_NAMESPACE) {
        const struct value *found = jinja_dict_find(r, of.dict, of_span(name));
        if (found)
            return *found;
    }
    return undefined(name);
}

struct value jinja_get_item(struct run *r, struct value of, struct value key)
{
    struct value v;
    if (r->rc)
        return of;
    if (of.kind == V_UNDEFINED)
        return jinja_fail(r, "'%.*s' is not defined, so it has no items", SHOWN(text_of(of)));
    if (of.kind > V_TUPLE && of.kind != V_DICT)
        return jinja_fail(r, "%s is not to be subscripted", jinja_kind_name(of));
    if (of.kind == V_DICT) {
        const struct value *found = jinja_dict_find(r, of.dict, key);
        if (found || r->rc)
            return found ? *found : key;
    } else if ((of.kind == V_LIST || of.kind == V_TUPLE || of.kind == V_STRING) && (key.kind == V_INT || key.kind == V_BOOL)) {
        int64_t n = jinja_length_of(r, of), i = as_int(key);
        i = i < 0 && i >= -n ? i + n : i;
        if (i < 0 || i >= n)
            return undefined(SPAN("an item beyond the end"));
        if (of.kind != V_STRING)
            return of.list->items[i];
        size_t at = jinja_point_offset(text_of(of), (size_t)i);
        return of_span((struct span){of.s + at, utf8_step(of.s + at, of.n - at)});
    }
    if (key.kind == V_STRING && python_attribute(r, of, text_of(key), &v))
        return v;
    return key.kind == V_STRING ? undefined(text_of(key)) : undefined(SPAN("an item"));
}

bool jinja_bind_args(struct run *r, const char *what, const struct args *in, const char *const *names, int n_names,
                     struct value *out, bool *given)
{
    for (int i = 0; i < n_names; i++) {
        out[i] = of_none();
        given[i] = false;
    }
    for (int i = 0; i < in->n && !r->rc; i++) {
        int k = i;
        if (in->names[i].n)
            for (k = 0; k < n_names && !span_is(in->names[i], names[k]);)
                k++;
        if (k >= n_names || given[k]) {
            jinja_fail(r, "'%s' does not take these arguments", what);
            break;
        }
        out[k] = in->v[i];
        given[k] = true;
    }
    return !r->rc;
}

static bool want_string(struct run *r, struct value v)
{
    if (!r->rc && v.kind != V_STRING)
        jinja_fail(r, "%s where a string is wanted", jinja_kind_name(v));
    return !r->rc;
}

static struct value string_strip(struct run *r, struct span name, struct span s, const struct args *a)
{
    struct span chars, *only = NULL;
    if (a->n > 1 || (a->n && a->v[0].kind != V_NONE && !want_string(r, a->v[0])))
        return jinja_fail(r, "'%.*s' wants no argument or a string", SHOWN(name));
    if (a->n && a->v[0].kind == V_STRING) {
        chars = text_of(a->v[0]);
        only = &chars;
    }
    jinja_spend(r, s.n / 16);
    return of_span(jinja_stripped(s, only, !span_is(name, "rstrip"), !span_is(name, "lstrip")));
}

static bool matches(struct span s, struct value with, bool at_end)
{
    return with.n <= s.n && (!with.n || !memcmp(at_end ? s.data + s.n - with.n : s.data, with.s, with.n));
}

static struct value string_starts(struct run *r, struct span s, const struct args *a, bool at_end)
{
    if (a->n != 1)
        return jinja_fail(r, "startswith and endswith want one argument here");
    if (a->v[0].kind == V_TUPLE) {
        for (size_t i = 0; i < a->v[0].list->n && want_string(r, a->v[0].list->items[i]); i++)
            if (matches(s, a->v[0].list->items[i], at_end))
                return of_bool(true);
        return of_bool(false);
    }
    return want_string(r, a->v[0]) ? of_bool(matches(s, a->v[0], at_end)) : of_none();
}

/* split(): at runs of blanks. */
static void split_blanks(struct run *r, struct list *out, struct span s, int64_t most)
{
    s = jinja_stripped(s, NULL, true, false);
    while (s.n && !r->rc) {
        size_t n = 0;
        if (most >= 0 && (int64_t)out->n == most) {
            jinja_list_add(r, out, of_span(jinja_stripped(s, NULL, false, true)));
            return;
        }
        while (n < s.n && !utf8_blank(s.data + n, s.n - n))
            n += utf8_step(s.data + n, s.n - n);
        jinja_list_add(r, out, of_span((struct span){s.data, n}));
        s = jinja_stripped((struct span){s.data + n, s.n - n}, NULL, true, false);
    }
}

/* The last place of `what` in `in`. */
static const char *find_last(struct run *r, struct span in, struct span what)
{
    jinja_spend(r, in.n / 16);
    for (size_t i = in.n + 1; i-- > 0 && what.n <= in.n;)
        if (i + what.n <= in.n && !memcmp(in.data + i, what.data, what.n))
            return in.data + i;
    return NULL;
}

static struct value string_split(struct run *r, struct span s, const struct args *a, bool from_right)
{
    static const char *const names[] = {"sep", "maxsplit"};
    struct value v[2], out = jinja_list_new(r, V_LIST);
    bool given[2];
    if (!jinja_bind_args(r, "split", a, names, 2, v, given))
        return out;
    if (given[1] && v[1].kind != V_INT)
        return jinja_fail(r, "split wants an integer for maxsplit");
    int64_t most = given[1] ? v[1].i : -1;
    jinja_spend(r, s.n / 16);
    if (v[0].kind == V_NONE) {
        if (from_right && most >= 0)
            return jinja_fail(r, "rsplit at blanks with a limit is not known");
        split_blanks(r, out.list, s, most);
        return out;
    }
    if (!want_string(r, v[0]) || !v[0].n)
        return jinja_fail(r, "split wants a separator that is not empty");
    struct span sep = text_of(v[0]);
    while (!r->rc && (most < 0 || (int64_t)out.list->n < most)) {
        const char *at = from_right ? find_last(r, s, sep) : jinja_find_span(r, s, sep);
        if (!at)
            break;
        size_t n = (size_t)(at - s.data), behind = n + sep.n;
        if (from_right) {
            jinja_list_add(r, out.list, of_span((struct span){s.data + behind, s.n - behind}));
            s.n = n;
        } else {
            jinja_list_add(r, out.list, of_span((struct span){s.data, n}));
            s = (struct span){s.data + behind, s.n - behind};
        }
    }
    if (!r->rc)
        jinja_list_add(r, out.list, of_span(s));
    for (size_t i = 0, k = out.list->n; from_right && i + 1 < k; i++, k--) {
        struct value swap = out.list->items[i];
        out.list->items[i] = out.list->items[k - 1];
        out.list->items[k - 1] = swap;
    }
    return out;
}

static struct value string_replace(struct run *r, struct span s, const struct args *a)
{
    if (a->n < 2 || a->n > 3 || a->names[0].n || a->names[1].n)
        return jinja_fail(r, "replace wants two strings and perhaps a count");
    if (a->n == 3 && a->v[2].kind != V_INT)
        return jinja_fail(r, "replace wants an integer for its count");
    if (!want_string(r, a->v[0]) || !want_string(r, a->v[1]))
        return of_none();
    return jinja_replaced(r, s, text_of(a->v[0]), text_of(a->v[1]), a->n == 3 ? a->v[2].i : -1);
}

static struct value string_find(struct run *r, struct span name, struct span s, const struct args *a)
{
    if (a->n != 1 || !want_string(r, a->v[0]))
        return jinja_fail(r, "'%.*s' wants one string here", SHOWN(name));
    struct span what = text_of(a->v[0]);
    if (span_is(name, "count")) {
        int64_t n = 0;
        if (!what.n)
            return of_int((int64_t)jinja_points(s) + 1);
        for (const char *at; (at = jinja_find_span(r, s, what)); n++)
            s = (struct span){at + what.n, s.n - (size_t)(at + what.n - s.data)};
        return of_int(n);
    }
    const char *at = name.data[0] == 'r' ? find_last(r, s, what) : jinja_find_span(r, s, what);
    if (!at && (span_is(name, "index") || span_is(name, "rindex")))
        return jinja_fail(r, "the string that is looked for is not there");
    return of_int(at ? (int64_t)jinja_points((struct span){s.data, (size_t)(at - s.data)}) : -1);
}

static struct value string_is(struct run *r, struct span name, struct span s)
{
    bool upper = span_is(name, "isupper"), lower = span_is(name, "islower"), cased = false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z', digit = c >= '0' && c <= '9';
        if (c >= 0x80)
            return jinja_fail(r, "'%.*s' of letters beyond ASCII is not known", SHOWN(name));
        cased = cased || is_upper || is_lower;
        if (upper                      ? is_lower
            : lower                    ? is_upper
            : span_is(name, "isspace") ? !utf8_blank(s.data + i, 1)
            : span_is(name, "isalpha") ? !is_upper && !is_lower
            : span_is(name, "isalnum") ? !is_upper && !is_lower && !digit
                                       : !digit)
            return of_bool(false);
    }
    return of_bool(upper || lower ? cased : s.n > 0);
}

/* str.format with {} and {0} and {name}; formats behind a colon are refused. */
static struct value string_format(struct run *r, struct span s, const struct args *a)
{
    struct text t = {0};
    int next = 0;
    for (size_t i = 0; i < s.n && !r->rc; i++) {
        char c = s.data[i];
        if (c != '{' && c != '}') {
            jinja_put_text(r, &t, &c, 1);
            continue;
        }
        if (i + 1 < s.n && s.data[i + 1] == c) {
            jinja_put_text(r, &t, &c, 1);
            i++;
            continue;
        }
        size_t from = i + 1, end = from;
        while (end < s.n && s.data[end] != '}')
            end++;
        struct span field = {s.data + from, end - from};
        int k = 0;
        if (!field.n)
            k = next++;
        else if (field.n == 1 && field.data[0] >= '0' && field.data[0] <= '9')
            k = field.data[0] - '0';
        else
            while (k < a->n && !(a->names[k].n == field.n && !memcmp(a->names[k].data, field.data, field.n)))
                k++;
        if (c == '}' || end >= s.n || k >= a->n || (a->names[k].n && field.n < 1)) {
            jinja_fail(r, "a field of format that is not known or not given");
            break;
        }
        struct span v = jinja_str(r, a->v[k]);
        jinja_put_text(r, &t, v.data, v.n);
        i = end;
    }
    return jinja_taken(r, &t);
}

static struct value string_join(struct run *r, struct span s, const struct args *a)
{
    struct text t = {0};
    struct list *l = a->n == 1 ? jinja_walk(r, a->v[0]) : NULL;
    if (!l)
        return jinja_fail(r, "join wants one list");
    for (size_t i = 0; i < l->n && want_string(r, l->items[i]); i++) {
        if (i)
            jinja_put_text(r, &t, s.data, s.n);
        jinja_put_text(r, &t, l->items[i].s, l->items[i].n);
    }
    return jinja_taken(r, &t);
}

static struct value string_cut(struct run *r, struct span s, const struct args *a, bool prefix)
{
    if (a->n != 1 || !want_string(r, a->v[0]))
        return jinja_fail(r, "removeprefix and removesuffix want one string");
    if (!matches(s, a->v[0], !prefix))
        return of_span(s);
    return of_span((struct span){prefix ? s.data + a->v[0].n : s.data, s.n - a->v[0].n});
}

static struct value string_method(struct run *r, struct span name, struct span s, const struct args *a)
{
    if (in_words("strip lstrip rstrip", name))
        return string_strip(r, name, s, a);
    if (in_words("startswith endswith", name))
        return string_starts(r, s, a, name.data[0] == 'e');
    if (in_words("split rsplit", name))
        return string_split(r, s, a, name.data[0] == 'r');
    if (span_is(name, "replace"))
        return string_replace(r, s, a);
    if (in_words("find rfind index rindex count", name))
        return string_find(r, name, s, a);
    if (span_is(name, "format"))
        return string_format(r, s, a);
    if (span_is(name, "join"))
        return string_join(r, s, a);
    if (in_words("removeprefix removesuffix", name))
        return string_cut(r, s, a, name.n == 12 && name.data[6] == 'p');
    if (span_is(name, "splitlines") && a->n <= 1)
        return jinja_split_lines(r, s, a->n && jinja_truth(a->v[0]));
    if (a->n)
        return jinja_fail(r, "the method '%.*s' with these arguments is not known", SHOWN(name));
    if (in_words("isupper islower isdigit isdecimal isnumeric isalpha isalnum isspace", name))
        return string_is(r, name, s);
    if (span_is(name, "upper"))
        return jinja_lettered(r, s, UPPER);
    if (span_is(name, "lower"))
        return jinja_lettered(r, s, LOWER);
    if (span_is(name, "capitalize"))
        return jinja_lettered(r, s, CAPITAL);
    if (span_is(name, "title"))
        return jinja_lettered(r, s, TITLE);
    return jinja_fail(r, "the method '%.*s' of strings is not known", SHOWN(name));
}

static struct value dict_method(struct run *r, struct span name, struct value self, const struct args *a)
{
    const struct dict *d = self.dict;
    if (span_is(name, "get") && (a->n == 1 || a->n == 2) && !a->names[0].n && !a->names[a->n - 1].n) {
        if (a->v[0].kind == V_LIST || a->v[0].kind == V_DICT)
            return jinja_fail(r, "%s cannot be a key", jinja_kind_name(a->v[0]));
        const struct value *found = jinja_dict_find(r, d, a->v[0]);
        return found ? *found : a->n == 2 ? a->v[1] : of_none();
    }
    bool items = span_is(name, "items"), keys = span_is(name, "keys"), values = span_is(name, "values"),
         copy = span_is(name, "copy");
    if (a->n || !(items || keys || values || copy))
        return jinja_fail(r, "the method '%.*s' of mappings with these arguments is not known", SHOWN(name));
    struct value out = copy ? jinja_dict_new(r, V_DICT) : jinja_list_new(r, V_VIEW);
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        if (copy)
            jinja_dict_set(r, out.dict, d->keys[i], d->values[i]);
        else if (items) {
            struct value both = jinja_pair(r, d->keys[i], d->values[i]);
            if (!r->rc)
                jinja_list_add(r, out.list, both);
        } else
            jinja_list_add(r, out.list, keys ? d->keys[i] : d->values[i]);
    }
    return out;
}

static struct value list_method(struct run *r, struct span name, struct value self, const struct args *a)
{
    const struct list *l = self.list;
    int64_t n = 0;
    if (span_is(name, "copy") && !a->n) {
        struct value out = jinja_list_new(r, V_LIST);
        for (size_t i = 0; i < l->n && !r->rc; i++)
            jinja_list_add(r, out.list, l->items[i]);
        return out;
    }
    bool index = span_is(name, "index");
    if (a->n != 1 || !(index || span_is(name, "count")))
        return jinja_fail(r, "the method '%.*s' of lists with these arguments is not known", SHOWN(name));
    for (size_t i = 0; i < l->n && !r->rc; i++)
        if (jinja_values_equal(r, l->items[i], a->v[0])) {
            if (index)
                return of_int((int64_t)i);
            n++;
        }
    return index ? jinja_fail(r, "the value that is looked for is not in the list") : of_int(n);
}

struct value jinja_call_method(struct run *r, const struct method *m, const struct args *args)
{
    switch (m->self.kind) {
    case V_STRING:
        if (m->self.safe)
            return jinja_fail(r, "methods of text marked safe are not known");
        return string_method(r, m->name, text_of(m->self), args);
    case V_DICT:
        return dict_method(r, m->name, m->self, args);
    case V_LIST:
    case V_TUPLE:
        return list_method(r, m->name, m->self, args);
    case V_LOOP:
        return args->n ? args->v[m->self.loop->i % (size_t)args->n] : jinja_fail(r, "loop.cycle wants values");
    default:
        return jinja_fail(r, "the method '%.*s' is not known", SHOWN(m->name));
    }
}
