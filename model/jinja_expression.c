/* jinja_expression.c: expressions of templates, by recursive descent; one function a level of precedence, in Jinja's order:
 * ternary, or, and, not, comparison, + -, ~, * / // %, **, sign, postfix (.x [x] (x)), filters and tests.
 *
 * Filters and tests that hone does not know are refused here, with the place, but within an if, as Jinja does, only when they
 * are reached. A name that is not known is no error of syntax, since templates ask for many that may not be there. Chains (a ~
 * b ~ c, a == b == c) are lists, not nests; what does nest is counted, since the C stack is finite.
 *
 * The alternative, an operator-precedence table, would be shorter by some thirty lines, but a sign binds looser than a call and
 * tighter than a filter, and "is" takes an operand without a bracket: each an exception in the table. */
#include "model/jinja_parser.h"

#include <stdio.h>

static struct node *parse_unary(struct parser *p, bool filters);

struct node *jinja_refuse(struct parser *p, uint32_t at, const char *what)
{
    if (!p->rc)
        p->rc = jinja_error(p->e, p->j->source, at, "%s", what);
    return NULL;
}

struct node *jinja_refuse_token(struct parser *p, const char *wanted)
{
    const struct lexeme *t = p->t;
    if (p->rc)
        return NULL;
    int n = t->text.n > 40 ? 40 : (int)t->text.n;
    if (t->kind == T_END)
        p->rc = jinja_error(p->e, p->j->source, t->at, "the template ends where %s is wanted", wanted);
    else
        p->rc = jinja_error(p->e, p->j->source, t->at, "'%.*s' where %s is wanted", n, t->text.data, wanted);
    return NULL;
}

/* Never NULL: an error goes on with a node that nobody will see. */
struct node *jinja_node_new(struct parser *p, enum node_kind kind, uint32_t at)
{
    static struct node nowhere;
    struct node *n = arena_alloc(&p->j->arena, sizeof *n);
    if (!n) {
        if (!p->rc)
            p->rc = err_set(p->e, HONE_ERESOURCE, "out of memory for a chat template");
        nowhere = (struct node){0};
        return &nowhere;
    }
    n->kind = kind;
    n->at = at;
    return n;
}

bool jinja_is_operator(const struct parser *p, const char *text)
{
    return p->t->kind == T_OPERATOR && span_is(p->t->text, text);
}

bool jinja_is_word(const struct parser *p, const char *text)
{
    return p->t->kind == T_NAME && span_is(p->t->text, text);
}

void jinja_advance(struct parser *p)
{
    if (p->t->kind != T_END)
        p->t++;
}

bool jinja_skip(struct parser *p, const char *text)
{
    if (!jinja_is_operator(p, text) && !jinja_is_word(p, text))
        return false;
    jinja_advance(p);
    return true;
}

void jinja_expect(struct parser *p, const char *text)
{
    char wanted[24];
    if (p->rc || jinja_skip(p, text))
        return;
    snprintf(wanted, sizeof wanted, "'%s'", text);
    jinja_refuse_token(p, wanted);
}

struct span jinja_expect_name(struct parser *p)
{
    struct span s = p->t->text;
    if (p->t->kind != T_NAME) {
        jinja_refuse_token(p, "a name");
        return (struct span){"", 0};
    }
    jinja_advance(p);
    return s;
}

bool jinja_deeper(struct parser *p)
{
    if (p->nesting >= JINJA_NESTING)
        jinja_refuse(p, p->t->at, "too many things within each other");
    return !p->rc && ++p->nesting;
}

struct node **jinja_append(struct node **tail, struct node *n)
{
    *tail = n;
    return n ? &n->next : tail;
}

/* Arguments up to ")" that has been opened: positional ones, then name=value. */
static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    bool named = false;
    while (!p->rc && !jinja_is_operator(p, ")")) {
        struct span name = {"", 0};
        if (jinja_is_operator(p, "*") || jinja_is_operator(p, "**"))
            return jinja_refuse(p, p->t->at, "* and ** in a call are not known");
        if (p->t->kind == T_NAME && p->t[1].kind == T_OPERATOR && span_is(p->t[1].text, "=")) {
            name = p->t->text;
            p->t += 2;
            named = true;
        } else if (named) {
            return jinja_refuse(p, p->t->at, "a positional argument behind a named one");
        }
        struct node *value = jinja_parse_ternary(p);
        if (!value)
            return NULL;
        struct node *holder = jinja_node_new(p, N_SCOPE, value->at);
        holder->text = name;
        holder->a = value;
        tail = jinja_append(tail, holder);
        if (!jinja_is_operator(p, ")"))
            jinja_expect(p, ",");
    }
    jinja_expect(p, ")");
    return first;
}

