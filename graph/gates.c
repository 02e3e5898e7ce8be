/* gates.c: parsing and matching gates. A gate that names an op, a format or a backend that does not exist is refused when it is
 * read, not when it fails to match: a misspelt gate that silently does nothing has cost people days. Whether a
 * variant exists and fits is the planner's to say, since plug-ins bring their own. */
#include "graph/gates.h"

#include "backends/backend.h"
#include "graph/fuse.h"
#include "graph/guards.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_LIMIT = 1000 }; /* percent: more would only look like a hang */

static int gate_refuse(struct hone_error *e, const struct gate *gate, const char *what)
{
    return err_set(e, HONE_EUSAGE, "%s: gate '%s': %s", gate->source, gate->text, what);
}

static struct gate *gates_append(struct gates *g, const struct gate *gate)
{
    if (g->n == g->cap) {
        int cap = g->cap ? 2 * g->cap : 16;
        struct gate *list = arena_array(&g->arena, (size_t)cap, sizeof *list);
        if (!list)
            return NULL;
        if (g->n)
            memcpy(list, g->list, (size_t)g->n * sizeof *list);
        g->list = list;
        g->cap = cap;
    }
    g->list[g->n] = *gate;
    return &g->list[g->n++];
}

static int gate_add(struct gates *g, const struct gate *gate, struct hone_error *e)
{
    return gates_append(g, gate) ? 0 : err_set(e, HONE_ERESOURCE, "no memory for gates");
}

static int unknown_op(struct hone_error *e, const struct gate *gate, const char *name)
{
    char text[400];
    int n = snprintf(text, sizeof text, "no op '%s'; ops:", name);
    for (int i = 0; i < N_OPS && n < (int)sizeof text; i++)
        if (!op_get((enum op)i)->alias)
            n += snprintf(text + n, sizeof text - (size_t)n, " %s", op_get((enum op)i)->name);
    return gate_refuse(e, gate, text);
}

/* skip=<op>,<op>: one gate an op, all with the same text. */
static int parse_skip(struct gates *g, struct gate *gate, char *value, struct hone_error *e)
{
    for (char *word = strtok(value, ","); word; word = strtok(NULL, ",")) {
        enum op op;
        if (op_by_name(word, &op))
            return unknown_op(e, gate, word);
        gate->op = (int)op;
        gate->variant = "ref";
        int rc = gate_add(g, gate, e);
        if (rc)
            return rc;
    }
    return gate->op < 0 ? gate_refuse(e, gate, "skip= needs at least one op") : 0;
}

/* name is what stands behind "kernel": "", or ".<word>..." with an optional "@glob". */
static int parse_kernel(struct gates *g, struct gate *gate, char *name, char *value, struct hone_error *e)
{
    char *glob = strchr(name, '@');
    if (glob) {
        *glob++ = 0;
        if (!*glob)
            return gate_refuse(e, gate, "nothing behind '@'");
        gate->glob = glob;
    }
    gate->variant = value;
    if (*name == '.' && (!name[1] || name[strlen(name) - 1] == '.' || strstr(name, "..")))
        return gate_refuse(e, gate, "a word is missing between the dots");
    char *words[4];
    int n = 0;
    for (char *w = strtok(name, "."); w; w = strtok(NULL, ".")) {
        if (n == 3)
            return gate_refuse(e, gate, "at most backend, op and format may be named");
        words[n++] = w;
    }
    int i = 0;
    if (i < n && backend_by_name(words[i]))
        gate->backend = words[i++];
    enum op op;
    if (i < n) {
        if (op_by_name(words[i], &op))
            return unknown_op(e, gate, words[i]);
        gate->op = (int)op;
        i++;
    }
    enum format_id format;
    if (i < n) {
        if (format_by_name(words[i], &format))
            return gate_refuse(e, gate, "no such weight format");
        gate->format = (int)format;
        i++;
    }
    if (i < n)
        return gate_refuse(e, gate, "the order is kernel[.backend].op[.format][@node]");
    if (gate->op < 0 && strcmp(value, "ref") != 0)
        return gate_refuse(e, gate, "only 'ref' can be set for every op at once");
    return gate_add(g, gate, e);
}

