/* case_file.c: see case_file.h.
 *
 *   case.version          1
 *   case.name             text
 *   case.tensor.name      a text each; .kind ("weight", "input", "state", "value"), .format
 *   case.tensor.ne, .nb   four numbers each
 *   case.tensor.base      index of the tensor whose memory it is a view of, or -1; case.tensor.offset: bytes from there
 *   case.data.<i>         the bytes of tensor i, where it is no view and the node reads it
 *   case.node.op          a text each: the parts of a fused node in running order, then the node itself
 *   case.node.params      "eps=0x1.4f8b58p-17 ..."
 *   case.node.src         as many indices each (MAX_SRC of the hone that wrote it), -1: absent; case.node.out: one each
 *   case.also             indices, where a fused node leaves more than its output
 *
 * The reader trusts none of it. Shapes must exist, a view must lie within its base, each node's shape rule must give what the
 * file says of its output, and a fused node may name nothing that its parts do not. What values do to a kernel (a cell number
 * out of range) is the check's to find, in a child process. */
#include "lab/case_file.h"

#include "graph/fuse.h"
#include "model/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, MAX_TENSORS = 64, MAX_NODES = MAX_PARTS + 1, PARAMS_TEXT = 512, KEY_SIZE = 64, EMPTY_LIMIT = 1 << 20 };