static struct node *parse_list(struct parser *p, const char *end, enum node_kind kind, uint32_t at)
{
    struct node *n = jinja_node_new(p, kind, at), **tail = &n->items;
    while (!p->rc && !jinja_is_operator(p, end)) {
        tail = jinja_append(tail, jinja_parse_ternary(p));
        if (kind == N_DICT && !p->rc) {
            jinja_expect(p, ":");
            tail = jinja_append(tail, jinja_parse_ternary(p));
        }
        if (!p->rc && !jinja_is_operator(p, end))
            jinja_expect(p, ",");
    }
    jinja_expect(p, end);
    return n;
}

static bool ends_expression(const struct parser *p)
{
    return p->t->kind == T_PRINT_END || p->t->kind == T_BLOCK_END || p->t->kind == T_END || jinja_is_operator(p, ")");
}

/* One expression, or several with commas: a tuple. */
struct node *jinja_parse_tuple(struct parser *p)
{
    uint32_t at = p->t->at;
    struct node *one = jinja_parse_ternary(p);
    if (!one || !jinja_is_operator(p, ","))
        return one;
    struct node *n = jinja_node_new(p, N_TUPLE, at), **tail = jinja_append(&n->items, one);
    while (!p->rc && jinja_skip(p, ",") && !ends_expression(p))
        tail = jinja_append(tail, jinja_parse_ternary(p));
    return n;
}

static struct node *parse_string(struct parser *p)
{
    struct node *n = jinja_node_new(p, N_CONST, p->t->at);
    struct span whole = p->t->text;
    jinja_advance(p);
    for (; p->t->kind == T_STRING && !p->rc; jinja_advance(p)) {
        char *s = arena_alloc(&p->j->arena, whole.n + p->t->text.n);
        if (!s) {
            p->rc = err_set(p->e, HONE_ERESOURCE, "out of memory for a chat template");
            break;
        }
        memcpy(s, whole.data, whole.n);
        memcpy(s + whole.n, p->t->text.data, p->t->text.n);
        whole = (struct span){s, whole.n + p->t->text.n};
    }
    n->value = of_span(whole);
    return n;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {
        {"true", {.kind = V_BOOL, .b = true}},
        {"True", {.kind = V_BOOL, .b = true}},
        {"false", {.kind = V_BOOL}},
        {"False", {.kind = V_BOOL}},
        {"none", {.kind = V_NONE}},
        {"None", {.kind = V_NONE}},
    };
    struct node *n = jinja_node_new(p, N_NAME, p->t->at);
    n->text = p->t->text;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (jinja_is_word(p, constants[i].name)) {
            n->kind = N_CONST;
            n->value = constants[i].value;
        }
    if (jinja_is_word(p, "caller"))
        p->uses_caller = true;
    if (p->macros && (jinja_is_word(p, "varargs") || jinja_is_word(p, "kwargs")))
        return jinja_refuse(p, p->t->at, "varargs and kwargs of a macro are not known");
    jinja_advance(p);
    return n;
}

struct node *jinja_parse_primary(struct parser *p)
{
    const struct lexeme *t = p->t;
    struct node *n;
    switch (t->kind) {
    case T_STRING:
        return parse_string(p);
    case T_NAME:
        return parse_name(p);
    case T_INT:
    case T_FLOAT:
        n = jinja_node_new(p, N_CONST, t->at);
        n->value = t->kind == T_INT ? of_int(t->i) : of_float(t->f);
        jinja_advance(p);
        return n;
    default:
        break;
    }
    if (jinja_skip(p, "[")) {
        n = parse_list(p, "]", N_LIST, t->at);
    } else if (jinja_skip(p, "{")) {
        n = parse_list(p, "}", N_DICT, t->at);
    } else if (jinja_skip(p, "(")) {
        if (jinja_is_operator(p, ")"))
            n = jinja_node_new(p, N_TUPLE, t->at);
        else
            n = jinja_parse_tuple(p);
        jinja_expect(p, ")");
    } else {
        n = jinja_refuse_token(p, "an expression");
    }
    return n;
}

/* Behind "[": an index, a slice; a tuple of them is refused. */
static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *n = jinja_node_new(p, N_ITEM, p->t->at);
    n->a = of;
    if (!jinja_is_operator(p, ":"))
        n->b = jinja_parse_ternary(p);
    if (!p->rc && jinja_skip(p, ":")) {
        n->kind = N_SLICE;
        if (!jinja_is_operator(p, "]") && !jinja_is_operator(p, ":"))
            n->c = jinja_parse_ternary(p);
        if (!p->rc && jinja_skip(p, ":") && !jinja_is_operator(p, "]"))
            n->d = jinja_parse_ternary(p);
    }
    jinja_expect(p, "]");
    return n;
}

