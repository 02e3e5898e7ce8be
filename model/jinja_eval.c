/* jinja_eval.c: walks a template's syntax tree: statements write, expressions give values.
 *
 * Names: every for-round, macro call and block has a scope of its own; `set` binds in the innermost one, a look-up goes
 * outward, and a macro looks from where it was defined. `if` has no scope. That is what Jinja's compiler arrives at by
 * analysis.
 *
 * Hostile templates end by their own doing: each node is a step, each 64 bytes handled another; depth and memory are
 * counted, and the first error stops all. Python's recursion limit is 1000 frames too, so no real template is deeper.
 *
 * Compiling to byte code first was not worth its length: a prompt is rendered in well under a millisecond, and then read for
 * seconds. */
#include "model/jinja_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum flow { GO_ON, BREAK_LOOP, CONTINUE_LOOP };
static enum flow exec(struct run *r, const struct node *body, struct scope *scope);
static struct value eval(struct run *r, const struct node *n, struct scope *scope);

struct value jinja_fail(struct run *r, const char *format, ...)
{
    char message[200];
    if (!r->rc) {
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof message, format, args);
        va_end(args);
        r->rc = jinja_error(r->e, r->j->source, r->here ? r->here->at : 0, "%s", message);
    }
    return undefined(SPAN(""));
}

bool jinja_spend(struct run *r, uint64_t steps)
{
    if (r->rc)
        return false;
    r->steps += steps;
    if (r->steps > r->limits.steps)
        jinja_fail(r, "the template runs for more than %llu steps", (unsigned long long)r->limits.steps);
    return !r->rc;
}

bool jinja_enter(struct run *r)
{
    r->depth++;
    if (r->depth > r->limits.depth)
        jinja_fail(r, "more than %d things within each other", r->limits.depth);
    return !r->rc;
}

void *jinja_run_alloc(struct run *r, size_t n)
{
    if (!jinja_spend(r, n / 64))
        return NULL;
    void *p = NULL;
    if (n > r->limits.memory || r->arena.used > r->limits.memory - n)
        jinja_fail(r, "the template wants more than %zu bytes of memory", r->limits.memory);
    else if (!(p = arena_alloc(&r->arena, n)))
        r->rc = err_set(r->e, HONE_ERESOURCE, "out of memory for a chat template's values");
    return p;
}

static struct scope *scope_new(struct run *r, struct scope *outer)
{
    struct scope *s = jinja_run_alloc(r, sizeof *s);
    if (s)
        s->outer = outer;
    return s;
}

static struct binding *binding_in(struct run *r, const struct scope *s, struct span name)
{
    for (struct binding *b = s->first; b && jinja_spend(r, 1); b = b->next)
        if (b->name.n == name.n && !memcmp(b->name.data, name.data, name.n))
            return b;
    return NULL;
}

static void bind(struct run *r, struct scope *s, struct span name, struct value v)
{
    struct binding *b = binding_in(r, s, name);
    if (!b && (b = jinja_run_alloc(r, sizeof *b))) {
        b->name = name;
        b->next = s->first;
        s->first = b;
    }
    if (b)
        b->value = v;
}

static struct value look_up(struct run *r, const struct scope *s, struct span name)
{
    static const char *const builtins[] = {"range",        "dict",   "namespace", "raise_exception",
                                           "strftime_now", "lipsum", "cycler",    "joiner"};
    for (; s; s = s->outer) {
        const struct binding *b = binding_in(r, s, name);
        if (b)
            return b->value;
    }
    for (int i = 0; i < (int)(sizeof builtins / sizeof *builtins); i++)
        if (span_is(name, builtins[i]) && (i != B_STRFTIME || r->now >= 0))
            return (struct value){.kind = V_BUILTIN, .i = i};
    return undefined(name);
}

/* Assigns to a name, a namespace's attribute, or a tuple of names. */
static void assign(struct run *r, const struct node *target, struct value v, struct scope *scope)
{
    r->here = target;
    if (!jinja_spend(r, 1))
        return;
    if (target->kind == N_NAME) {
        bind(r, scope, target->text, v);
        return;
    }
    if (target->kind == N_NSREF) {
        struct value ns = look_up(r, scope, target->text);
        if (ns.kind != V_NAMESPACE)
            jinja_fail(r, "'%.*s' is no namespace", SHOWN(target->text));
        else
            jinja_dict_set(r, ns.dict, of_span(target->b->text), v);
        return;
    }
    struct list *l = jinja_walk(r, v);
    size_t i = 0;
    for (const struct node *n = target->items; n && !r->rc; n = n->next, i++) {
        if (i >= l->n)
            jinja_fail(r, "fewer values than names");
        else
            assign(r, n, l->items[i], scope);
        r->here = target;
    }
    if (!r->rc && i < l->n)
        jinja_fail(r, "more values than names");
}