static const char *const kinds[] = {
    [TENSOR_WEIGHT] = "weight", [TENSOR_INPUT] = "input", [TENSOR_STATE] = "state", [TENSOR_VALUE] = "value"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- writing */

struct listing {
    struct tensor *tensors[MAX_TENSORS];
    const struct node *nodes[MAX_NODES];
    int n_tensors, n_nodes;
    bool full;
};

static int index_of(const struct listing *l, const struct tensor *t)
{
    for (int i = 0; i < l->n_tensors; i++)
        if (l->tensors[i] == t)
            return i;
    return -1;
}

/* The root before its views, so that a reader meets it first. */
static void list_tensor(struct listing *l, struct tensor *t)
{
    if (!t || index_of(l, t) >= 0)
        return;
    if (t->base)
        list_tensor(l, t->base);
    if (l->n_tensors == MAX_TENSORS)
        l->full = true;
    else
        l->tensors[l->n_tensors++] = t;
}

static void list_node(struct listing *l, const struct node *n)
{
    for (int i = 0; i < n->n_parts; i++)
        list_node(l, n->parts[i]);
    for (int i = 0; i < n->n_src; i++)
        list_tensor(l, n->src[i]);
    list_tensor(l, n->out);
    if (l->n_nodes == MAX_NODES)
        l->full = true;
    else
        l->nodes[l->n_nodes++] = n;
}

/* Written by the node and read by nobody before: its contents say nothing. */
static bool is_result(const struct listing *l, const struct tensor *t)
{
    for (int i = 0; i < l->n_nodes; i++)
        if (l->nodes[i]->out == t && t->kind == TENSOR_VALUE)
            return true;
    return false;
}

static void params_text(const struct node *n, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (const struct op_param *p = op_get(n->op)->params; p && p->name && used < size; p++) {
        int32_t whole;
        float real;
        const char *word;
        memcpy(&whole, n->params + p->offset, sizeof whole);
        memcpy(&real, n->params + p->offset, sizeof real);
        const char *space = used ? " " : "";
        if (p->real)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%a", space, p->name, (double)real);
        else if (p->word && (word = p->word(whole)))
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s", space, p->name, word);
        else
            used += (size_t)snprintf(text + used, size - used, "%s%s=%d", space, p->name, whole);
    }
}

static struct gguf_string string_of(const char *text)
{
    return (struct gguf_string){text, strlen(text)};
}

static int write_data(struct gguf_writer *w, int i, const struct tensor *t, struct hone_error *e)
{
    char key[KEY_SIZE];
    snprintf(key, sizeof key, "case.data.%d", i);
    if (!t->layout) {
        size_t n = tensor_nbytes(t);
        if (n)
            gguf_write_array(w, key, GGUF_U8, t->data, n);
        return 0;
    }
    size_t row = format_row_bytes(format_get(t->format), t->ne[0]);
    int64_t rows = tensor_rows(t);
    unsigned char *bytes = malloc(row * (size_t)rows + 1);
    if (!bytes)
        return err_set(e, HONE_ERESOURCE, "no memory to unpack weight %s", t->name);
    for (int64_t r = 0; r < rows; r++)
        t->layout->restore_row(t->data, bytes + (size_t)r * row, t->ne[0], rows, r);
    gguf_write_array(w, key, GGUF_U8, bytes, row * (size_t)rows);
    free(bytes);
    return 0;
}

static int write_tensors(struct gguf_writer *w, const struct listing *l, struct hone_error *e)
{
    struct gguf_string names[MAX_TENSORS], formats[MAX_TENSORS], kind[MAX_TENSORS];
    int64_t ne[MAX_TENSORS * MAX_DIMS];
    uint64_t nb[MAX_TENSORS * MAX_DIMS], offset[MAX_TENSORS];
    int32_t base[MAX_TENSORS];
    uint64_t n = (uint64_t)l->n_tensors;
    for (int i = 0; i < l->n_tensors; i++) {
        const struct tensor *t = l->tensors[i];
        names[i] = string_of(t->name);
        formats[i] = string_of(format_get(t->format)->name);
        kind[i] = string_of(kinds[t->kind]);
        base[i] = t->base ? (int32_t)index_of(l, t->base) : -1;
        offset[i] = t->base ? t->offset : 0;
        for (int d = 0; d < MAX_DIMS; d++) {
            ne[i * MAX_DIMS + d] = t->ne[d];
            nb[i * MAX_DIMS + d] = t->nb[d];
        }
    }
    gguf_write_strings(w, "case.tensor.name", names, n);
    gguf_write_strings(w, "case.tensor.kind", kind, n);
    gguf_write_strings(w, "case.tensor.format", formats, n);
    gguf_write_array(w, "case.tensor.ne", GGUF_I64, ne, n * MAX_DIMS);
    gguf_write_array(w, "case.tensor.nb", GGUF_U64, nb, n * MAX_DIMS);
    gguf_write_array(w, "case.tensor.base", GGUF_I32, base, n);
    gguf_write_array(w, "case.tensor.offset", GGUF_U64, offset, n);
    int rc = 0;
    for (int i = 0; i < l->n_tensors && !rc; i++)
        if (!l->tensors[i]->base && !is_result(l, l->tensors[i]))
            rc = write_data(w, i, l->tensors[i], e);
    return rc;
}

static void write_nodes(struct gguf_writer *w, const struct listing *l)
{
    struct gguf_string ops[MAX_NODES], params[MAX_NODES];
    static _Thread_local char texts[MAX_NODES][PARAMS_TEXT];
    int32_t src[MAX_NODES * MAX_SRC], out[MAX_NODES], also[MAX_ALSO];
    const struct node *last = l->nodes[l->n_nodes - 1];
    for (int i = 0; i < l->n_nodes; i++) {
        const struct node *n = l->nodes[i];
        params_text(n, texts[i], sizeof texts[i]);
        ops[i] = string_of(op_get(n->op)->name);
        params[i] = string_of(texts[i]);
        out[i] = (int32_t)index_of(l, n->out);
        for (int j = 0; j < MAX_SRC; j++)
            src[i * MAX_SRC + j] = j < n->n_src && n->src[j] ? (int32_t)index_of(l, n->src[j]) : -1;
    }
    gguf_write_strings(w, "case.node.op", ops, (uint64_t)l->n_nodes);
    gguf_write_strings(w, "case.node.params", params, (uint64_t)l->n_nodes);
    gguf_write_array(w, "case.node.src", GGUF_I32, src, (uint64_t)l->n_nodes * MAX_SRC);
    gguf_write_array(w, "case.node.out", GGUF_I32, out, (uint64_t)l->n_nodes);
    for (int i = 0; i < last->n_also; i++)
        also[i] = (int32_t)index_of(l, last->also[i]);
    if (last->n_also)
        gguf_write_array(w, "case.also", GGUF_I32, also, (uint64_t)last->n_also);
}

int case_file_write(const char *path, const struct node *n, const char *name, struct hone_error *e)
{
    struct listing l = {.n_tensors = 0};
    struct gguf_writer *w;
    list_node(&l, n);
    if (l.full)
        return err_set(e, HONE_EFAULT, "node %s has too many tensors or parts for a case file", n->out->name);
    int rc = gguf_writer_create(&w, path, e);
    if (rc)
        return rc;
    gguf_write_u32(w, "case.version", VERSION);
    gguf_write_string(w, "case.name", name);
    rc = write_tensors(w, &l, e);
    write_nodes(w, &l);
    int closed = gguf_writer_close(w, !rc, rc ? NULL : e);
    return rc ? rc : closed;
}

/* ---- reading */

struct reading {
    struct specimen *s;
    const struct gguf *g;
    struct tensor *tensors;
    struct node *nodes;
    int n_tensors, n_nodes;
    struct hone_error *e;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reading *r, const char *format, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(r->e, HONE_EINPUT, "%.150s: %s", r->g->path, text);
}

/* An array of n items of this type; n 0: any number from 1 to `most`. NULL with the error set. */
static const struct gguf_value *array(const struct reading *r, const char *key, enum gguf_type type, uint64_t n, uint64_t most)
{
    const struct gguf_value *v = gguf_find(r->g, key);
    if (!v)
        refuse(r, "no key %s: not a case that hone captured", key);
    else if (v->type != GGUF_ARRAY || v->element != type)
        refuse(r, "key %s is no array of %s", key, gguf_type_name(type));
    else if (n ? v->n != n : v->n < 1 || v->n > most)
        refuse(r, "key %s has %llu items, not %llu", key, (unsigned long long)v->n, (unsigned long long)(n ? n : most));
    else
        return v;
    return NULL;
}

static bool is_text(struct gguf_string s, const char *text)
{
    return s.size == strlen(text) && !memcmp(s.data, text, s.size);
}

/* A copy with NUL, without bytes that would drive a terminal. */
static void copy_text(char *to, size_t size, struct gguf_string s)
{
    size_t n = s.size < size - 1 ? s.size : size - 1;
    for (size_t i = 0; i < n; i++)
        to[i] = s.data[i] > ' ' && s.data[i] < 127 ? s.data[i] : '_';
    to[n] = 0;
}

/* Bytes that t touches, or false where that overflows. */
static bool span_of(const struct tensor *t, size_t *span)
{
    *span = 0;
    if (tensor_elements(t) == 0)
        return true;
    const struct format *f = format_get(t->format);
    *span = (size_t)f->bytes;
    for (int d = 0; d < MAX_DIMS; d++) {
        size_t steps = (size_t)(d ? t->ne[d] : t->ne[0] / f->block) - 1, bytes;
        if (__builtin_mul_overflow(steps, t->nb[d], &bytes) || __builtin_add_overflow(*span, bytes, span))
            return false;
    }
    return true;
}

static int read_place(const struct reading *r, int i, int64_t base, uint64_t offset)
{
    struct tensor *t = &r->tensors[i];
    struct tensor plain = *t;
    size_t span, room;
    tensor_shape(&plain, t->format, MAX_DIMS, t->ne);
    if (base < -1 || base >= i)
        return refuse(r, "case.tensor.base of tensor %d is %lld", i, (long long)base);
    if (base < 0) {
        t->layout = NULL;
        return memcmp(plain.nb, t->nb, sizeof t->nb) ? refuse(r, "tensor %d, no view, has strides with gaps", i) : 0;
    }
    struct tensor *root = &r->tensors[base];
    if (root->base)
        return refuse(r, "the base of tensor %d is a view itself", i);
    if (!span_of(t, &span) || !span_of(root, &room) || offset > room || span > room - offset)
        return refuse(r, "tensor %d does not lie within its base", i);
    t->base = root;
    t->offset = (size_t)offset;
    return 0;
}

static int64_t largest_dimension(const struct tensor *t)
{
    int64_t most = 0;
    for (int d = 0; d < MAX_DIMS; d++)
        most = t->ne[d] > most ? t->ne[d] : most;
    return most;
}

static int read_tensors(struct reading *r)
{
    const struct gguf_value *names = array(r, "case.tensor.name", GGUF_STRING, 0, MAX_TENSORS);
    if (!names)
        return HONE_EINPUT;
    uint64_t n = names->n;
    const struct gguf_value *kind = array(r, "case.tensor.kind", GGUF_STRING, n, 0);
    const struct gguf_value *formats = kind ? array(r, "case.tensor.format", GGUF_STRING, n, 0) : NULL;
    const struct gguf_value *ne = formats ? array(r, "case.tensor.ne", GGUF_I64, n * MAX_DIMS, 0) : NULL;
    const struct gguf_value *nb = ne ? array(r, "case.tensor.nb", GGUF_U64, n * MAX_DIMS, 0) : NULL;
    const struct gguf_value *base = nb ? array(r, "case.tensor.base", GGUF_I32, n, 0) : NULL;
    const struct gguf_value *offset = base ? array(r, "case.tensor.offset", GGUF_U64, n, 0) : NULL;
    if (!offset)
        return HONE_EINPUT;
    r->n_tensors = (int)n;
    r->tensors = arena_array(&r->s->arena, n, sizeof *r->tensors);
    if (!r->tensors)
        return err_set(r->e, HONE_ERESOURCE, "no memory for a case");
    int rc = 0;
    for (int i = 0; i < r->n_tensors && !rc; i++) {
        struct tensor *t = &r->tensors[i];
        char format[32];
        int k = 0;
        copy_text(t->name, sizeof t->name, names->strings[i]);
        copy_text(format, sizeof format, formats->strings[i]);
        while (k < N_KINDS && !is_text(kind->strings[i], kinds[k]))
            k++;
        if (k == N_KINDS || format_by_name(format, &t->format))
            return refuse(r, "tensor %d has an unknown kind or format", i);
        t->kind = (enum tensor_kind)k;
        for (int d = 0; d < MAX_DIMS; d++) {
            t->ne[d] = gguf_integer(ne, (uint64_t)(i * MAX_DIMS + d));
            t->nb[d] = (size_t)gguf_integer(nb, (uint64_t)(i * MAX_DIMS + d));
        }
        /* An empty tensor may have a dimension of any size, and what is computed with it room for a row. */
        if (!tensor_shape_fits(t->format, t->ne) || (tensor_elements(t) == 0 && largest_dimension(t) > EMPTY_LIMIT))
            return refuse(r, "tensor %d has a shape that cannot exist", i);
        rc = read_place(r, i, gguf_integer(base, (uint64_t)i), (uint64_t)gguf_integer(offset, (uint64_t)i));
    }
    return rc;
}

/* The value of one parameter from "name=value ..."; false when it is not there or says nothing. */
static bool read_param(const struct op_param *p, const char *text, unsigned char *params)
{
    size_t n = strlen(p->name);
    const char *at = text;
    while (at && (strncmp(at, p->name, n) != 0 || at[n] != '=')) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    at += n + 1;
    size_t length = strcspn(at, " ");
    char *end;
    float real = strtof(at, &end);
    long whole = strtol(at, p->real ? NULL : &end, 10);
    bool found = end == at + length && length && whole >= INT32_MIN && whole <= INT32_MAX;
    for (int32_t v = 0; p->word && v < 256 && !found; v++) {
        const char *word = p->word(v);
        found = word && strlen(word) == length && !memcmp(word, at, length);
        whole = v;
    }
    int32_t value = (int32_t)whole;
    if (found && p->real)
        memcpy(params + p->offset, &real, sizeof real);
    else if (found)
        memcpy(params + p->offset, &value, sizeof value);
    return found;
}

static int read_params(const struct reading *r, int i, struct gguf_string text)
{
    struct node *n = &r->nodes[i];
    char copy[PARAMS_TEXT];
    if (text.size >= sizeof copy || memchr(text.data, 0, text.size))
        return refuse(r, "case.node.params of node %d is no list of parameters", i);
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    for (const struct op_param *p = op_get(n->op)->params; p && p->name; p++)
        if (!read_param(p, copy, n->params))
            return refuse(r, "case.node.params of node %d has no valid %s", i, p->name);
    return 0;
}

static struct tensor *tensor_at(const struct reading *r, const struct gguf_value *v, int i)
{
    int64_t index = gguf_integer(v, (uint64_t)i);
    return index >= 0 && index < r->n_tensors ? &r->tensors[index] : NULL;
}

/* The op's own rule must give the output that the file has. */
static int check_shape(const struct reading *r, int i)
{
    struct node ruled = r->nodes[i];
    struct tensor out = {.kind = TENSOR_VALUE};
    const struct tensor *said = r->nodes[i].out;
    ruled.out = &out;
    int rc = op_get(ruled.op)->shape(&ruled, r->e);
    if (rc) {
        err_prefix(r->e, "%.150s: node %d", r->g->path, i);
        return HONE_EINPUT;
    }
    bool same = out.format == said->format && !memcmp(out.ne, said->ne, sizeof out.ne) &&
                !memcmp(out.nb, said->nb, sizeof out.nb) && out.base == said->base && (!out.base || out.offset == said->offset);
    return same && (out.base || said->kind == TENSOR_VALUE) ? 0
                                                            : refuse(r, "the output of node %d is not what its op gives", i);
}

static int read_node(const struct reading *r, int i, const struct gguf_value *src, const struct gguf_value *out, bool fused)
{
    struct node *n = &r->nodes[i];
    int each = (int)src->n / r->n_nodes;
    const struct op_desc *op = op_get(n->op);
    if (op->alias || op->fused != fused)
        return refuse(r, "node %d cannot be %s", i, op->name);
    for (int j = 0; j < each; j++) {
        n->src[j] = tensor_at(r, src, i * each + j);
        n->n_src = n->src[j] ? j + 1 : n->n_src;
    }
    n->out = tensor_at(r, out, i);
    if (!n->out || n->n_src < op->min_src || n->n_src > op->max_src)
        return refuse(r, "node %d, %s, has no output or not its sources", i, op->name);
    for (int j = 0; j < op->min_src; j++)
        if (!n->src[j])
            return refuse(r, "node %d, %s, lacks source %d", i, op->name, j);
    for (int j = 0; j < i; j++)
        if (!fused && r->nodes[j].out == n->out)
            return refuse(r, "nodes %d and %d have one output", j, i);
    if (!n->out->base)
        n->out->producer = n;
    n->layer = -1;
    return fused ? 0 : check_shape(r, i);
}

static bool parts_have(const struct reading *r, const struct tensor *t, bool as_output)
{
    for (int i = 0; i + 1 < r->n_nodes; i++) {
        for (int j = 0; j < r->nodes[i].n_src; j++)
            if (!as_output && r->nodes[i].src[j] == t)
                return true;
        if (as_output && r->nodes[i].out == t)
            return true;
    }
    return false;
}

/* The last node, made of the others. */
static int read_fused(struct reading *r)
{
    struct node *n = &r->nodes[r->n_nodes - 1];
    n->n_parts = r->n_nodes - 1;
    n->parts = arena_array(&r->s->arena, (size_t)n->n_parts, sizeof *n->parts);
    if (!n->parts)
        return err_set(r->e, HONE_ERESOURCE, "no memory for a case");
    for (int i = 0; i < n->n_parts; i++)
        n->parts[i] = &r->nodes[i];
    for (int j = 0; j < n->n_src; j++)
        if (n->src[j] && !parts_have(r, n->src[j], false))
            return refuse(r, "no part reads source %d of the fused node", j);
    if (n->n_parts < 2 || n->out != n->parts[n->n_parts - 1]->out)
        return refuse(r, "the fused node does not end with its last part");
    if (!gguf_find(r->g, "case.also"))
        return 0;
    const struct gguf_value *also = array(r, "case.also", GGUF_I32, 0, MAX_ALSO);
    if (!also)
        return HONE_EINPUT;
    for (n->n_also = 0; n->n_also < (int)also->n; n->n_also++) {
        struct tensor *t = n->also[n->n_also] = tensor_at(r, also, n->n_also);
        if (!t || !parts_have(r, t, true))
            return refuse(r, "case.also names what no part gives");
    }
    return 0;
}

static int read_nodes(struct reading *r)
{
    const struct gguf_value *ops = array(r, "case.node.op", GGUF_STRING, 0, MAX_NODES);
    if (!ops)
        return HONE_EINPUT;
    uint64_t n = ops->n;
    const struct gguf_value *params = array(r, "case.node.params", GGUF_STRING, n, 0);
    const struct gguf_value *src = params ? array(r, "case.node.src", GGUF_I32, 0, n * MAX_SRC) : NULL;
    const struct gguf_value *out = src ? array(r, "case.node.out", GGUF_I32, n, 0) : NULL;
    if (!out)
        return HONE_EINPUT;
    if (src->n % n)
        return refuse(r, "key case.node.src has %llu items for %llu nodes", (unsigned long long)src->n, (unsigned long long)n);
    r->n_nodes = (int)n;
    r->nodes = arena_array(&r->s->arena, n, sizeof *r->nodes);
    if (!r->nodes)
        return err_set(r->e, HONE_ERESOURCE, "no memory for a case");
    int rc = 0;
    for (int i = 0; i < r->n_nodes && !rc; i++) {
        char name[64];
        copy_text(name, sizeof name, ops->strings[i]);
        if (op_by_name(name, &r->nodes[i].op))
            return refuse(r, "case.node.op: no op '%s'", name);
        rc = read_params(r, i, params->strings[i]);
        if (!rc)
            rc = read_node(r, i, src, out, r->n_nodes > 1 && i + 1 == r->n_nodes);
    }
    if (!rc && r->n_nodes > 1)
        rc = read_fused(r);
    r->s->node = &r->nodes[r->n_nodes - 1];
    return rc;
}

static bool node_writes(const struct reading *r, const struct tensor *t)
{
    for (int i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].out == t)
            return true;
    return false;
}