static struct node *parse_call(struct parser *p, struct node *of)
{
    struct node *n = jinja_node_new(p, N_CALL, of->at);
    jinja_expect(p, "(");
    n->a = of;
    n->items = parse_arguments(p);
    return n;
}

struct node *jinja_parse_postfix(struct parser *p, struct node *of)
{
    int within = 0;
    while (of && !p->rc && p->t->kind == T_OPERATOR && ++within) {
        if (within > JINJA_NESTING)
            return jinja_refuse(p, p->t->at, "too many things within each other");
        if (jinja_is_operator(p, "(")) {
            of = parse_call(p, of);
        } else if (jinja_skip(p, "[")) {
            of = parse_subscript(p, of);
        } else if (jinja_skip(p, ".")) {
            struct node *n = jinja_node_new(p, N_ATTR, p->t->at);
            n->a = of;
            n->text = p->t->text;
            if (p->t->kind == T_INT) {
                n->kind = N_ITEM;
                n->b = jinja_parse_primary(p);
            } else {
                jinja_expect_name(p);
            }
            of = n;
        } else {
            break;
        }
    }
    return of;
}

/* `name(arguments)` of a filter or a test. */
struct node *jinja_parse_filter(struct parser *p, struct node *of)
{
    struct node *n = jinja_node_new(p, N_FILTER, p->t->at);
    n->a = of;
    n->text = jinja_expect_name(p);
    if (!p->rc && !p->ifs && !jinja_is_filter(n->text))
        p->rc = jinja_error(p->e, p->j->source, n->at, "the filter '%.*s' is not known", SHOWN(n->text));
    if (!p->rc && jinja_skip(p, "("))
        n->items = parse_arguments(p);
    return n;
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    bool negated = jinja_skip(p, "not");
    struct node *n = jinja_node_new(p, N_TEST, p->t->at);
    n->a = of;
    n->text = jinja_expect_name(p);
    if (!p->rc && !p->ifs && !jinja_is_test(n->text))
        p->rc = jinja_error(p->e, p->j->source, n->at, "the test '%.*s' is not known", SHOWN(n->text));
    bool operand = p->t->kind == T_STRING || p->t->kind == T_INT || p->t->kind == T_FLOAT || jinja_is_operator(p, "[") ||
                   jinja_is_operator(p, "{") || p->t->kind == T_NAME;
    if (p->rc || jinja_is_word(p, "else") || jinja_is_word(p, "or") || jinja_is_word(p, "and")) {
        operand = false;
    } else if (jinja_is_word(p, "is")) {
        return jinja_refuse(p, p->t->at, "a test behind a test wants brackets");
    } else if (jinja_skip(p, "(")) {
        n->items = parse_arguments(p);
        operand = false;
    }
    if (operand) {
        struct node *holder = jinja_node_new(p, N_SCOPE, p->t->at);
        holder->a = jinja_parse_postfix(p, jinja_parse_primary(p));
        n->items = holder;
    }
    if (!negated)
        return n;
    struct node *not = jinja_node_new(p, N_NOT, n->at);
    not ->a = n;
    return not ;
}

struct node *jinja_parse_filters(struct parser *p, struct node *of)
{
    int within = 0;
    while (of && !p->rc) {
        if (++within > JINJA_NESTING)
            return jinja_refuse(p, p->t->at, "too many things within each other");
        if (jinja_skip(p, "|"))
            of = jinja_parse_filter(p, of);
        else if (jinja_skip(p, "is"))
            of = parse_test(p, of);
        else if (jinja_is_operator(p, "("))
            of = parse_call(p, of);
        else
            break;
    }
    return of;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n = NULL;
    if (!jinja_deeper(p))
        return NULL;
    if (jinja_is_operator(p, "-") || jinja_is_operator(p, "+")) {
        n = jinja_node_new(p, jinja_is_operator(p, "-") ? N_NEG : N_POS, p->t->at);
        jinja_advance(p);
        n->a = parse_unary(p, false);
    } else {
        n = jinja_parse_primary(p);
    }
    n = jinja_parse_postfix(p, n);
    if (filters)
        n = jinja_parse_filters(p, n);
    p->nesting--;
    return p->rc ? NULL : n;
}

struct level {
    const char *text;
    enum operator op;
};

