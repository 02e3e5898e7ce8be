/* collectives.c: see collectives.h. The k-th all_reduce of one plan is the k-th of the other: both come from the same graph,
 * and no fusion moves one past another. Names would do as well and are cut at 63 characters. */
#include "lab/collectives.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *path_word(enum collective_path p)
{
    static const char *const words[] = {
#define WORD(name, word) word,
        COLLECTIVE_PATHS(WORD)
#undef WORD
    };
    return words[p];
}

/* Whether n sums over the ranks, and how. */
static bool path_of(const struct node *n, enum collective_path *path)
{
    switch (n->op) {
    case OP_ALL_REDUCE:
        *path = PATH_PLAIN;
        return true;
    case OP_ALL_REDUCE_ADD:
        *path = PATH_ADD;
        return true;
    case OP_ALL_REDUCE_GET_ROWS:
        *path = PATH_GET_ROWS;
        return true;
    case OP_ALL_REDUCE_ADD_RMS_NORM_MUL:
    case OP_ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE:
        *path = PATH_ADD_RMS_NORM;
        return true;
    default:
        return false;
    }
}

static const struct tensor *root(const struct tensor *t)
{
    return t->base ? t->base : t;
}

/* What reads a sum first: the second part, or a node of the plan; NULL: nothing. */
static const struct node *reader_of(const struct plan *p, int step)
{
    const struct node *n = p->steps[step].node;
    if (n->n_parts)
        return n->parts[1];
    for (int i = step + 1; i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].node->n_src; j++)
            if (p->steps[i].node->src[j] && root(p->steps[i].node->src[j]) == n->out)
                return p->steps[i].node;
    return NULL;
}

static void describe(struct collective *c, const struct plan *ran, int step)
{
    const struct node *n = ran->steps[step].node, *reader = reader_of(ran, step);
    const struct tensor *partial = n->src[0];
    const struct node *maker = root(partial)->producer;
    c->node = n;
    c->step = step;
    c->name = partial->name;
    c->op = maker ? op_get(maker->op)->name : "none";
    c->bytes = tensor_nbytes(partial);
    c->next = reader ? op_get(reader->op)->name : "none";
    c->next_bytes = reader ? tensor_nbytes(reader->out) : 0;
}

int collectives_find(struct collectives *c, const struct plan *planned, const struct plan *ran, int devices,
                     struct hone_error *e)
{
    *c = (struct collectives){.devices = devices, .list = calloc((size_t)ran->n_steps + 1, sizeof *c->list)};
    if (!c->list)
        return err_set(e, HONE_ERESOURCE, "no memory for the collectives of %d steps", ran->n_steps);
    for (int i = 0; i < ran->n_steps; i++) {
        struct collective *one = &c->list[c->n];
        if (path_of(ran->steps[i].node, &one->outcome)) {
            one->planned = one->outcome;
            describe(one, ran, i);
            c->bytes += (double)one->bytes;
            c->n++;
        } else {
            c->n_gathers += node_collective(ran->steps[i].node);
        }
    }
    for (int i = 0, k = 0; i < planned->n_steps && k < c->n; i++) {
        enum collective_path path;
        if (path_of(planned->steps[i].node, &path))
            c->list[k++].planned = path;
    }
    for (int i = 0; i < c->n; i++) {
        bool fell = c->list[i].planned != PATH_PLAIN && c->list[i].outcome == PATH_PLAIN;
        c->fallback += fell;
        c->path[c->list[i].outcome] += !fell;
    }
    return 0;
}

void collectives_free(struct collectives *c)
{
    free(c->list);
    *c = (struct collectives){0};
}

static const char *upper(const char *name, char *text, size_t size)
{
    size_t i = 0;
    for (; name[i] && i + 1 < size; i++)
        text[i] = (char)toupper((unsigned char)name[i]);
    text[i] = 0;
    return text;
}

char *collectives_summary(const struct collectives *c, char *text, size_t size)
{
    char norm[40] = "";
    if (c->path[PATH_ADD_RMS_NORM])
        snprintf(norm, sizeof norm, " add_rms_norm=%d", c->path[PATH_ADD_RMS_NORM]);
    snprintf(text, size,
             "allreduce summary devices=%d graphs=1 count=%d total_bytes=%.0f path add=%d get_rows=%d%s plain=%d fallback=%d",
             c->devices, c->n, c->bytes, c->path[PATH_ADD], c->path[PATH_GET_ROWS], norm, c->path[PATH_PLAIN], c->fallback);
    return text;
}

/* Planned fused, ran plain: that is a path of its own. */
static const char *outcome_word(const struct collective *o)
{
    return o->planned != PATH_PLAIN && o->outcome == PATH_PLAIN ? "fallback" : path_word(o->outcome);
}

char *collectives_line(const struct collectives *c, int i, bool timed, char *text, size_t size)
{
    const struct collective *o = &c->list[i];
    char wait[40] = "";
    if (timed)
        snprintf(wait, sizeof wait, " wait_us=%.2f", o->wait_ns / 1e3);
    snprintf(text, size, "allreduce n=%d name=%s nbytes=%zu path=%s us=%.2f%s", i, o->name, o->bytes, outcome_word(o),
             o->ns / 1e3, wait);
    return text;
}

char *collectives_probe(const struct collectives *c, int i, char *text, size_t size)
{
    const struct collective *o = &c->list[i];
    char op[48], next[48];
    snprintf(text, size, "partial_probe name=%s op=%s nbytes=%zu next=%s next_nbytes=%zu plan=%s outcome=%s", o->name,
             upper(o->op, op, sizeof op), o->bytes, upper(o->next, next, sizeof next), o->next_bytes, path_word(o->planned),
             outcome_word(o));
    return text;
}

static json_t *paths_json(const struct collectives *c)
{
    json_t *paths = json_object();
    for (int p = 0; p < N_PATHS; p++)
        json_object_set_new(paths, path_word((enum collective_path)p), json_integer(c->path[p]));
    json_object_set_new(paths, "fallback", json_integer(c->fallback));
    return paths;
}

json_t *collectives_sum_json(const struct collectives *c)
{
    return json_pack("{s:i, s:i, s:f, s:i, s:o}", "devices", c->devices, "count", c->n, "bytes", c->bytes, "gathers",
                     c->n_gathers, "path", paths_json(c));
}

json_t *collectives_json(const struct collectives *c, bool timed)
{
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) {
        const struct collective *o = &c->list[i];
        json_t *one = json_pack("{s:s, s:s, s:i, s:s, s:i, s:s, s:s, s:f}", "name", o->name, "op", o->op, "nbytes",
                                (int)o->bytes, "next", o->next, "next_nbytes", (int)o->next_bytes, "plan",
                                path_word(o->planned), "outcome", outcome_word(o), "ns", o->ns);
        if (timed)
            json_object_set_new(one, "wait_ns", json_real(o->wait_ns));
        json_array_append_new(list, one);
    }
    return json_pack("{s:i, s:{s:i, s:f, s:i, s:o}, s:{s:I, s:I, s:I}, s:b, s:o}", "devices", c->devices, "per_graph", "count",
                     c->n, "bytes", c->bytes, "gathers", c->n_gathers, "path", paths_json(c), "raw", "graphs",
                     (json_int_t)c->graphs, "count", (json_int_t)c->raw_count, "bytes", (json_int_t)c->raw_bytes,
                     "synchronised", timed, "list", list);
}