static void write_out(struct run *r, struct span s)
{
    if (!jinja_spend(r, 1 + s.n / 64))
        return;
    jinja_put_text(r, r->out, s.data, s.n);
}

/* What a body writes, as a string. */
static struct value captured(struct run *r, const struct node *body, struct scope *scope)
{
    struct text mine = {0}, *outer = r->out;
    r->out = &mine;
    exec(r, body, scope);
    r->out = outer;
    return jinja_taken(r, &mine);
}

static void eval_args(struct run *r, const struct node *items, struct scope *scope, struct args *a)
{
    int n = 0;
    for (const struct node *i = items; i; i = i->next)
        n++;
    *a = (struct args){.v = jinja_run_alloc(r, (size_t)(n + 1) * sizeof *a->v)};
    a->names = jinja_run_alloc(r, (size_t)(n + 1) * sizeof *a->names); /* one more: for caller */
    for (const struct node *i = items; i && !r->rc; i = i->next) {
        for (int k = 0; k < a->n && i->text.n; k++)
            if (a->names[k].n == i->text.n && !memcmp(a->names[k].data, i->text.data, i->text.n))
                jinja_fail(r, "the argument '%.*s' comes twice", SHOWN(i->text));
        struct value v = eval(r, i->a, scope);
        if (r->rc)
            return;
        a->v[a->n] = v;
        a->names[a->n++] = i->text;
    }
}

static struct value call_macro(struct run *r, const struct macro *m, const struct args *args)
{
    struct scope *scope = scope_new(r, m->scope);
    int positional = 0, used = 0, n = 0;
    struct value result = undefined(SPAN(""));
    while (positional < args->n && !args->names[positional].n)
        positional++;
    if (!scope || !jinja_enter(r)) {
        leave(r);
        return result;
    }
    for (const struct node *p = m->node->items; p && !r->rc; p = p->next, n++) {
        int k = n < positional ? n : -1;
        for (int i = positional; i < args->n; i++)
            if (args->names[i].n == p->text.n && !memcmp(args->names[i].data, p->text.data, p->text.n)) {
                if (k >= 0)
                    jinja_fail(r, "the argument '%.*s' comes twice", SHOWN(p->text));
                k = i;
            }
        used += k >= 0;
        struct value v = k >= 0 ? args->v[k] : p->a ? eval(r, p->a, scope) : undefined(p->text);
        if (!r->rc)
            bind(r, scope, p->text, v);
    }
    struct value caller = undefined(SPAN("caller"));
    for (int i = positional; i < args->n && m->node->uses_caller; i++)
        if (span_is(args->names[i], "caller")) {
            caller = args->v[i];
            used++;
        }
    if (!r->rc && used != args->n)
        jinja_fail(r, "the macro '%.*s' does not take these arguments", SHOWN(m->node->text));
    if (!r->rc && m->node->uses_caller)
        bind(r, scope, SPAN("caller"), caller);
    if (!r->rc)
        result = captured(r, m->node->d, scope);
    leave(r);
    return result;
}

struct value jinja_call_value(struct run *r, struct value f, const struct args *args)
{
    if (r->rc)
        return f;
    switch (f.kind) {
    case V_MACRO:
        return call_macro(r, f.macro, args);
    case V_METHOD:
        return jinja_call_method(r, f.method, args);
    case V_BUILTIN:
        return jinja_call_builtin(r, (enum builtin)f.i, args);
    case V_UNDEFINED:
        return jinja_fail(r, "'%.*s' is not defined, so it cannot be called", SHOWN(text_of(f)));
    default:
        return jinja_fail(r, "%s cannot be called", jinja_kind_name(f));
    }
}

static struct value eval_list(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v = jinja_list_new(r, n->kind == N_LIST ? V_LIST : V_TUPLE);
    for (const struct node *i = n->items; i && !r->rc; i = i->next) {
        struct value item = eval(r, i, scope);
        if (!r->rc)
            jinja_list_add(r, v.list, item);
    }
    return v;
}

