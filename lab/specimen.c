/* specimen.c: making specimens: memory, roles, contents. See specimen.h.
 *
 * The second data set is drawn from another seed and then made small: values of narrow formats by 2^-14, the first source by
 * 2^-10, with negative zeros and denormals strewn in. So the scales of blocks become denormal halves, which a conversion
 * by bits gets wrong; and a norm's epsilon weighs as much as the mean that it is added to, so one taken from elsewhere shows.
 * What is small in the second set is what a kernel multiplies by; positions, frequency factors and the like stay as they are.
 *
 * Memory is taken anew for each tensor rather than from the planner's one block, so that behind each there is a guard and not
 * the next value. Large regions come in huge pages, as packed weights do, or timing them would measure the walk of page tables.
 */
#include "lab/specimen.h"

#include "base/mmap.h"
#include "graph/fuse_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- regions */

enum { LARGE = 4 << 20 };

int region_place(struct region *r, struct arena *arena, struct tensor *t, enum region_role role, size_t size, size_t first,
                 size_t span)
{
    *r = (struct region){.tensor = t, .role = role, .size = size, .first = first, .span = span};
    r->bytes = size >= LARGE ? pages_alloc(size) : aligned_alloc(64, (size + 63) / 64 * 64);
    for (int d = 0; d < DATA_SETS; d++)
        r->before[d] = arena_alloc(arena, size);
    if (!r->bytes || !r->before[DATA_SETS - 1])
        return -1;
    memset(r->bytes, REGION_NOTHING, size);
    t->data = r->bytes + first;
    return 0;
}

struct region *specimen_region(struct specimen *s, struct tensor *t, enum region_role role, size_t nbytes)
{
    if (!s->regions)
        s->regions = arena_array(&s->arena, MAX_REGIONS, sizeof *s->regions);
    if (!s->regions || s->n_regions == MAX_REGIONS)
        return NULL;
    struct region *r = &s->regions[s->n_regions];
    s->n_regions++; /* what region_place got is freed with the specimen, also when the rest was not to be had */
    return region_place(r, &s->arena, t, role, 2 * REGION_GUARD + nbytes, REGION_GUARD, nbytes) ? NULL : r;
}

void region_load(struct region *r, int data, int unwritten)
{
    memcpy(r->bytes, r->before[data], r->size);
    if (r->role == REGION_RESULT)
        memset(r->bytes + r->first, unwritten, r->span);
}

void regions_free(struct region *r, int n)
{
    for (int i = 0; i < n; i++)
        if (r[i].size >= LARGE)
            pages_free(r[i].bytes, r[i].size);
        else
            free(r[i].bytes);
}

/* ---- what the node leaves */

static bool has_result(const struct specimen *s, const struct tensor *t)
{
    for (int i = 0; i < s->n_results; i++)
        if (s->results[i] == t)
            return true;
    return false;
}

static void add_result(struct specimen *s, struct tensor *t)
{
    if (!has_result(s, t) && s->n_results < (int)(sizeof s->results / sizeof *s->results))
        s->results[s->n_results++] = t;
}

/* out, also, and what is written in place: states live on whether somebody reads the part's output or not. */
static void find_results(struct specimen *s)
{
    const struct node *n = s->node;
    for (int i = 0; i < n->n_parts; i++) {
        if (tensor_root(n->parts[i]->out)->kind != TENSOR_VALUE)
            add_result(s, n->parts[i]->out);
        if (node_updates(n->parts[i]))
            add_result(s, node_updates(n->parts[i]));
    }
    if (node_updates(n))
        add_result(s, node_updates(n));
    for (int i = 0; i < n->n_also; i++)
        add_result(s, n->also[i]);
    add_result(s, n->out);
}

static void mark_elements(const struct region *r, const struct tensor *t)
{
    const struct format *f = format_get(t->format);
    for (int64_t row = 0; row < tensor_rows(t); row++) {
        int64_t i[3];
        tensor_row_index(t, row, i);
        const unsigned char *first = tensor_row(t, i[0], i[1], i[2]);
        for (int64_t block = 0; block < t->ne[0] / f->block; block++)
            memset(r->element + (first - r->bytes) + (size_t)block * t->nb[0], 1, (size_t)f->bytes);
    }
}

