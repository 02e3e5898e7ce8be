/* jinja_parse.c: statements of templates, from tokens to a syntax tree; expressions are jinja_expression.c's.
 *
 * Known tags: if, for, set, macro, call, filter, with, break, continue, generation (which Hugging Face adds; it shows what a
 * model wrote and changes no text). Others are refused with their place, among them what would need another file (include,
 * import, extends, block) and do, which Hugging Face does not switch on.
 *
 * A loop in a loop's target, recursive loops and names of loop's own are refused too. */
#include "model/jinja_parser.h"

#include <stdlib.h>

static struct node *parse_body(struct parser *p, const char *const *ends);

static struct node *parse_target(struct parser *p, bool namespaces)
{
    static const char *const reserved[] = {"loop", "true", "false", "none", "True", "False", "None", "caller"};
    struct node *first = NULL, **tail = &first;
    uint32_t at = p->t->at;
    bool comma = false;
    if (!jinja_deeper(p))
        return NULL;
    do {
        if (comma && p->t->kind != T_NAME && !jinja_is_operator(p, "("))
            break;
        struct node *one = jinja_node_new(p, N_NAME, p->t->at);
        if (jinja_skip(p, "(")) {
            one = parse_target(p, false);
            jinja_expect(p, ")");
        } else {
            one->text = jinja_expect_name(p);
            for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
                if (span_is(one->text, reserved[i]))
                    return jinja_refuse(p, one->at, "a name that cannot be set");
            if (namespaces && jinja_skip(p, ".")) {
                one->kind = N_NSREF;
                one->b = jinja_node_new(p, N_NAME, p->t->at);
                one->b->text = jinja_expect_name(p);
            }
        }
        tail = jinja_append(tail, one);
    } while (!p->rc && jinja_skip(p, ",") && (comma = true));
    p->nesting--;
    if (p->rc || !comma)
        return first;
    struct node *tuple = jinja_node_new(p, N_TUPLE, at);
    tuple->items = first;
    return tuple;
}

static void end_tag(struct parser *p)
{
    if (!p->rc && p->t->kind != T_BLOCK_END)
        jinja_refuse_token(p, "the end of the tag");
    if (!p->rc)
        jinja_advance(p);
}

/* The word of the tag that ended a body: stands behind "{%". */
static void skip_end(struct parser *p)
{
    jinja_advance(p);
    end_tag(p);
}

static struct node *parse_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    struct node **tail = &n->items;
    n->kind = N_IF;
    p->ifs++;
    while (!p->rc) {
        struct node *branch = jinja_node_new(p, N_IF, p->t->at);
        branch->a = jinja_parse_plain(p);
        end_tag(p);
        branch->b = parse_body(p, ends);
        tail = jinja_append(tail, branch);
        if (!p->rc && jinja_is_word(p, "elif")) {
            jinja_advance(p);
            continue;
        }
        if (!p->rc && jinja_is_word(p, "else")) {
            skip_end(p);
            branch = jinja_node_new(p, N_IF, p->t->at);
            branch->b = parse_body(p, last);
            tail = jinja_append(tail, branch);
        }
        break;
    }
    p->ifs--;
    if (!p->rc)
        skip_end(p);
    return n;
}

static struct node *parse_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    n->kind = N_FOR;
    n->a = parse_target(p, false);
    jinja_expect(p, "in");
    if (!p->rc)
        n->b = jinja_parse_plain(p);
    if (!p->rc && jinja_skip(p, "if"))
        n->c = jinja_parse_ternary(p);
    if (!p->rc && jinja_is_word(p, "recursive"))
        return jinja_refuse(p, p->t->at, "recursive loops are not known");
    end_tag(p);
    p->loops++;
    n->d = parse_body(p, ends);
    p->loops--;
    if (!p->rc && jinja_is_word(p, "else")) {
        skip_end(p);
        n->e = parse_body(p, last);
    }
    if (!p->rc)
        skip_end(p);
    return n;
}