/* Left-associative operators of one level over the next (0: **, 1: * and the like, 2: ~, 3: + and -). */
static struct node *parse_level(struct parser *p, int level)
{
    static const struct level table[4][5] = {
        {{"**", O_POW}},
        {{"*", O_MUL}, {"/", O_DIV}, {"//", O_FLOORDIV}, {"%", O_MOD}},
        {{NULL, O_ADD}},
        {{"+", O_ADD}, {"-", O_SUB}},
    };
    struct node *left = level == 0 ? parse_unary(p, true) : parse_level(p, level - 1);
    if (level == 2 && left && jinja_is_operator(p, "~")) {
        struct node *n = jinja_node_new(p, N_CONCAT, p->t->at), **tail = jinja_append(&n->items, left);
        while (!p->rc && jinja_skip(p, "~"))
            tail = jinja_append(tail, parse_level(p, 1));
        return n;
    }
    for (int i = 0, within = 0; left && !p->rc && table[level][i].text;) {
        if (!jinja_is_operator(p, table[level][i].text)) {
            i++;
            continue;
        }
        if (++within > 4 * JINJA_NESTING)
            return jinja_refuse(p, p->t->at, "too many operators in a row");
        struct node *n = jinja_node_new(p, N_ARITHMETIC, p->t->at);
        jinja_advance(p);
        n->op = table[level][i].op;
        n->a = left;
        n->b = level == 0 ? parse_unary(p, true) : parse_level(p, level - 1);
        left = n;
        i = 0;
    }
    return p->rc ? NULL : left;
}

static bool comparison(struct parser *p, enum operator* op)
{
    static const struct level table[] = {{"==", O_EQ}, {"!=", O_NE}, {"<", O_LT}, {"<=", O_LE},
                                         {">", O_GT},  {">=", O_GE}, {"in", O_IN}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (jinja_skip(p, table[i].text)) {
            *op = table[i].op;
            return true;
        }
    if (jinja_is_word(p, "not") && p->t[1].kind == T_NAME && span_is(p->t[1].text, "in")) {
        p->t += 2;
        *op = O_NOT_IN;
        return true;
    }
    return false;
}

static struct node *parse_compare(struct parser *p)
{
    enum operator op;
    uint32_t at = p->t->at;
    struct node *left = parse_level(p, 3), *n = NULL, **tail = NULL;
    while (left && !p->rc && comparison(p, &op)) {
        if (!n) {
            n = jinja_node_new(p, N_COMPARE, at);
            n->a = left;
            tail = &n->items;
        }
        struct node *holder = jinja_node_new(p, N_SCOPE, p->t->at);
        holder->op = op;
        holder->a = parse_level(p, 3);
        tail = jinja_append(tail, holder);
    }
    return p->rc ? NULL : n ? n : left;
}

static struct node *parse_not(struct parser *p)
{
    if (!jinja_is_word(p, "not"))
        return parse_compare(p);
    if (!jinja_deeper(p))
        return NULL;
    struct node *n = jinja_node_new(p, N_NOT, p->t->at);
    jinja_advance(p);
    n->a = parse_not(p);
    p->nesting--;
    return p->rc ? NULL : n;
}

/* and, or: lists of operands by a and items. */
static struct node *parse_logic(struct parser *p, bool is_or)
{
    struct node *left = is_or ? parse_logic(p, false) : parse_not(p), *n = NULL, **tail = NULL;
    while (left && !p->rc && jinja_is_word(p, is_or ? "or" : "and")) {
        if (!n) {
            n = jinja_node_new(p, is_or ? N_OR : N_AND, p->t->at);
            tail = jinja_append(&n->items, left);
        }
        jinja_advance(p);
        tail = jinja_append(tail, is_or ? parse_logic(p, false) : parse_not(p));
    }
    return p->rc ? NULL : n ? n : left;
}

struct node *jinja_parse_ternary(struct parser *p)
{
    struct node *left = NULL;
    if (!jinja_deeper(p))
        return NULL;
    left = parse_logic(p, true);
    for (int within = 0; left && !p->rc && jinja_is_word(p, "if"); within++) {
        if (within > JINJA_NESTING)
            return jinja_refuse(p, p->t->at, "too many things within each other");
        struct node *n = jinja_node_new(p, N_TERNARY, p->t->at);
        jinja_advance(p);
        n->b = left;
        n->a = parse_logic(p, true);
        if (!p->rc && jinja_skip(p, "else"))
            n->c = jinja_parse_ternary(p);
        left = n;
    }
    p->nesting--;
    return p->rc ? NULL : left;
}

/* A condition or what a loop walks: no bare ternary, but a tuple. */
struct node *jinja_parse_plain(struct parser *p)
{
    uint32_t at = p->t->at;
    struct node *one = parse_logic(p, true);
    if (!one || !jinja_is_operator(p, ","))
        return one;
    struct node *n = jinja_node_new(p, N_TUPLE, at), **tail = jinja_append(&n->items, one);
    while (!p->rc && jinja_skip(p, ",") && !ends_expression(p))
        tail = jinja_append(tail, parse_logic(p, true));
    return n;
}