/* fuse[.<name>]=on|off, decline.<name>=on|off */
static int parse_fusion(struct gates *g, struct gate *gate, enum gate_kind kind, const char *name, const char *value,
                        struct hone_error *e)
{
    enum fusion_id id;
    gate->kind = kind;
    gate->fusion = -1;
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return gate_refuse(e, gate, "a fusion is on or off");
    if (*name == '.') {
        if (fusion_by_name(name + 1, strlen(name + 1), &id)) {
            char text[300];
            int n = snprintf(text, sizeof text, "no fusion '%s'; fusions:", name + 1);
            for (int i = 0; i < N_FUSIONS && n < (int)sizeof text; i++)
                n += snprintf(text + n, sizeof text - (size_t)n, " %s", fusion_get((enum fusion_id)i)->name);
            return gate_refuse(e, gate, text);
        }
        gate->fusion = (int)id;
    }
    gate->variant = value;
    return gate_add(g, gate, e);
}

/* persistent[.<backend>]=on|off */
static int parse_persistent(struct gates *g, struct gate *gate, const char *name, const char *value, struct hone_error *e)
{
    if (*name && !backend_by_name(name + 1))
        return gate_refuse(e, gate, "no backend of this name");
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return gate_refuse(e, gate, "on or off");
    gate->kind = GATE_PERSISTENT;
    gate->backend = *name ? name + 1 : NULL;
    gate->variant = value;
    return gate_add(g, gate, e);
}

/* debug.spin=<percent> */
static int parse_spin(struct gates *g, struct gate *gate, const char *value, struct hone_error *e)
{
    char *end;
    double percent = strtod(value, &end);
    if (end == value || *end || !(percent >= 0 && percent <= SPIN_LIMIT))
        return gate_refuse(e, gate, "a share of a step's time, 0 to 1000 percent");
    gate->kind = GATE_SPIN;
    gate->variant = value;
    return gate_add(g, gate, e);
}

/* comm.limit=<bytes>, comm.timeout=<seconds>, comm.link=<way>, comm.pin=on|off */
static int parse_comm(struct gates *g, struct gate *gate, const char *name, const char *value, struct hone_error *e)
{
    char *end;
    if (!strcmp(name, "pin")) {
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
            return gate_refuse(e, gate, "on or off");
        gate->kind = GATE_COMM_PIN;
        gate->variant = value;
        return gate_add(g, gate, e);
    }
    if (!strcmp(name, "link")) {
        gate->kind = GATE_COMM_LINK;
        gate->variant = value;
        return gate_add(g, gate, e);
    }
    double number = strtod(value, &end);
    bool limit = !strcmp(name, "limit");
    if (!limit && strcmp(name, "timeout") != 0)
        return gate_refuse(e, gate, "known: comm.limit=<bytes>, comm.timeout=<seconds>, comm.link=<way>, comm.pin=on|off");
    if (end == value || *end || !(number >= (limit ? 0 : 0.001) && number <= (limit ? 1e12 : 1e6)))
        return gate_refuse(e, gate, limit ? "a number of bytes" : "seconds, 0.001 to 1000000");
    gate->kind = limit ? GATE_COMM_LIMIT : GATE_COMM_TIMEOUT;
    gate->variant = value;
    return gate_add(g, gate, e);
}

/* debug.skip_all_reduce=on|off */
static int parse_skip_all_reduce(struct gates *g, struct gate *gate, const char *value, struct hone_error *e)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return gate_refuse(e, gate, "on or off");
    gate->kind = GATE_SKIP_ALL_REDUCE;
    gate->variant = value;
    return gate_add(g, gate, e);
}