static struct value eval_dict(struct run *r, const struct node *n, struct scope *scope)
{
    struct value d = jinja_dict_new(r, V_DICT);
    for (const struct node *i = n->items; i && i->next && !r->rc; i = i->next->next) {
        struct value key = eval(r, i, scope), v = eval(r, i->next, scope);
        if (!r->rc)
            jinja_dict_set(r, d.dict, key, v);
    }
    return d;
}

static struct value eval_slice(struct run *r, const struct node *n, struct scope *scope)
{
    struct value of = eval(r, n->a, scope), bound[3];
    const struct node *const from[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3; i++) {
        bound[i] = from[i] ? eval(r, from[i], scope) : of_none();
        if (!r->rc && bound[i].kind != V_NONE && bound[i].kind != V_INT && bound[i].kind != V_BOOL)
            return jinja_fail(r, "a slice's bound is %s, not an integer", jinja_kind_name(bound[i]));
    }
    r->here = n;
    if (r->rc || (of.kind != V_STRING && of.kind != V_LIST && of.kind != V_TUPLE))
        return jinja_fail(r, "%s has no slices", jinja_kind_name(of));
    int64_t size = jinja_length_of(r, of), step = bound[2].kind == V_NONE ? 1 : as_int(bound[2]);
    if (step == 0 || step == INT64_MIN)
        return jinja_fail(r, "a slice's step is 0 or too large");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1,
            ends[2] = {step > 0 ? low : high, step > 0 ? high : low};
    for (int i = 0; i < 2; i++)
        if (bound[i].kind != V_NONE) {
            int64_t v = as_int(bound[i]);
            v = v < 0 ? v + size : v;
            ends[i] = v < low ? low : v > high ? high : v;
        }
    struct span s = of.kind == V_STRING ? text_of(of) : SPAN("");
    if (of.kind == V_STRING && step == 1) {
        size_t a = jinja_point_offset(s, (size_t)ends[0]),
               b = jinja_point_offset(s, (size_t)(ends[1] > ends[0] ? ends[1] : ends[0]));
        jinja_spend(r, s.n / 64);
        return of_span((struct span){s.data + a, b - a});
    }
    struct value out = jinja_list_new(r, of.kind == V_TUPLE ? V_TUPLE : V_LIST);
    struct list *items = of.kind == V_STRING ? jinja_walk(r, of) : of.list;
    for (int64_t i = ends[0]; (step > 0 ? i < ends[1] : i > ends[1]) && !r->rc; i += step) {
        jinja_list_add(r, out.list, items->items[i]);
        if (step > size || step < -size)
            break;
    }
    if (of.kind != V_STRING || r->rc)
        return out;
    struct text t = {0};
    for (size_t i = 0; i < out.list->n; i++)
        jinja_put_text(r, &t, out.list->items[i].s, out.list->items[i].n);
    return jinja_taken(r, &t);
}

static struct value eval_compare(struct run *r, const struct node *n, struct scope *scope)
{
    struct value left = eval(r, n->a, scope);
    for (const struct node *i = n->items; i && !r->rc; i = i->next) {
        struct value right = eval(r, i->a, scope);
        r->here = n;
        if (r->rc || !jinja_compare(r, i->op, left, right))
            return of_bool(false);
        left = right;
    }
    return of_bool(true);
}

static struct value eval_logic(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v = of_none();
    for (const struct node *i = n->items; i && !r->rc; i = i->next) {
        v = eval(r, i, scope);
        if (jinja_truth(v) == (n->kind == N_OR))
            break;
    }
    return v;
}

static struct value eval_concat(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v = of_span(SPAN(""));
    for (const struct node *i = n->items; i && !r->rc; i = i->next) {
        struct value item = eval(r, i, scope);
        struct span s = jinja_str(r, item);
        v = i == n->items ? of_span(s) : jinja_joined(r, text_of(v), s);
    }
    return v;
}

static struct value eval_sign(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v = eval(r, n->a, scope);
    r->here = n;
    if (r->rc || !is_number(v))
        return jinja_fail(r, "%s has no sign", jinja_kind_name(v));
    if (v.kind == V_FLOAT)
        return of_float(n->kind == N_NEG ? -v.f : v.f);
    return n->kind == N_POS ? of_int(as_int(v)) : jinja_arithmetic(r, O_SUB, of_int(0), v);
}

