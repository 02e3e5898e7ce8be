/* jinja_parser.h: the parser's state, and what its two halves (jinja_parse.c: statements; jinja_expression.c) need of each
 * other. The first error sticks in rc; functions then give NULL or a node that nobody will see. */
#ifndef MODEL_JINJA_PARSER_H
#define MODEL_JINJA_PARSER_H

#include "model/jinja_parts.h"

struct parser {
    struct jinja *j;
    const struct lexeme *t;
    struct hone_error *e;
    int rc, nesting;
    int loops;        /* open for-loops of this macro */
    int macros;       /* open macros */
    int ifs;          /* open ifs: a filter or test that is not known is refused there only when it is reached */
    bool uses_caller; /* the macro that is open asks for caller */
};

struct node *jinja_refuse(struct parser *p, uint32_t at, const char *what);
struct node *jinja_refuse_token(struct parser *p, const char *wanted);
struct node *jinja_node_new(struct parser *p, enum node_kind kind, uint32_t at); /* never NULL */
struct node **jinja_append(struct node **tail, struct node *n);
bool jinja_is_operator(const struct parser *p, const char *text);
bool jinja_is_word(const struct parser *p, const char *text);
void jinja_advance(struct parser *p);
bool jinja_skip(struct parser *p, const char *text);
void jinja_expect(struct parser *p, const char *text);
struct span jinja_expect_name(struct parser *p);
/* Counts one more thing within another; false on too many. Undone by p->nesting--. */
bool jinja_deeper(struct parser *p);

struct node *jinja_parse_ternary(struct parser *p);
struct node *jinja_parse_tuple(struct parser *p); /* one expression, or several with commas */
struct node *jinja_parse_plain(struct parser *p); /* the same without a bare ternary: conditions, what a loop walks */
struct node *jinja_parse_primary(struct parser *p);
struct node *jinja_parse_postfix(struct parser *p, struct node *of);
struct node *jinja_parse_filters(struct parser *p, struct node *of);
struct node *jinja_parse_filter(struct parser *p, struct node *of); /* behind "|" */

#endif
