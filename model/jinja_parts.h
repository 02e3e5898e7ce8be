/* jinja_parts.h: what the parts of the template interpreter share: tokens, syntax trees, values, one rendering.
 *
 * Errors stick: jinja_fail keeps the first one in the rendering, and everything goes on with the undefined value until the next
 * loop or statement looks at `rc`. An expression has a dozen ways to fail in every line; a code handed up from each would
 * be half of the interpreter. Values live in the rendering's arena and are never freed one by one. */
#ifndef MODEL_JINJA_PARTS_H
#define MODEL_JINJA_PARTS_H

#include "base/arena.h"
#include "base/err.h"
#include "model/jinja.h"

#include <string.h>

struct span {
    const char *data;
    size_t n;
};
#define SPAN(literal) ((struct span){literal, sizeof(literal) - 1})
/* For "%.*s" in a message. */
#define SHOWN(s) (int)((s).n < 60 ? (s).n : 60), (s).data
static inline bool span_is(struct span s, const char *text)
{
    return strlen(text) == s.n && !memcmp(s.data, text, s.n);
}

/* Tokens (jinja_lex.c). */
enum lexeme_kind { T_END, T_DATA, T_PRINT, T_PRINT_END, T_BLOCK, T_BLOCK_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_OPERATOR };
struct lexeme {
    enum lexeme_kind kind;
    uint32_t at;      /* offset in the source */
    struct span text; /* a string's is decoded */
    union {
        int64_t i;
        double f;
    };
};
struct lexed {
    struct span source; /* with "\n" for every kind of line end, and without the last one */
    struct lexeme *tokens;
    size_t n, cap;
};
int jinja_lex(struct lexed *l, struct arena *a, const char *text, size_t n, struct hone_error *e);
/* "line 3, column 7: " and a message; returns HONE_EINPUT. */
int jinja_error(struct hone_error *e, struct span source, uint32_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Values (jinja_value.c). */
enum value_kind {
    V_UNDEFINED, /* text: the name that is not there */
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_VIEW, /* range(), keys(), values(), items(): to be walked as often as wanted, not subscripted */
    V_ITER, /* what map, select and the like give: walked once */
    V_DICT,
    V_NAMESPACE,
    V_MACRO,
    V_BUILTIN, /* i: enum builtin */
    V_METHOD,  /* text: its name; *self: whose */
    V_LOOP
};
struct value {
    enum value_kind kind;
    bool safe; /* a string marked by |safe: adding to it escapes */
    size_t n;  /* of a string */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct list *list;
        struct dict *dict;
        struct macro *macro;
        struct loop *loop;
        struct method *method;
    };
};
struct list {
    struct value *items;
    size_t n, cap;
};
struct dict {
    struct value *keys, *values;
    size_t n, cap;
};
struct method {
    struct span name;
    struct value self;
};
enum builtin { B_RANGE, B_DICT, B_NAMESPACE, B_RAISE, B_STRFTIME, B_LIPSUM, B_CYCLER, B_JOINER };

/* Syntax trees (jinja_parse.c, jinja_expression.c). */
enum node_kind {
    /* statements */
    N_DATA,         /* text */
    N_PRINT,        /* a */
    N_IF,           /* items: pairs condition (a), body (b); an else has no condition */
    N_FOR,          /* a: target, b: what to walk, c: filter or NULL, d: body, e: else */
    N_SET,          /* a: target, b: value */
    N_SET_BLOCK,    /* a: target, b: filter chain on N_HOLE or NULL, d: body */
    N_MACRO,        /* text: name, items: parameters (text, a: default), d: body */
    N_CALL_BLOCK,   /* a: call, b: macro for caller() */
    N_FILTER_BLOCK, /* b: filter chain on N_HOLE, d: body */
    N_SCOPE,        /* d: body, items: N_SET evaluated first: with, generation */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST,
    N_HOLE, /* what a filter block filters */
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,   /* items: key and value in turn */
    N_ATTR,   /* a.text */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[b:c:d] */
    N_CALL,   /* a(items) */
    N_FILTER, /* a|text(items) */
    N_TEST,   /* a is text(items) */
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_TERNARY,    /* b if a else c */
    N_COMPARE,    /* a, items: op and operand */
    N_ARITHMETIC, /* a op b */
    N_CONCAT,     /* items */
    N_NSREF       /* target name.attribute: text, b.text */
};
enum operator{ O_EQ, O_NE, O_LT, O_LE, O_GT, O_GE, O_IN, O_NOT_IN, O_ADD, O_SUB, O_MUL, O_DIV, O_FLOORDIV, O_MOD, O_POW };
struct node {
    enum node_kind kind;
    enum operator op;
    bool uses_caller; /* of a macro */
    uint32_t at;
    struct span text; /* also a keyword's, in a list of arguments */
    struct value value;
    struct node *a, *b, *c, *d, *e, *items, *next;
};
struct jinja {
    struct arena arena;
    struct span source;
    struct node *body; /* statements by next */
};
int jinja_parse_tokens(struct jinja *j, const struct lexed *l, struct hone_error *e);
enum { JINJA_NESTING = 300 }; /* of the source: a parenthesis costs the parser a dozen frames */