/* A call, a filter or a test: what it is of, and its arguments. */
static struct value eval_call(struct run *r, const struct node *n, struct scope *scope)
{
    struct args args;
    struct value of = eval(r, n->a, scope);
    if (r->rc)
        return of;
    eval_args(r, n->items, scope, &args);
    r->here = n;
    if (r->rc)
        return of;
    if (n->kind == N_CALL)
        return jinja_call_value(r, of, &args);
    return n->kind == N_FILTER ? jinja_call_filter(r, n->text, of, &args) : of_bool(jinja_call_test(r, n->text, of, &args));
}

static struct value eval_node(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v, w;
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_HOLE:
        return r->hole;
    case N_NAME:
        return look_up(r, scope, n->text);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n, scope);
    case N_DICT:
        return eval_dict(r, n, scope);
    case N_ATTR:
        v = eval(r, n->a, scope);
        r->here = n;
        return jinja_get_attr(r, v, n->text);
    case N_ITEM:
        v = eval(r, n->a, scope);
        w = eval(r, n->b, scope);
        r->here = n;
        return jinja_get_item(r, v, w);
    case N_SLICE:
        return eval_slice(r, n, scope);
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        return eval_call(r, n, scope);
    case N_NOT:
        return of_bool(!jinja_truth(eval(r, n->a, scope)));
    case N_NEG:
    case N_POS:
        return eval_sign(r, n, scope);
    case N_AND:
    case N_OR:
        return eval_logic(r, n, scope);
    case N_TERNARY:
        if (jinja_truth(eval(r, n->a, scope)))
            return eval(r, n->b, scope);
        return n->c ? eval(r, n->c, scope) : undefined(SPAN("the else of an if"));
    case N_COMPARE:
        return eval_compare(r, n, scope);
    case N_ARITHMETIC:
        v = eval(r, n->a, scope);
        w = eval(r, n->b, scope);
        r->here = n;
        return r->rc ? v : jinja_arithmetic(r, n->op, v, w);
    case N_CONCAT:
        return eval_concat(r, n, scope);
    default:
        return jinja_fail(r, "no expression");
    }
}

static struct value eval(struct run *r, const struct node *n, struct scope *scope)
{
    r->here = n;
    if (!jinja_spend(r, 1) || !jinja_enter(r))
        return undefined(SPAN(""));
    struct value v = eval_node(r, n, scope);
    leave(r);
    return r->rc ? undefined(SPAN("")) : v;
}

static enum flow exec_for(struct run *r, const struct node *n, struct scope *scope)
{
    struct value over = eval(r, n->b, scope);
    r->here = n->b;
    struct list *items = jinja_walk(r, over);
    if (n->c && !r->rc) {
        struct value kept = jinja_list_new(r, V_LIST);
        for (size_t i = 0; i < items->n && !r->rc; i++) {
            struct scope *inner = scope_new(r, scope);
            if (!inner)
                break;
            assign(r, n->a, items->items[i], inner);
            if (!r->rc && jinja_truth(eval(r, n->c, inner)))
                jinja_list_add(r, kept.list, items->items[i]);
        }
        items = kept.list;
    }
    struct loop *loop = jinja_run_alloc(r, sizeof *loop);
    if (r->rc)
        return GO_ON;
    *loop = (struct loop){items, 0};
    for (; loop->i < items->n && jinja_spend(r, 1); loop->i++) {
        struct scope *inner = scope_new(r, scope);
        if (!inner)
            break;
        bind(r, inner, SPAN("loop"), (struct value){.kind = V_LOOP, .loop = loop});
        assign(r, n->a, items->items[loop->i], inner);
        if (!r->rc && exec(r, n->d, inner) == BREAK_LOOP)
            break;
    }
    if (items->n || !n->e || r->rc)
        return GO_ON;
    struct scope *inner = scope_new(r, scope);
    return inner ? exec(r, n->e, inner) : GO_ON;
}

static enum flow exec_if(struct run *r, const struct node *n, struct scope *scope)
{
    for (const struct node *i = n->items; i && !r->rc; i = i->next)
        if (!i->a || (jinja_truth(eval(r, i->a, scope)) && !r->rc))
            return exec(r, i->b, scope);
    return GO_ON;
}

/* set and filter blocks: what the body writes, filtered. */
static struct value filtered(struct run *r, const struct node *n, struct scope *scope)
{
    struct scope *inner = scope_new(r, scope);
    struct value outer = r->hole, v = inner ? captured(r, n->d, inner) : outer;
    r->hole = v;
    if (n->b && !r->rc)
        v = eval(r, n->b, scope);
    r->hole = outer;
    return v;
}

