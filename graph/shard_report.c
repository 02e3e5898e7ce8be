/* shard_report.c: the cut as rows to show: one for all layers whose weights of a name are cut alike, and one for each matrix,
 * or each of all layers, that is mirrored, with the reason. Vectors that are mirrored are not listed; they count in the bytes.
 */
#include "graph/shard_pass.h"

#include "base/hash.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "blk.12.attn_q.weight" as "blk.*.attn_q.weight". */
static void pattern_of(const char *name, char out[NAME_SIZE])
{
    size_t at = strncmp(name, "blk.", 4) ? 0 : 4, digits = 0, n = strlen(name);
    while (at && isdigit((unsigned char)name[at + digits]))
        digits++;
    memcpy(out, name, n + 1);
    if (digits) { /* one star for them all */
        out[at] = '*';
        memmove(out + at + 1, name + at + digits, n - at - digits + 1);
    }
}

static bool same_row(const struct shard_row *a, const struct shard_row *b, int n_ranks)
{
    return !strcmp(a->name, b->name) && !strcmp(a->how, b->how) && !strcmp(a->why, b->why) && a->total == b->total &&
           !a->parts == !b->parts && (!a->parts || !memcmp(a->parts, b->parts, (size_t)n_ranks * sizeof *a->parts));
}

static const char *why_whole(const struct shard *s, const struct tensor *w, bool looked_up)
{
    for (int i = 0; i < s->n_kept; i++)
        if (s->kept[i].weight == w)
            return s->kept[i].why;
    return looked_up ? "looked up by row" : "what it gives is needed whole";
}

static int row_add(struct shard *s, const struct tensor *w, const struct demand *d, const char *why, int *cap,
                   struct hone_error *e)
{
    struct shard_row row = {
        .how = d ? d->split[0].axis ? "rows" : "columns" : "mirrored", .why = why, .n_tensors = 1, .bytes = op_stored_bytes(w)};
    pattern_of(w->name, row.name);
    if (d) {
        int64_t *parts = arena_array(&s->arena, (size_t)s->n_ranks, sizeof *parts);
        if (!parts)
            return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
        for (int r = 0; r < s->n_ranks; r++)
            parts[r] = d->split[r].count;
        row.parts = parts;
        row.total = w->ne[d->split[0].axis];
    }
    for (int i = 0; i < s->n_rows; i++)
        if (same_row(&s->rows[i], &row, s->n_ranks)) {
            s->rows[i].n_tensors++;
            s->rows[i].bytes += row.bytes;
            return 0;
        }
    if (s->n_rows == *cap) {
        *cap = *cap ? 2 * *cap : 32;
        struct shard_row *rows = arena_array(&s->arena, (size_t)*cap, sizeof *rows);
        if (!rows)
            return err_set(e, HONE_ERESOURCE, "no memory to cut a model");
        if (s->n_rows)
            memcpy(rows, s->rows, (size_t)s->n_rows * sizeof *rows);
        s->rows = rows;
    }
    s->rows[s->n_rows++] = row;
    return 0;
}

static int weight_report(struct shard *s, struct mark *m, bool looked_up, int *cap, struct hone_error *e)
{
    const struct tensor *w = m->whole;
    unsigned kind = looked_up ? 1 : 2;
    const struct demand *d = looked_up ? NULL : demand_find(s, w);
    if (m->listed & kind)
        return 0;
    if (!d && !looked_up) /* of a table the few rows that are looked up come into memory */
        s->mirrored_bytes += op_stored_bytes(w);
    m->listed |= kind;
    return d || tensor_rows(w) > 1 ? row_add(s, w, d, d ? "" : why_whole(s, w, looked_up), cap, e) : 0;
}

int shard_report(struct shard *s, const struct graph *whole, struct hone_error *e)
{
    struct arena scratch = {0};
    struct pass p;
    int cap = 0, rc = s->mode == SHARD_LAYER || pass_init(&p, s, whole, &scratch, 0)
                          ? 0
                          : err_set(e, HONE_ERESOURCE, "no memory to cut a model");
    for (int i = 0; i < whole->n_nodes && !rc && s->mode == SHARD_TENSOR; i++) {
        const struct node *n = whole->nodes[i];
        for (int j = 0; j < n->n_src && !rc; j++)
            if (n->src[j] && n->src[j]->kind == TENSOR_WEIGHT)
                rc = weight_report(s, mark_of(&p, n->src[j]), n->op == OP_GET_ROWS, &cap, e);
    }
    arena_free(&scratch);
    return rc;
}

const struct shard_row *shard_rows(const struct shard *s, int *n)
{
    *n = s->n_rows;
    return s->rows;
}

uint64_t shard_hash(const struct shard *s)
{
    uint64_t hash = (uint64_t)s->mode * 1000 + (uint64_t)s->n_ranks;
    for (int i = 0; i < s->n_rows; i++) {
        struct {
            uint64_t before, total, tensors, parts, name;
        } one = {hash, (uint64_t)s->rows[i].total, (uint64_t)s->rows[i].n_tensors, 0,
                 hash64(s->rows[i].name, strlen(s->rows[i].name))};
        if (s->rows[i].parts)
            one.parts = hash64(s->rows[i].parts, (size_t)s->n_ranks * sizeof *s->rows[i].parts);
        hash = hash64(&one, sizeof one);
    }
    return hash;
}