/* debug.guard=<name>|none */
static int parse_guard(struct gates *g, struct gate *gate, const char *value, struct hone_error *e)
{
    enum guard id;
    if (strcmp(value, "none") != 0 && guard_by_name(value, &id)) {
        char text[300];
        int n = snprintf(text, sizeof text, "no guard '%s'; guards: none", value);
        for (int i = 0; i < N_GUARDS && n < (int)sizeof text; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, " %s", guard_name((enum guard)i));
        return gate_refuse(e, gate, text);
    }
    gate->kind = GATE_GUARD;
    gate->variant = value;
    return gate_add(g, gate, e);
}

static int parse_one(struct gates *g, char *word, const char *source, struct hone_error *e)
{
    struct gate gate = {.text = arena_strdup(&g->arena, word), .source = source, .op = -1, .format = -1};
    char *own = arena_strdup(&g->arena, word);
    if (!gate.text || !own)
        return err_set(e, HONE_ERESOURCE, "no memory for gates");
    char *value = strchr(own, '=');
    if (!value || !value[1])
        return gate_refuse(e, &gate, "a gate is name=value");
    *value++ = 0;
    if (!strcmp(own, "skip"))
        return parse_skip(g, &gate, value, e);
    if (!strncmp(own, "kernel", 6) && (!own[6] || own[6] == '.' || own[6] == '@'))
        return parse_kernel(g, &gate, own + 6, value, e);
    if (!strncmp(own, "fuse", 4) && (!own[4] || own[4] == '.'))
        return parse_fusion(g, &gate, GATE_FUSE, own + 4, value, e);
    if (!strncmp(own, "decline.", 8))
        return parse_fusion(g, &gate, GATE_DECLINE, own + 7, value, e);
    if (!strncmp(own, "persistent", 10) && (!own[10] || own[10] == '.'))
        return parse_persistent(g, &gate, own + 10, value, e);
    if (!strcmp(own, "debug.spin"))
        return parse_spin(g, &gate, value, e);
    if (!strcmp(own, "debug.skip_all_reduce"))
        return parse_skip_all_reduce(g, &gate, value, e);
    if (!strcmp(own, "debug.guard"))
        return parse_guard(g, &gate, value, e);
    if (!strncmp(own, "comm.", 5))
        return parse_comm(g, &gate, own + 5, value, e);
    return gate_refuse(e, &gate, "unknown gate; known: kernel[.backend].op[.format][@node]=variant, kernel=ref, skip=op,..., "
                                 "fuse[.name]=on|off, persistent[.backend]=on|off, comm.limit=bytes, comm.timeout=seconds, comm.link=way, comm.pin=on|off, "
                                 "decline.name=on, debug.spin=percent, debug.skip_all_reduce=on, debug.guard=name");
}

int gates_parse(struct gates *g, const char *text, const char *source, struct hone_error *e)
{
    int before = g->n, rc = 0;
    char *own = arena_strdup(&g->arena, text);
    source = arena_strdup(&g->arena, source);
    if (!own || !source)
        return err_set(e, HONE_ERESOURCE, "no memory for gates");
    for (char *p = own; *p && !rc;) {
        if (*p == '#') {
            p += strcspn(p, "\n");
            continue;
        }
        if (isspace((unsigned char)*p) || *p == ';') {
            p++;
            continue;
        }
        size_t n = strcspn(p, " \t\r\n\f\v;");
        char end = p[n];
        p[n] = 0;
        rc = parse_one(g, p, source, e);
        p += n + (end != 0);
    }
    if (rc)
        g->n = before;
    return rc;
}

void gates_free(struct gates *g)
{
    arena_free(&g->arena);
    *g = (struct gates){0};
}

static bool has_variant(const struct backend *b, int op, const char *variant)
{
    int n;
    const struct kernel *const *list = b->kernels(&n);
    for (int i = 0; i < n; i++)
        if ((int)list[i]->op == op && !strcmp(list[i]->variant, variant))
            return true;
    return false;
}