/* Filters on what a block writes: a chain that begins with N_HOLE. */
static struct node *parse_block_filters(struct parser *p)
{
    struct node *hole = jinja_node_new(p, N_HOLE, p->t->at);
    return jinja_parse_filters(p, hole);
}

static struct node *parse_set(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endset", NULL};
    n->kind = N_SET;
    n->a = parse_target(p, true);
    if (!p->rc && jinja_skip(p, "=")) {
        n->b = jinja_parse_tuple(p);
        end_tag(p);
        return n;
    }
    n->kind = N_SET_BLOCK;
    n->b = p->rc ? NULL : parse_block_filters(p);
    end_tag(p);
    n->d = parse_body(p, ends);
    if (!p->rc)
        skip_end(p);
    return n;
}

static void parse_parameters(struct parser *p, struct node *macro)
{
    struct node **tail = &macro->items;
    bool defaults = false;
    jinja_expect(p, "(");
    while (!p->rc && !jinja_is_operator(p, ")")) {
        struct node *one = jinja_node_new(p, N_NAME, p->t->at);
        one->text = jinja_expect_name(p);
        for (struct node *q = macro->items; q && !p->rc; q = q->next)
            if (q->text.n == one->text.n && !memcmp(q->text.data, one->text.data, q->text.n))
                jinja_refuse(p, one->at, "a parameter that is there already");
        if (!p->rc && jinja_skip(p, "=")) {
            one->a = jinja_parse_ternary(p);
            defaults = true;
        } else if (defaults) {
            jinja_refuse(p, one->at, "a parameter without a default behind one that has one");
        }
        tail = jinja_append(tail, one);
        if (!p->rc && !jinja_is_operator(p, ")"))
            jinja_expect(p, ",");
    }
    jinja_expect(p, ")");
}

/* Parameters, the end of the tag and a body: what macros and call blocks share. */
static void parse_macro_body(struct parser *p, struct node *macro, const char *const *ends)
{
    int loops = p->loops;
    bool outer = p->uses_caller;
    p->loops = 0;
    p->macros++;
    p->uses_caller = false;
    macro->d = parse_body(p, ends);
    macro->uses_caller = p->uses_caller;
    p->uses_caller = outer;
    p->macros--;
    p->loops = loops;
    if (!p->rc)
        skip_end(p);
}

static struct node *parse_macro(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endmacro", NULL};
    n->kind = N_MACRO;
    n->text = jinja_expect_name(p);
    parse_parameters(p, n);
    end_tag(p);
    parse_macro_body(p, n, ends);
    return n;
}

static struct node *parse_call_block(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endcall", NULL};
    n->kind = N_CALL_BLOCK;
    n->b = jinja_node_new(p, N_MACRO, n->at);
    n->b->text = SPAN("caller");
    if (jinja_is_operator(p, "("))
        parse_parameters(p, n->b);
    uint32_t at = p->t->at;
    n->a = p->rc ? NULL : jinja_parse_ternary(p);
    if (!p->rc && n->a->kind != N_CALL)
        return jinja_refuse(p, at, "a call block wants a call");
    end_tag(p);
    parse_macro_body(p, n->b, ends);
    return n;
}

static struct node *parse_filter_block(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endfilter", NULL};
    n->kind = N_FILTER_BLOCK;
    n->b = jinja_parse_filter(p, jinja_node_new(p, N_HOLE, p->t->at));
    if (!p->rc)
        n->b = jinja_parse_filters(p, n->b);
    end_tag(p);
    n->d = parse_body(p, ends);
    if (!p->rc)
        skip_end(p);
    return n;
}