static int find_role(struct specimen *s, struct region *r)
{
    r->role = REGION_SOURCE;
    for (int i = 0; i < s->node->n_parts; i++)
        if (tensor_root(s->node->parts[i]->out) == r->tensor && r->tensor->kind == TENSOR_VALUE)
            r->role = REGION_INNER;
    for (int i = 0; i < s->n_results; i++)
        if (tensor_root(s->results[i]) == r->tensor)
            r->role = r->tensor->kind == TENSOR_VALUE ? REGION_RESULT : REGION_STATE;
    if (r->role != REGION_RESULT && r->role != REGION_STATE)
        return 0;
    r->element = arena_alloc(&s->arena, r->size);
    for (int d = 0; d < DATA_SETS; d++)
        r->expected[d] = arena_alloc(&s->arena, r->size);
    if (!r->element || !r->expected[DATA_SETS - 1])
        return -1;
    for (int i = 0; i < s->n_results; i++)
        if (tensor_root(s->results[i]) == r->tensor)
            mark_elements(r, s->results[i]);
    return 0;
}

int specimen_seal(struct specimen *s, int data, struct hone_error *e)
{
    if (data == 0) {
        s->expected_for = -1;
        find_results(s);
        for (int i = 0; i < s->n_regions; i++)
            if (find_role(s, &s->regions[i]))
                return err_set(e, HONE_ERESOURCE, "no memory for case %s", s->name);
    }
    for (int i = 0; i < s->n_regions; i++)
        memcpy(s->regions[i].before[data], s->regions[i].bytes, s->regions[i].size);
    s->n_data = data + 1;
    return 0;
}

void specimen_free(struct specimen *s)
{
    regions_free(s->regions, s->n_regions);
    arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* ---- from a case of an op */

/* Every value of t by a power of two; of formats without blocks some become zeros of either sign and denormals. */
static void make_small(const struct tensor *t, float *row)
{
    const struct format *f = format_get(t->format);
    float factor = t->format == FORMAT_F32 || t->format == FORMAT_BF16 ? 0x1p-10f : 0x1p-14f;
    for (int64_t r = 0; r < tensor_rows(t); r++) {
        int64_t i[3];
        tensor_row_index(t, r, i);
        const float *values = tensor_read_row(t, i[0], i[1], i[2], row);
        for (int64_t j = 0; j < t->ne[0]; j++) {
            int64_t n = r * t->ne[0] + j;
            row[j] = values[j] * factor;
            if (f->block == 1 && n % 17 == 5)
                row[j] = n % 2 ? -0.0f : 0.0f;
            else if (f->block == 1 && n % 19 == 7)
                row[j] = row[j] < 0 ? -1e-40f : 1e-40f;
        }
        tensor_write_row(t, i[0], i[1], i[2], row);
    }
}

static int make_all_small(const struct tensor *t, struct hone_error *e)
{
    float *row = malloc(sizeof *row * (size_t)(t->ne[0] + 1));
    if (!row)
        return err_set(e, HONE_ERESOURCE, "no memory for a row of a case");
    make_small(t, row);
    free(row);
    return 0;
}

static int case_make_small(struct case_run *c, const struct op_case *spec, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < c->node.n_src && !rc; i++) {
        const struct tensor *t = c->node.src[i];
        if (t && spec->src[i].fill == FILL_NORMAL && format_get(t->format)->pack && (t->format != FORMAT_F32 || i == 0))
            rc = make_all_small(t, e);
    }
    return rc;
}

static struct tensor *copy_tensor(struct specimen *s, const struct tensor *t)
{
    struct tensor *copy = arena_alloc(&s->arena, sizeof *copy);
    if (copy)
        *copy = *t;
    return copy;
}