/* A gate without a backend's name whose variant another backend has, and this one not, is about the other. */
static bool means_another(const struct gate *gate, const char *backend)
{
    int n_backends;
    const struct backend *const *list = backend_list(&n_backends), *own = backend_by_name(backend);
    if (n_backends < 2 || gate->backend || gate->op < 0 || !own || has_variant(own, gate->op, gate->variant))
        return false;
    for (int i = 0; i < n_backends; i++)
        if (list[i] != own && has_variant(list[i], gate->op, gate->variant))
            return strcmp(gate->variant, "ref") != 0;
    return false;
}

const struct gate *gates_for_node(const struct gates *g, const char *backend, const struct node *n)
{
    for (int i = g->n; i-- > 0;) {
        const struct gate *gate = &g->list[i];
        if (gate->kind == GATE_KERNEL && (gate->op < 0 || gate->op == (int)n->op) && (!gate->backend || !strcmp(gate->backend, backend)) &&
            (gate->format < 0 || gate->format == (int)n->src[0]->format) &&
            (!gate->glob || !fnmatch(gate->glob, n->out->name, 0)) && !means_another(gate, backend))
            return gate;
    }
    return NULL;
}

bool gates_fusion(const struct gates *g, enum gate_kind kind, int id, bool fallback)
{
    for (int i = g->n; i-- > 0;)
        if (g->list[i].kind == kind && (g->list[i].fusion < 0 || g->list[i].fusion == id))
            return !strcmp(g->list[i].variant, "on");
    return fallback;
}

bool gates_persistent(const struct gates *g, const char *backend)
{
    for (int i = g->n; i-- > 0;)
        if (g->list[i].kind == GATE_PERSISTENT && (!g->list[i].backend || !strcmp(g->list[i].backend, backend)))
            return !strcmp(g->list[i].variant, "on");
    return false;
}

static const struct gate *last_of(const struct gates *g, enum gate_kind kind)
{
    for (int i = g->n; i-- > 0;)
        if (g->list[i].kind == kind)
            return &g->list[i];
    return NULL;
}

double gates_spin(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_SPIN);
    return gate ? strtod(gate->variant, NULL) / 100 : 0;
}

size_t gates_comm_limit(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_COMM_LIMIT);
    return gate ? (size_t)strtod(gate->variant, NULL) : 65536;
}

int gates_comm_timeout_ms(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_COMM_TIMEOUT);
    return gate ? (int)(1000 * strtod(gate->variant, NULL)) : 0;
}

const char *gates_comm_link(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_COMM_LINK);
    return gate ? gate->variant : NULL;
}

bool gates_comm_pin(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_COMM_PIN);
    return !gate || !strcmp(gate->variant, "on");
}

bool gates_skip_all_reduce(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_SKIP_ALL_REDUCE);
    return gate && !strcmp(gate->variant, "on");
}

int gates_guard(const struct gates *g)
{
    const struct gate *gate = last_of(g, GATE_GUARD);
    enum guard id;
    return gate && !guard_by_name(gate->variant, &id) ? (int)id : -1;
}

const char *gates_diagnostic(const struct gates *g)
{
    const struct gate *gate = gates_skip_all_reduce(g) ? last_of(g, GATE_SKIP_ALL_REDUCE) : last_of(g, GATE_SPIN);
    return gate ? gate->text : NULL;
}

bool gates_all_reference(const struct gates *g)
{
    for (int i = g->n; i-- > 0;) {
        const struct gate *gate = &g->list[i];
        if (gate->kind != GATE_KERNEL)
            continue;
        if (strcmp(gate->variant, "ref") != 0)
            return false;
        if (gate->op < 0 && !gate->backend && gate->format < 0 && !gate->glob)
            return true;
    }
    return false;
}