/* One rendering (jinja_eval.c). */
struct binding {
    struct span name;
    struct value value;
    struct binding *next;
};
struct scope {
    struct binding *first;
    struct scope *outer;
};
struct macro {
    const struct node *node;
    struct scope *scope;
};
struct loop {
    struct list *items;
    size_t i;
};
struct run {
    const struct jinja *j;
    struct arena arena;
    struct jinja_limits limits;
    uint64_t steps;
    int depth;
    int64_t now;
    struct scope *globals;
    struct text *out;
    struct value hole;
    char *grown; /* the string that was added to last: its end, and what is free behind it */
    size_t grown_free;
    const struct node *here; /* for what fails below an expression */
    int rc;
    struct hone_error *e;
};
struct value jinja_fail(struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts work; false when the rendering is over (an error, or no steps left). */
bool jinja_spend(struct run *r, uint64_t steps);
bool jinja_enter(struct run *r);
static inline void leave(struct run *r)
{
    r->depth--;
}
void *jinja_run_alloc(struct run *r, size_t n); /* NULL: rc is set */

static inline struct value undefined(struct span name)
{
    return (struct value){.kind = V_UNDEFINED, .s = name.data, .n = name.n};
}
static inline struct value of_bool(bool b)
{
    return (struct value){.kind = V_BOOL, .b = b};
}
static inline struct value of_int(int64_t i)
{
    return (struct value){.kind = V_INT, .i = i};
}
static inline struct value of_float(double f)
{
    return (struct value){.kind = V_FLOAT, .f = f};
}
static inline struct value of_span(struct span s)
{
    return (struct value){.kind = V_STRING, .s = s.data, .n = s.n};
}
static inline struct value of_none(void)
{
    return (struct value){.kind = V_NONE};
}
static inline struct span text_of(struct value v)
{
    return (struct span){v.s, v.n};
}
static inline bool is_list(struct value v)
{
    return v.kind >= V_LIST && v.kind <= V_ITER;
}
static inline bool is_number(struct value v)
{
    return v.kind >= V_BOOL && v.kind <= V_FLOAT;
}
static inline double as_double(struct value v)
{
    return v.kind == V_FLOAT ? v.f : v.kind == V_INT ? (double)v.i : v.b;
}
static inline int64_t as_int(struct value v) /* of a bool or an int */
{
    return v.kind == V_BOOL ? v.b : v.i;
}
const char *jinja_kind_name(struct value v);
bool jinja_truth(struct value v);
struct value jinja_list_new(struct run *r, enum value_kind kind);
void jinja_list_add(struct run *r, struct list *l, struct value v);
struct value jinja_pair(struct run *r, struct value a, struct value b);
struct value jinja_dict_new(struct run *r, enum value_kind kind);
void jinja_dict_set(struct run *r, struct dict *d, struct value key, struct value v);
const struct value *jinja_dict_find(struct run *r, const struct dict *d, struct value key);
bool jinja_values_equal(struct run *r, struct value a, struct value b);
/* < 0, 0, > 0; fails for what has no order. */
int jinja_values_order(struct run *r, struct value a, struct value b);
/* The items of anything that can be walked, as a list; fails for the rest. */
struct list *jinja_walk(struct run *r, struct value v);
int64_t jinja_length_of(struct run *r, struct value v); /* fails where Python's len would */
struct value jinja_from_json(struct run *r, const json_t *j);
/* Strings. */
struct value jinja_string_new(struct run *r, const char *s, size_t n);
struct value jinja_joined(struct run *r, struct span a, struct span b);
struct span jinja_str(struct run *r, struct value v); /* Python's jinja_str() */
struct json_style {
    const char *indent; /* one level's, or NULL */
    struct span item, key;
    bool ascii, sort;
};
void jinja_put_json(struct run *r, struct text *t, struct value v, const struct json_style *style, int level);
void jinja_put_text(struct run *r, struct text *t, const char *s, size_t n);
void jinja_put_repr(struct run *r, struct text *t, struct value v);
struct value jinja_taken(struct run *r, struct text *t); /* a string of what t holds; frees t */
/* Code points (jinja_string.c). */
size_t jinja_points(struct span s);
size_t jinja_point_offset(struct span s, size_t index);
struct span jinja_stripped(struct span s, const struct span *chars, bool left, bool right);
enum lettering { UPPER, LOWER, CAPITAL, TITLE, TITLE_FILTER };
struct value jinja_lettered(struct run *r, struct span s, enum lettering how);
struct value jinja_replaced(struct run *r, struct span s, struct span from, struct span to, int64_t count);
struct value jinja_split_lines(struct run *r, struct span s, bool keep);
struct value jinja_escaped(struct run *r, struct span s);
const char *jinja_find_span(struct run *r, struct span in, struct span what);
int jinja_put_utf8(char *to, uint32_t point);

/* Arguments of a call: the positional ones, then those with a keyword. */
struct args {
    struct value *v;
    struct span *names; /* empty for positional ones */
    int n;
};
enum { MAX_PARAMETERS = 6 };
/* Sorts arguments into parameters ("width", "first"...; *given tells which came); fails for surplus and unknown ones. */
bool jinja_bind_args(struct run *r, const char *what, const struct args *in, const char *const *names, int n_names,
                     struct value *out, bool *given);
struct value jinja_get_attr(struct run *r, struct value of, struct span name);
struct value jinja_get_item(struct run *r, struct value of, struct value key);
struct value jinja_call_method(struct run *r, const struct method *m, const struct args *args); /* jinja_methods.c */
struct value jinja_call_value(struct run *r, struct value f, const struct args *args);
struct value jinja_call_builtin(struct run *r, enum builtin f, const struct args *args);
struct value jinja_call_filter(struct run *r, struct span name, struct value v, const struct args *args); /* jinja_filters.c */
bool jinja_call_test(struct run *r, struct span name, struct value v, const struct args *args);           /* jinja_tests.c */
bool jinja_is_filter(struct span name);
bool jinja_is_test(struct span name);
struct value jinja_arithmetic(struct run *r, enum operator op, struct value a, struct value b); /* jinja_arithmetic.c */
bool jinja_compare(struct run *r, enum operator op, struct value a, struct value b);

#endif