/* The case's node and tensors in the specimen's own memory; contents come later. */
static int adopt(struct specimen *s, const struct case_run *c)
{
    struct node *n = s->node = arena_alloc(&s->arena, sizeof *n);
    s->regions = arena_array(&s->arena, MAX_REGIONS, sizeof *s->regions);
    if (!n || !s->regions)
        return -1;
    *n = c->node;
    for (int m = 0; m <= MAX_SRC; m++) {
        const struct tensor *from = m == MAX_SRC ? c->node.out : m < n->n_src ? c->node.src[m] : NULL;
        const struct case_memory *memory = &c->memory[m];
        struct tensor *t = from ? copy_tensor(s, from) : NULL;
        if (from && !t)
            return -1;
        if (m == MAX_SRC)
            n->out = t;
        else if (m < n->n_src)
            n->src[m] = t;
        if (t && memory->size) {
            size_t first = (size_t)((unsigned char *)from->data - memory->bytes);
            if (region_place(&s->regions[s->n_regions++], &s->arena, t, REGION_SOURCE, memory->size, first, tensor_nbytes(t)))
                return -1;
        }
    }
    for (int i = 0; i < n->n_src && n->out->base; i++)
        if (c->node.src[i] == c->out.base) {
            n->out->base = n->src[i];
            n->out->data = (char *)n->src[i]->data + n->out->offset;
        }
    n->out->producer = n;
    return 0;
}

static void copy_contents(struct specimen *s, const struct case_run *c)
{
    int r = 0;
    for (int m = 0; m <= MAX_SRC; m++)
        if (c->memory[m].size) {
            memcpy(s->regions[r].bytes, c->memory[m].bytes, c->memory[m].size);
            r++;
        }
}

/* As a model has them: what a product or a lookup reads first is a weight, in rows as in the file. */
static void mark_weights(struct node *n)
{
    struct tensor *w = n->src[0];
    bool matrices = n->op == OP_MUL_MAT_ID ? w->ne[3] == 1 : w->ne[2] == 1 && w->ne[3] == 1;
    if ((n->op == OP_MUL_MAT || n->op == OP_GET_ROWS || n->op == OP_MUL_MAT_ID) && matrices && tensor_contiguous(w)) {
        w->kind = TENSOR_WEIGHT;
        w->rows = w->data;
    }
}

int specimen_from_case(struct specimen *s, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e)
{
    memset(s, 0, sizeof *s);
    size_t n = strlen(spec->name) < sizeof s->name ? strlen(spec->name) : sizeof s->name - 1;
    memcpy(s->name, spec->name, n);
    int rc = 0;
    for (int d = 0; d < DATA_SETS && !rc; d++) {
        struct case_run c;
        rc = case_create_from(&c, op, spec, seed + (uint64_t)d * 0x5851f42d4c957f2du, e);
        if (rc)
            break;
        if (d == 0 && adopt(s, &c))
            rc = err_set(e, HONE_ERESOURCE, "no memory for case %s", s->name);
        if (d == 0 && !rc)
            mark_weights(s->node);
        if (d == 1)
            rc = case_make_small(&c, spec, e);
        if (!rc) {
            copy_contents(s, &c);
            rc = specimen_seal(s, d, e);
        }
        case_free(&c);
    }
    if (rc)
        specimen_free(s);
    return rc;
}

/* ---- in the size of a model */

enum { DISTINCT_ROWS = 61 }; /* a prime: no kernel's tile of rows is a multiple of it, so each row of a tile differs */

/* A region in place of r, for the same tensor with its new shape. */
static int replace_region(struct specimen *s, struct region *r)
{
    struct region old = *r;
    int rc = region_place(r, &s->arena, old.tensor, old.role, 2 * REGION_GUARD + tensor_nbytes(old.tensor), REGION_GUARD,
                          tensor_nbytes(old.tensor));
    for (int d = 0; d < DATA_SETS && !rc; d++) {
        memset(r->before[d], REGION_NOTHING, r->size);
        for (size_t i = 0; i < r->span && old.role == REGION_SOURCE; i += old.span) {
            size_t n = r->span - i < old.span ? r->span - i : old.span;
            memcpy(r->before[d] + r->first + i, old.before[d] + old.first, n);
        }
    }
    regions_free(&old, 1);
    return rc ? rc : find_role(s, r);
}

