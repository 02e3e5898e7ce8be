/* jinja_arithmetic.c: operators and comparisons, as Python's: / gives a float, // and % round towards minus infinity, + joins
 * strings and lists. Integers have 64 bits; beyond them is an error, not a float. "%" on a string is refused.
 *
 * Text marked safe (by |safe) escapes what is added to it, since Python's Markup does so. */
#include "model/jinja_parts.h"

#include <math.h>

static struct value integers(struct run *r, enum operator op, int64_t a, int64_t b)
{
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case O_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case O_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case O_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case O_FLOORDIV:
    case O_MOD:
        if (b == -1) {
            over = op == O_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &v);
            break;
        }
        v = a % b;
        if (op == O_MOD)
            v += v && (v < 0) != (b < 0) ? b : 0;
        else
            v = a / b - (v && (v < 0) != (b < 0));
        break;
    default: /* O_POW, b >= 0 */
        v = 1;
        for (; b > 0 && !over && jinja_spend(r, 1); b--) {
            over = __builtin_mul_overflow(v, a, &v);
            if (!over && (a == 0 || a == 1))
                break;
        }
        break;
    }
    return over ? jinja_fail(r, "an integer of more than 64 bits") : of_int(v);
}

static struct value floats(struct run *r, enum operator op, double a, double b)
{
    double v;
    switch (op) {
    case O_ADD:
        return of_float(a + b);
    case O_SUB:
        return of_float(a - b);
    case O_MUL:
        return of_float(a * b);
    case O_DIV:
        return of_float(a / b);
    case O_MOD:
        v = fmod(a, b);
        if (v != 0 && (v < 0) != (b < 0))
            v += b;
        return of_float(v != 0 ? v : copysign(0, b));
    case O_FLOORDIV:
        v = fmod(a, b);
        v = (a - v) / b - (v != 0 && (v < 0) != (b < 0));
        return of_float(v != 0 ? (floor(v) + (v - floor(v) > 0.5)) : copysign(0, a / b));
    default:
        v = pow(a, b);
        if (!isfinite(v) || (a == 0 && b < 0))
            return jinja_fail(r, "a power that is no number");
        return of_float(v);
    }
}

static struct value numbers(struct run *r, enum operator op, struct value a, struct value b)
{
    bool integer = a.kind != V_FLOAT && b.kind != V_FLOAT && op != O_DIV && !(op == O_POW && as_int(b) < 0);
    if ((op == O_DIV || op == O_FLOORDIV || op == O_MOD) && as_double(b) == 0)
        return jinja_fail(r, "a division by zero");
    return integer ? integers(r, op, as_int(a), as_int(b)) : floats(r, op, as_double(a), as_double(b));
}

static struct value times(struct run *r, struct value s, struct value n)
{
    struct text t = {0};
    if (s.safe)
        return jinja_fail(r, "text marked safe is not to be multiplied");
    for (int64_t i = as_int(n); i > 0 && s.n && jinja_spend(r, 1 + s.n / 64); i--)
        jinja_put_text(r, &t, s.s, s.n);
    return jinja_taken(r, &t);
}

static struct value lists(struct run *r, struct value a, struct value b)
{
    struct value out = jinja_list_new(r, a.kind);
    for (size_t i = 0; i < a.list->n && !r->rc; i++)
        jinja_list_add(r, out.list, a.list->items[i]);
    for (size_t i = 0; i < b.list->n && !r->rc; i++)
        jinja_list_add(r, out.list, b.list->items[i]);
    return out;
}

static struct value strings(struct run *r, struct value a, struct value b)
{
    bool safe = a.safe || b.safe;
    if (safe && !a.safe)
        a = jinja_escaped(r, text_of(a));
    if (safe && !b.safe)
        b = jinja_escaped(r, text_of(b));
    struct value v = jinja_joined(r, text_of(a), text_of(b));
    v.safe = safe;
    return v;
}

struct value jinja_arithmetic(struct run *r, enum operator op, struct value a, struct value b)
{
    static const char *const signs[] = {
        [O_ADD] = "+", [O_SUB] = "-", [O_MUL] = "*", [O_DIV] = "/", [O_FLOORDIV] = "//", [O_MOD] = "%", [O_POW] = "**"};
    if (is_number(a) && is_number(b))
        return numbers(r, op, a, b);
    if (op == O_ADD && a.kind == V_STRING && b.kind == V_STRING)
        return strings(r, a, b);
    if (op == O_ADD && a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE))
        return lists(r, a, b);
    if (op == O_MUL && a.kind == V_STRING && (b.kind == V_INT || b.kind == V_BOOL))
        return times(r, a, b);
    if (op == O_MUL && b.kind == V_STRING && (a.kind == V_INT || a.kind == V_BOOL))
        return times(r, b, a);
    struct value missing = a.kind == V_UNDEFINED ? a : b;
    if (missing.kind == V_UNDEFINED)
        return jinja_fail(r, "'%.*s' is not defined, so '%s' has nothing to work on", SHOWN(text_of(missing)), signs[op]);
    return jinja_fail(r, "%s %s %s is not known", jinja_kind_name(a), signs[op], jinja_kind_name(b));
}

static bool contains(struct run *r, struct value in, struct value what)
{
    if (in.kind == V_STRING) {
        if (what.kind != V_STRING)
            jinja_fail(r, "%s cannot be in a string", jinja_kind_name(what));
        return !r->rc && jinja_find_span(r, text_of(in), text_of(what));
    }
    if (in.kind == V_DICT) {
        if (what.kind == V_LIST || what.kind == V_DICT)
            jinja_fail(r, "%s cannot be a key", jinja_kind_name(what));
        return jinja_dict_find(r, in.dict, what) != NULL;
    }
    if (in.kind == V_ITER)
        jinja_fail(r, "in on an iterator is not known: make it a list");
    const struct list *l = jinja_walk(r, in);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        if (jinja_values_equal(r, l->items[i], what))
            return true;
    return false;
}

bool jinja_compare(struct run *r, enum operator op, struct value a, struct value b)
{
    switch (op) {
    case O_EQ:
        return jinja_values_equal(r, a, b);
    case O_NE:
        return !jinja_values_equal(r, a, b);
    case O_LT:
        return jinja_values_order(r, a, b) < 0;
    case O_LE:
        return jinja_values_order(r, a, b) <= 0;
    case O_GT:
        return jinja_values_order(r, a, b) > 0;
    case O_GE:
        return jinja_values_order(r, a, b) >= 0;
    case O_IN:
        return contains(r, b, a);
    default:
        return !contains(r, b, a);
    }
}
