/* jinja_builtins.c: the functions that a template finds: range, dict and namespace, raise_exception, strftime_now. Of Jinja's
 * others (lipsum, cycler, joiner) it is told that they are there, but to call one is refused: no chat template does.
 *
 * A range has at most 100,000 items, as in Jinja's sandbox, and is made at once. The clock is the caller's: what a prompt says
 * of today is decided where the prompt is made. */
#include "model/jinja_parts.h"

#include <time.h>

static struct value call_range(struct run *r, const struct args *args)
{
    int64_t from[3] = {0, 0, 1};
    for (int i = 0; i < args->n; i++) {
        if (args->n > 3 || args->names[i].n || (args->v[i].kind != V_INT && args->v[i].kind != V_BOOL))
            return jinja_fail(r, "range wants one to three integers");
        from[args->n == 1 ? 1 : i] = as_int(args->v[i]);
    }
    int64_t limit = (int64_t)1 << 40;
    if (!args->n || from[2] == 0)
        return jinja_fail(r, "range wants one to three integers, the last not 0");
    for (int i = 0; i < 3; i++)
        if (from[i] > limit || from[i] < -limit)
            return jinja_fail(r, "a range of more than 100000 integers");
    int64_t span = from[2] > 0 ? from[1] - from[0] : from[0] - from[1], step = from[2] > 0 ? from[2] : -from[2];
    int64_t n = span > 0 ? (span - 1) / step + 1 : 0;
    if (n > 100000)
        return jinja_fail(r, "a range of more than 100000 integers");
    struct value v = jinja_list_new(r, V_VIEW);
    for (int64_t i = 0; i < n && !r->rc; i++)
        jinja_list_add(r, v.list, of_int(from[0] + i * from[2]));
    return v;
}

static struct value call_strftime(struct run *r, const struct args *args)
{
    char buffer[256], format[101];
    time_t now = (time_t)r->now;
    struct tm tm;
    if (args->n != 1 || args->v[0].kind != V_STRING || args->v[0].n > 100 || memchr(args->v[0].s, 0, args->v[0].n))
        return jinja_fail(r, "strftime_now wants a format");
    if (!args->v[0].n)
        return of_span(SPAN(""));
    memcpy(format, args->v[0].s, args->v[0].n);
    format[args->v[0].n] = 0;
    if (!localtime_r(&now, &tm) || !strftime(buffer, sizeof buffer, format, &tm))
        return jinja_fail(r, "strftime_now cannot write this format");
    return jinja_string_new(r, buffer, strlen(buffer));
}

struct value jinja_call_builtin(struct run *r, enum builtin f, const struct args *args)
{
    switch (f) {
    case B_RANGE:
        return call_range(r, args);
    case B_STRFTIME:
        return call_strftime(r, args);
    case B_RAISE: {
        struct span s = args->n == 1 ? jinja_str(r, args->v[0]) : SPAN("raise_exception wants one message");
        return jinja_fail(r, "the template refuses: %.*s", (int)(s.n < 160 ? s.n : 160), s.data);
    }
    case B_DICT:
    case B_NAMESPACE: {
        struct value d = jinja_dict_new(r, f == B_DICT ? V_DICT : V_NAMESPACE);
        for (int i = 0; i < args->n && !r->rc; i++) {
            if (args->names[i].n) {
                jinja_dict_set(r, d.dict, of_span(args->names[i]), args->v[i]);
            } else if (i > 0 || args->v[i].kind != V_DICT) {
                jinja_fail(r, "dict and namespace want name=value, or one mapping first");
            } else {
                const struct dict *from = args->v[i].dict;
                for (size_t k = 0; k < from->n && !r->rc; k++)
                    jinja_dict_set(r, d.dict, from->keys[k], from->values[k]);
            }
        }
        return d;
    }
    default:
        return jinja_fail(r, "lipsum, cycler and joiner are not known");
    }
}