static void exec_call_block(struct run *r, const struct node *n, struct scope *scope)
{
    struct macro *caller = jinja_run_alloc(r, sizeof *caller);
    struct args args;
    struct value of = eval(r, n->a->a, scope);
    eval_args(r, n->a->items, scope, &args);
    if (r->rc)
        return;
    *caller = (struct macro){n->b, scope};
    args.v[args.n] = (struct value){.kind = V_MACRO, .macro = caller};
    args.names[args.n++] = SPAN("caller");
    r->here = n;
    struct value v = jinja_call_value(r, of, &args);
    write_out(r, jinja_str(r, v));
}

static enum flow exec_scope(struct run *r, const struct node *n, struct scope *scope)
{
    struct scope *inner = scope_new(r, scope);
    for (const struct node *i = n->items; i && !r->rc; i = i->next) {
        struct value v = eval(r, i->b, scope);
        if (!r->rc)
            assign(r, i->a, v, inner);
    }
    return r->rc ? GO_ON : exec(r, n->d, inner);
}

static enum flow exec_one(struct run *r, const struct node *n, struct scope *scope)
{
    struct value v;
    r->here = n;
    switch (n->kind) {
    case N_DATA:
        write_out(r, n->text);
        break;
    case N_PRINT:
        v = eval(r, n->a, scope);
        r->here = n;
        write_out(r, jinja_str(r, v));
        break;
    case N_IF:
        return exec_if(r, n, scope);
    case N_FOR:
        return exec_for(r, n, scope);
    case N_SET:
        v = eval(r, n->b, scope);
        if (!r->rc)
            assign(r, n->a, v, scope);
        break;
    case N_SET_BLOCK:
        v = filtered(r, n, scope);
        if (!r->rc)
            assign(r, n->a, v, scope);
        break;
    case N_FILTER_BLOCK:
        v = filtered(r, n, scope);
        write_out(r, jinja_str(r, v));
        break;
    case N_MACRO: {
        struct macro *m = jinja_run_alloc(r, sizeof *m);
        if (!m)
            break;
        *m = (struct macro){n, scope};
        bind(r, scope, n->text, (struct value){.kind = V_MACRO, .macro = m});
        break;
    }
    case N_CALL_BLOCK:
        exec_call_block(r, n, scope);
        break;
    case N_SCOPE:
        return exec_scope(r, n, scope);
    case N_BREAK:
        return BREAK_LOOP;
    case N_CONTINUE:
        return CONTINUE_LOOP;
    default:
        jinja_fail(r, "no statement");
        break;
    }
    return GO_ON;
}

static enum flow exec(struct run *r, const struct node *body, struct scope *scope)
{
    enum flow flow = GO_ON;
    if (!jinja_enter(r)) {
        leave(r);
        return flow;
    }
    for (const struct node *n = body; n && flow == GO_ON && jinja_spend(r, 1); n = n->next)
        flow = exec_one(r, n, scope);
    leave(r);
    return flow;
}

int jinja_render(const struct jinja *j, const json_t *context, int64_t now, const struct jinja_limits *limits, struct text *out,
                 struct hone_error *e)
{
    static const struct jinja_limits defaults = {20000000, (size_t)256 << 20, (size_t)64 << 20, 1000};
    struct text mine = {0};
    struct run r = {.j = j, .limits = limits ? *limits : defaults, .now = now, .out = &mine, .e = e};
    r.limits.steps = r.limits.steps ? r.limits.steps : defaults.steps;
    r.limits.memory = r.limits.memory ? r.limits.memory : defaults.memory;
    r.limits.output = r.limits.output ? r.limits.output : defaults.output;
    r.limits.depth = r.limits.depth ? r.limits.depth : defaults.depth;
    r.hole = undefined(SPAN(""));
    struct scope *scope = scope_new(&r, scope_new(&r, NULL));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)context, key, value)
    {
        if (r.rc)
            break;
        struct value name = jinja_string_new(&r, key, strlen(key)), v = jinja_from_json(&r, value);
        if (!r.rc)
            bind(&r, scope->outer, text_of(name), v);
    }
    if (!r.rc)
        exec(&r, j->body, scope);
    if (!r.rc)
        r.rc = text_append(out, mine.data, mine.n, e);
    text_free(&mine);
    arena_free(&r.arena);
    return r.rc;
}