int specimen_from_shape(struct specimen *s, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e)
{
    struct op_case narrow = *spec;
    bool weight = op == OP_MUL_MAT || op == OP_GET_ROWS;
    if (weight && narrow.src[0].ne[1] > DISTINCT_ROWS)
        narrow.src[0].ne[1] = DISTINCT_ROWS;
    if (op == OP_GET_ROWS)
        narrow.src[1].limit = DISTINCT_ROWS;
    int rc = specimen_from_case(s, op, &narrow, seed, e);
    if (rc || !weight)
        return rc;
    struct tensor *w = s->node->src[0];
    tensor_shape(w, w->format, MAX_DIMS, (const int64_t[MAX_DIMS]){w->ne[0], spec->src[0].ne[1], 1, 1});
    rc = op_get(op)->shape(s->node, e);
    for (int i = 0; i < s->n_regions && !rc; i++)
        if ((s->regions[i].tensor == w || s->regions[i].tensor == s->node->out) && replace_region(s, &s->regions[i]))
            rc = err_set(e, HONE_ERESOURCE, "no memory for case %s", s->name);
    w->rows = w->data;
    if (rc)
        specimen_free(s);
    return rc;
}

/* ---- from a case of a fusion */

static bool has_region(const struct specimen *s, const struct tensor *root)
{
    for (int i = 0; i < s->n_regions; i++)
        if (s->regions[i].tensor == root)
            return true;
    return false;
}

/* Memory for t's root, once. */
static int give_memory(struct specimen *s, struct tensor *t)
{
    struct tensor *root = tensor_root(t);
    if (!has_region(s, root) && !specimen_region(s, root, REGION_SOURCE, tensor_nbytes(root)))
        return -1;
    if (t->base)
        t->data = (char *)root->data + t->offset;
    if (root->kind == TENSOR_WEIGHT)
        root->rows = root->data;
    return 0;
}

int specimen_give_memory(struct specimen *s, const struct node *n, struct hone_error *e)
{
    bool failed = give_memory(s, n->out);
    for (int i = 0; i < n->n_src && !failed; i++)
        failed = n->src[i] && give_memory(s, n->src[i]);
    for (int i = 0; i < n->n_parts && !failed; i++)
        if (specimen_give_memory(s, n->parts[i], e))
            return e ? e->code : HONE_ERESOURCE;
    return failed ? err_set(e, HONE_ERESOURCE, "no memory for case %s", s->name) : 0;
}

int specimen_from_fusion(struct specimen *s, enum fusion_id f, int i, uint64_t seed, struct hone_error *e)
{
    memset(s, 0, sizeof *s);
    struct fuse_case *c = malloc(sizeof *c);
    int rc = c ? fuse_case_build(c, f, i, &s->arena, e) : err_set(e, HONE_ERESOURCE, "no memory for a case of a fusion");
    if (!rc) {
        snprintf(s->name, sizeof s->name, "%s", c->name);
        s->node = c->fused;
        rc = specimen_give_memory(s, s->node, e);
    }
    for (int d = 0; d < DATA_SETS && !rc; d++) {
        for (int l = 0; l < c->n_leaves && !rc; l++) {
            const struct fuse_leaf *leaf = &c->leaves[l];
            const struct tensor *t = leaf->tensor;
            if (!t->data)
                continue; /* for readers outside of the match */
            rc = case_fill(t, &leaf->spec, seed + (uint64_t)(l * DATA_SETS + d) * 0x9e3779b97f4a7c15u, e);
            bool scales = t->format != FORMAT_F32 || t->kind == TENSOR_INPUT;
            if (!rc && d == 1 && scales && leaf->spec.fill == FILL_NORMAL && format_get(t->format)->pack)
                rc = make_all_small(t, e);
        }
        if (!rc)
            rc = specimen_seal(s, d, e);
    }
    free(c);
    if (rc)
        specimen_free(s);
    return rc;
}