static struct node *parse_with(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endwith", NULL};
    struct node **tail = &n->items;
    n->kind = N_SCOPE;
    while (!p->rc && p->t->kind != T_BLOCK_END) {
        struct node *set = jinja_node_new(p, N_SET, p->t->at);
        set->a = jinja_node_new(p, N_NAME, p->t->at);
        set->a->text = jinja_expect_name(p);
        jinja_expect(p, "=");
        set->b = p->rc ? NULL : jinja_parse_ternary(p);
        tail = jinja_append(tail, set);
        if (!p->rc && p->t->kind != T_BLOCK_END)
            jinja_expect(p, ",");
    }
    end_tag(p);
    n->d = parse_body(p, ends);
    if (!p->rc)
        skip_end(p);
    return n;
}

static struct node *parse_generation(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"endgeneration", NULL};
    int loops = p->loops;
    n->kind = N_SCOPE;
    end_tag(p);
    p->loops = 0; /* it is a call block to Jinja: no way out of a loop around it */
    n->d = parse_body(p, ends);
    p->loops = loops;
    if (!p->rc)
        skip_end(p);
    return n;
}

static struct node *parse_break(struct parser *p, struct node *n)
{
    n->kind = span_is(n->text, "break") ? N_BREAK : N_CONTINUE;
    if (!p->loops)
        return jinja_refuse(p, n->at, "break and continue belong in a loop");
    end_tag(p);
    return n;
}

static struct node *parse_statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *, struct node *);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_break},
    };
    struct node *n = jinja_node_new(p, N_SCOPE, p->t->at);
    n->text = jinja_expect_name(p);
    for (size_t i = 0; i < sizeof tags / sizeof *tags && !p->rc; i++)
        if (span_is(n->text, tags[i].name))
            return tags[i].parse(p, n);
    if (!p->rc)
        p->rc = jinja_error(p->e, p->j->source, n->at, "the tag '%.*s' is not known here", SHOWN(n->text));
    return NULL;
}

static const char *last_of(const char *const *ends)
{
    while (ends[1])
        ends++;
    return *ends;
}

/* Statements up to a tag of `ends` (NULL: up to the end), of which the word is the next token. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *first = NULL, **tail = &first;
    uint32_t opened = p->t->at;
    if (!jinja_deeper(p))
        return NULL;
    while (!p->rc) {
        const struct lexeme *t = p->t;
        struct node *n = NULL;
        if (t->kind == T_END) {
            if (ends)
                p->rc = jinja_error(p->e, p->j->source, opened, "a block that does not end: '%s' is missing", last_of(ends));
            break;
        }
        jinja_advance(p);
        if (t->kind == T_DATA) {
            n = jinja_node_new(p, N_DATA, t->at);
            n->text = t->text;
        } else if (t->kind == T_PRINT) {
            n = jinja_node_new(p, N_PRINT, t->at);
            n->a = jinja_parse_tuple(p);
            if (!p->rc && p->t->kind != T_PRINT_END)
                jinja_refuse_token(p, "'}}'");
            if (!p->rc)
                jinja_advance(p);
        } else {
            for (int i = 0; ends && ends[i]; i++)
                if (jinja_is_word(p, ends[i])) {
                    p->nesting--;
                    return first;
                }
            n = parse_statement(p);
        }
        tail = jinja_append(tail, n);
    }
    p->nesting--;
    return first;
}

int jinja_parse_tokens(struct jinja *j, const struct lexed *l, struct hone_error *e)
{
    struct parser p = {.j = j, .t = l->tokens, .e = e};
    j->source = l->source;
    j->body = parse_body(&p, NULL);
    return p.rc;
}

int jinja_parse(struct jinja **out, const char *text, size_t n, struct hone_error *e)
{
    struct jinja *j = calloc(1, sizeof *j);
    struct lexed l;
    *out = NULL;
    if (!j)
        return err_set(e, HONE_ERESOURCE, "out of memory for a chat template");
    int rc = jinja_lex(&l, &j->arena, text, n, e);
    if (!rc)
        rc = jinja_parse_tokens(j, &l, e);
    if (rc) {
        jinja_free(j);
        return rc;
    }
    *out = j;
    return 0;
}

void jinja_free(struct jinja *j)
{
    if (!j)
        return;
    arena_free(&j->arena);
    free(j);
}