static int read_data(const struct reading *r)
{
    for (int i = 0; i < r->n_tensors; i++) {
        struct tensor *t = &r->tensors[i];
        char key[KEY_SIZE];
        if (!t->data || t->base || node_writes(r, t) || tensor_nbytes(t) == 0)
            continue;
        snprintf(key, sizeof key, "case.data.%d", i);
        const struct gguf_value *v = array(r, key, GGUF_U8, tensor_nbytes(t), 0);
        if (!v)
            return HONE_EINPUT;
        memcpy(t->data, v->data, tensor_nbytes(t));
    }
    return 0;
}

/* Bytes that the file has must be able to fill what it names, before memory is taken for it. */
static int check_size(const struct reading *r, size_t file_bytes)
{
    size_t sum = 0;
    for (int i = 0; i < r->n_tensors; i++)
        if (!r->tensors[i].base && !node_writes(r, &r->tensors[i]))
            sum += tensor_nbytes(&r->tensors[i]) < file_bytes ? tensor_nbytes(&r->tensors[i]) : file_bytes + 1;
    if (sum > file_bytes)
        return refuse(r, "its tensors have more bytes than the file");
    for (int i = 0; i < r->n_tensors; i++) {
        const struct tensor *t = &r->tensors[i];
        /* A product's output may be larger than its sources, but not beyond reason. */
        if (!t->base && node_writes(r, t) && tensor_nbytes(t) > 4 * file_bytes + (1 << 20))
            return refuse(r, "tensor %d, which a node writes, has %zu bytes", i, tensor_nbytes(t));
    }
    return 0;
}

