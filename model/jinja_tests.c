/* jinja_tests.c: what may stand behind "is", and select, reject and their kin. A test that takes no operand refuses one.
 *
 * Undefined values answer as Jinja's do, which is not always what one would guess: they can be walked, and they are
 * sequences. */
#include "model/jinja_parts.h"

enum test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_STRING,
    IS_MAPPING,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_NUMBER,
    IS_INTEGER,
    IS_FLOAT,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_ODD,
    IS_EVEN,
    IS_LOWER,
    IS_UPPER,
    IS_CALLABLE,
    IS_FILTER,
    IS_TEST,
    WITH_OPERAND,
    IS_DIVISIBLE = WITH_OPERAND,
    IS_SAME,
    IS_EQ,
    IS_NE,
    IS_LT,
    IS_LE,
    IS_GT,
    IS_GE,
    IS_IN,
};
static const struct {
    const char *name;
    enum test test;
} tests[] = {
    {"defined", IS_DEFINED},
    {"undefined", IS_UNDEFINED},
    {"none", IS_NONE},
    {"string", IS_STRING},
    {"mapping", IS_MAPPING},
    {"sequence", IS_SEQUENCE},
    {"iterable", IS_ITERABLE},
    {"number", IS_NUMBER},
    {"integer", IS_INTEGER},
    {"float", IS_FLOAT},
    {"boolean", IS_BOOLEAN},
    {"true", IS_TRUE},
    {"false", IS_FALSE},
    {"odd", IS_ODD},
    {"even", IS_EVEN},
    {"lower", IS_LOWER},
    {"upper", IS_UPPER},
    {"callable", IS_CALLABLE},
    {"filter", IS_FILTER},
    {"test", IS_TEST},
    {"divisibleby", IS_DIVISIBLE},
    {"sameas", IS_SAME},
    {"eq", IS_EQ},
    {"equalto", IS_EQ},
    {"ne", IS_NE},
    {"lt", IS_LT},
    {"lessthan", IS_LT},
    {"le", IS_LE},
    {"gt", IS_GT},
    {"greaterthan", IS_GT},
    {"ge", IS_GE},
    {"in", IS_IN},
    {"==", IS_EQ},
    {"!=", IS_NE},
    {"<", IS_LT},
    {"<=", IS_LE},
    {">", IS_GT},
    {">=", IS_GE},
};

static int test_index(struct span name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (span_is(name, tests[i].name))
            return (int)i;
    return -1;
}

bool jinja_is_test(struct span name)
{
    return test_index(name) >= 0;
}

static bool with_operand(struct run *r, enum test t, struct value v, struct value operand)
{
    static const enum operator operators[] = {[IS_EQ - IS_EQ] = O_EQ, [IS_NE - IS_EQ] = O_NE, [IS_LT - IS_EQ] = O_LT,
                                              [IS_LE - IS_EQ] = O_LE, [IS_GT - IS_EQ] = O_GT, [IS_GE - IS_EQ] = O_GE,
                                              [IS_IN - IS_EQ] = O_IN};
    if (t >= IS_EQ)
        return jinja_compare(r, operators[t - IS_EQ], v, operand);
    if (t == IS_DIVISIBLE)
        return jinja_truth(of_bool(!jinja_truth(jinja_arithmetic(r, O_MOD, v, operand)))) && !r->rc;
    if (operand.kind != V_NONE && operand.kind != V_BOOL) {
        jinja_fail(r, "sameas is known for none, true and false only");
        return false;
    }
    return v.kind == operand.kind && (v.kind == V_NONE || v.b == operand.b);
}

/* Of ASCII letters: at least one, and all in one case. */
static bool cased(struct run *r, struct value v, bool upper)
{
    struct span s = jinja_str(r, v);
    bool some = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.data[i];
        bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
        if ((unsigned char)c >= 0x80) {
            jinja_fail(r, "the case of letters beyond ASCII is not known here");
            return false;
        }
        if (upper ? is_lower : is_upper)
            return false;
        some = some || is_upper || is_lower;
    }
    return some;
}

static bool parity(struct run *r, struct value v, bool odd)
{
    struct value rest = jinja_arithmetic(r, O_MOD, v, of_int(2));
    return !r->rc && jinja_values_equal(r, rest, of_int(odd));
}

static bool walkable(struct value v)
{
    return v.kind == V_UNDEFINED || v.kind == V_STRING || is_list(v) || v.kind == V_DICT || v.kind == V_LOOP;
}

bool jinja_call_test(struct run *r, struct span name, struct value v, const struct args *args)
{
    int index = test_index(name);
    enum test t = index < 0 ? IS_DEFINED : tests[index].test;
    bool is_int = v.kind == V_INT;
    if (index < 0)
        jinja_fail(r, "the test '%.*s' is not known", SHOWN(name));
    else if (args->n != (t >= WITH_OPERAND) || (args->n && args->names[0].n))
        jinja_fail(r, "the test '%.*s' wants %s", SHOWN(name), t >= WITH_OPERAND ? "one operand" : "no operand");
    if (r->rc)
        return false;
    switch (t) {
    case IS_DEFINED:
        return v.kind != V_UNDEFINED;
    case IS_UNDEFINED:
        return v.kind == V_UNDEFINED;
    case IS_NONE:
        return v.kind == V_NONE;
    case IS_STRING:
        return v.kind == V_STRING;
    case IS_MAPPING:
        return v.kind == V_DICT;
    case IS_SEQUENCE:
        if (v.kind == V_VIEW)
            jinja_fail(r, "whether a view is a sequence is not known");
        return v.kind == V_UNDEFINED || v.kind == V_STRING || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_DICT;
    case IS_ITERABLE:
        return walkable(v);
    case IS_NUMBER:
        return is_number(v);
    case IS_INTEGER:
        return is_int;
    case IS_FLOAT:
        return v.kind == V_FLOAT;
    case IS_BOOLEAN:
        return v.kind == V_BOOL;
    case IS_TRUE:
        return v.kind == V_BOOL && v.b;
    case IS_FALSE:
        return v.kind == V_BOOL && !v.b;
    case IS_ODD:
    case IS_EVEN:
        return parity(r, v, t == IS_ODD);
    case IS_LOWER:
    case IS_UPPER:
        return cased(r, v, t == IS_UPPER);
    case IS_CALLABLE:
        return v.kind == V_UNDEFINED || v.kind == V_MACRO || v.kind == V_BUILTIN || v.kind == V_METHOD;
    case IS_FILTER:
    case IS_TEST:
        if (v.kind != V_STRING)
            jinja_fail(r, "the name of a filter or test is wanted");
        return !r->rc && (t == IS_FILTER ? jinja_is_filter(text_of(v)) : jinja_is_test(text_of(v)));
    default:
        return with_operand(r, t, v, args->v[0]);
    }
}
