/* ops.c: the table of ops, from ops.def, and what their shape rules share.
 *
 * A shape rule is the one place where a node is judged. It sees nodes that an architecture built from a file's numbers, so
 * it trusts nothing: count and presence of sources, formats, dimensions and every product are checked before the
 * first use, and a refusal names the shapes, since that is what one needs to find the wrong tensor. Kernels and
 * references behind it check nothing again. */
#include "ops/ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OP(NAME, name) extern const struct op_desc op_##name;
#include "ops/ops.def"
#undef OP

static const struct op_desc *const table[N_OPS] = {
#define OP(NAME, name) &op_##name,
#include "ops/ops.def"
#undef OP
};

const struct op_desc *op_get(enum op op)
{
    return table[op];
}

void node_reference(const struct node *n, const struct worker *w)
{
    if (!n->n_parts) {
        table[n->op]->reference(n, w);
        return;
    }
    for (int i = 0; i < n->n_parts; i++) {
        if (i)
            worker_barrier(w); /* a part reads what the ones before wrote */
        node_reference(n->parts[i], w);
    }
}

size_t node_scratch(const struct node *n)
{
    if (!n->n_parts)
        return table[n->op]->scratch ? table[n->op]->scratch(n) : 0;
    size_t most = 0;
    for (int i = 0; i < n->n_parts; i++) {
        size_t bytes = node_scratch(n->parts[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

struct tensor *node_updates(const struct node *n)
{
    int i = table[n->op]->updates;
    return i && !n->n_parts ? n->src[i - 1] : NULL;
}

bool node_collective(const struct node *n)
{
    for (int i = 0; i < n->n_parts; i++)
        if (table[n->parts[i]->op]->collective)
            return true;
    return table[n->op]->collective;
}

const struct node *node_part(const struct node *n, enum op op)
{
    for (int i = 0; i < n->n_parts; i++)
        if (n->parts[i]->op == op)
            return n->parts[i];
    return n->op == op ? n : NULL;
}

bool node_leaves(const struct node *n, const struct tensor *t)
{
    for (int i = 0; i < n->n_also; i++)
        if (n->also[i] == t)
            return true;
    return n->out == t;
}

/* Of a fused node: the flops of all parts; the bytes of each part, less what one part wrote for another. */
struct cost node_cost(const struct node *n)
{
    if (!n->n_parts)
        return table[n->op]->cost(n);
    struct cost sum = {0};
    for (int i = 0; i < n->n_parts; i++) {
        const struct node *part = n->parts[i];
        struct cost c = table[part->op]->cost(part);
        sum.flops += c.flops;
        if (node_leaves(n, part->out) || part->out->kind != TENSOR_VALUE || part->out->base)
            sum.written += c.written;
        else if (node_updates(part))
            sum.written += c.written - op_stored_bytes(part->out);
        sum.read += c.read;
        for (int j = 0; j < i; j++)
            for (int k = 0; k < part->n_src; k++) {
                const struct tensor *t = part->src[k];
                if (t && (t->base ? t->base : t) == n->parts[j]->out) /* whole or a window; one that was written in place is its base's */
                    sum.read -= op_stored_bytes(t);
            }
    }
    return sum;
}

int op_by_name(const char *name, enum op *op)
{
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(table[i]->name, name)) {
            *op = (enum op)i;
            return 0;
        }
    return -1;
}

int op_refuse(const struct node *n, struct hone_error *e, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(e, HONE_EINPUT, "op %s: %s", op_get(n->op)->name, text);
}

int op_check(const struct node *n, struct hone_error *e)
{
    const struct op_desc *op = op_get(n->op);
    if (n->n_src < op->min_src || n->n_src > op->max_src)
        return op_refuse(n, e, "%d sources, not %d to %d", n->n_src, op->min_src, op->max_src);
    if (!n->out)
        return op_refuse(n, e, "no output");
    for (int i = 0; i < n->n_src; i++) {
        const struct tensor *t = n->src[i];
        if (!t && i < op->min_src)
            return op_refuse(n, e, "source %d is absent", i);
        if (!t)
            continue;
        if ((unsigned)t->format >= N_FORMATS)
            return op_refuse(n, e, "source %d has the unknown format %d", i, (int)t->format);
        if (!tensor_shape_fits(t->format, t->ne)) {
            char text[128];
            return op_refuse(n, e, "source %d, %s, has a dimension below zero, rows of broken blocks, or overflows", i,
                             tensor_describe(t, text, sizeof text));
        }
    }
    return 0;
}

int op_check_format(const struct node *n, int i, enum format_id format, struct hone_error *e)
{
    char text[128];
    if (n->src[i]->format == format)
        return 0;
    return op_refuse(n, e, "source %d is %s, not %s", i, tensor_describe(n->src[i], text, sizeof text),
                     format_get(format)->name);
}

int op_check_float(const struct node *n, int i, struct hone_error *e)
{
    char text[128];
    if (format_get(n->src[i]->format)->unpack)
        return 0;
    return op_refuse(n, e, "source %d is %s, not of a float format", i, tensor_describe(n->src[i], text, sizeof text));
}

int op_check_unpacked(const struct node *n, int i, struct hone_error *e)
{
    char text[128];
    if (!n->src[i]->layout)
        return 0;
    return op_refuse(n, e, "source %d, %s, is packed as %s", i, tensor_describe(n->src[i], text, sizeof text),
                     n->src[i]->layout->name);
}

int op_set_out(struct node *n, enum format_id format, const int64_t ne[MAX_DIMS], struct hone_error *e)
{
    if (!tensor_shape_fits(format, ne))
        return op_refuse(n, e, "the output, %s [%lld, %lld, %lld, %lld], breaks blocks or overflows", format_get(format)->name,
                         (long long)ne[0], (long long)ne[1], (long long)ne[2], (long long)ne[3]);
    tensor_shape(n->out, format, MAX_DIMS, ne);
    return 0;
}

void op_set_view(struct node *n, int i, size_t offset)
{
    struct tensor *src = n->src[i];
    n->out->base = src->base ? src->base : src;
    n->out->offset = src->base ? src->offset + offset : offset;
}

double op_stored_bytes(const struct tensor *t)
{
    const struct format *f = format_get(t->format);
    return (double)tensor_elements(t) / f->block * f->bytes;
}

struct cost cost_elementwise(const struct node *n, double flops_per_element)
{
    struct cost c = {0, op_stored_bytes(n->out), flops_per_element * (double)tensor_elements(n->out)};
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i])
            c.read += op_stored_bytes(n->src[i]);
    return c;
}