static int read_case(struct specimen *s, const struct gguf *g, struct hone_error *e)
{
    struct reading r = {.s = s, .g = g, .e = e};
    uint32_t version = 0;
    struct gguf_string name = string_of("captured");
    int rc = gguf_get_u32(g, "case.version", true, &version, e);
    if (!rc && version != VERSION)
        rc = refuse(&r, "a case of version %u; this hone reads %d", version, VERSION);
    if (!rc)
        rc = gguf_get_string(g, "case.name", false, &name, e);
    if (!rc)
        rc = read_tensors(&r);
    if (!rc)
        rc = read_nodes(&r);
    if (!rc)
        rc = check_size(&r, g->map.size);
    if (!rc) {
        copy_text(s->name, sizeof s->name, name);
        rc = specimen_give_memory(s, s->node, e);
    }
    if (!rc)
        rc = read_data(&r);
    if (!rc)
        rc = specimen_seal(s, 0, e);
    if (rc)
        specimen_free(s);
    return rc;
}

int specimen_from_file(struct specimen *s, const char *path, struct hone_error *e)
{
    struct gguf *g = NULL;
    memset(s, 0, sizeof *s);
    int rc = gguf_open(&g, path, e);
    if (!rc)
        rc = read_case(s, g, e);
    gguf_close(g);
    return rc;
}

int specimen_from_memory(struct specimen *s, const void *data, size_t size, const char *label, struct hone_error *e)
{
    struct gguf *g = NULL;
    memset(s, 0, sizeof *s);
    int rc = gguf_open_memory(&g, data, size, label, e);
    if (!rc)
        rc = read_case(s, g, e);
    gguf_close(g);
    return rc;
}
