/* verify_nodes.c: where two runs part. First both sides list every value of the step by name and hash; from the first that
 * differs on, both write the values themselves, 512 MB at most, and those are compared as kernels are (lab/difference.h).
 *
 * The first value that differs was computed from the same inputs on both sides, unless one of them read an activation that the
 * other did not quantise. Then its kernels alone make the difference, and it has to be within the tolerance of its op, or of
 * its kernel. Behind it errors add up, so a later value is held to the loosest tolerance on the way to it: a class, no fault.
 */
#include "lab/verify.h"

#include "graph/plan.h"
#include "lab/difference.h"
#include "model/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text_of(const json_t *node, const char *key)
{
    const char *t = json_string_value(json_object_get(node, key));
    return t ? t : "";
}

/* The place of the tensor of a name; -1. A name that comes twice means its first. */
static int place_of(const json_t *list, const char *name)
{
    size_t i;
    json_t *node;
    json_array_foreach(list, i, node)
    {
        if (!strcmp(text_of(node, "tensor"), name))
            return (int)i;
    }
    return -1;
}

static bool same_hash(const json_t *a, const json_t *b)
{
    return !strcmp(text_of(a, "hash"), text_of(b, "hash")) && !strcmp(text_of(a, "shape"), text_of(b, "shape"));
}

/* Whether two values of one name can be held to each other: what one side has a part of, over several devices, the other may have whole. */
static bool comparable(const json_t *a, const json_t *b)
{
    bool part = json_is_true(json_object_get(a, "part"));
    return part == json_is_true(json_object_get(b, "part")) && (!part || !strcmp(text_of(a, "shape"), text_of(b, "shape")));
}

int verify_nodes_first(const json_t *a, const json_t *b, int *in_b)
{
    size_t i;
    json_t *node;
    json_array_foreach(a, i, node)
    {
        int j = place_of(b, text_of(node, "tensor"));
        if (j >= 0 && comparable(node, json_array_get(b, (size_t)j)) && !same_hash(node, json_array_get(b, (size_t)j))) {
            *in_b = j;
            return (int)i;
        }
    }
    return -1;
}

/* Whether both models have the weight of this name with the same bits (what is none, an input or a cache, both have). */
static bool same_weight(const struct node_lists *l, const char *name)
{
    if (l->model_a == l->model_b)
        return true;
    const struct gguf_tensor *x = gguf_tensor(l->model_a, name), *y = gguf_tensor(l->model_b, name);
    if (!x || !y)
        return !x && !y;
    return x->known && y->known && x->format == y->format && x->bytes == y->bytes && !memcmp(x->data, y->data, x->bytes);
}

/* Whether all that `node` reads was the same on the other side, or is computed by that side alone without rounding an
 * activation. */
static bool reads_the_same(const json_t *node, const struct node_lists *l, bool of_b)
{
    const json_t *own = of_b ? l->b : l->a, *other = of_b ? l->a : l->b;
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(node, "src"), i, name)
    {
        const char *src = json_string_value(name);
        int mine = src ? place_of(own, src) : -1, theirs = src ? place_of(other, src) : -1;
        if (mine < 0 && (!src || !same_weight(l, src)))
            return false;
        if (mine < 0)
            continue;
        const json_t *x = json_array_get(own, (size_t)mine);
        if (theirs >= 0 && !same_hash(x, json_array_get(other, (size_t)theirs)))
            return false;
        if (theirs < 0 && !strcmp(text_of(x, "format"), "A8"))
            return false;
    }
    return true;
}

/* Both kernels had the same question to answer: the same inputs, and a result of one format (a cache in another is another
 * question). */
static bool same_question(const json_t *x, const json_t *y, const struct node_lists *l)
{
    return !strcmp(text_of(x, "format"), text_of(y, "format")) && reads_the_same(x, l, false) && reads_the_same(y, l, true);
}

/* The op's, or the wider one of the kernel that ran it. */
static double tolerance_of(const json_t *node)
{
    enum op op;
    int n_backends;
    char name[128];
    const struct backend *const *backends = backend_list(&n_backends);
    if (op_by_name(text_of(node, "op"), &op))
        return 0;
    for (int b = 0; b < n_backends; b++) {
        int n;
        const struct kernel *const *list = backends[b]->kernels(&n);
        for (int i = 0; i < n; i++)
            if (list[i]->op == op && list[i]->tolerance > 0 &&
                !strcmp(kernel_name(backends[b], list[i], name, sizeof name), text_of(node, "kernel")))
                return kernel_tolerance(list[i]);
    }
    return op_get(op)->tolerance;
}

/* What rounding to the format of a value costs where what is rounded differs a little: half a step for some of the values. F16
 * has 11 bits; the others have 8 or fewer, as the ops that quantise. */
static double rounding_of(const json_t *node)
{
    const char *format = text_of(node, "format");
    return !strcmp(format, "F32") ? 0 : !strcmp(format, "F16") ? 1e-7 : 1e-4;
}

/* The values of list entry i, as a tensor; false when they are not in the file. */
static bool values_of(const struct gguf *file, int i, struct tensor *t)
{
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    const struct gguf_tensor *g = file ? gguf_tensor(file, name) : NULL;
    if (!g || !g->known || g->format != FORMAT_F32)
        return false;
    *t = (struct tensor){.kind = TENSOR_VALUE};
    tensor_shape(t, FORMAT_F32, MAX_DIMS, g->ne);
    t->data = (void *)(uintptr_t)g->data;
    return true;
}

/* n from the two values; false when they cannot be held to each other. */
static bool compare_values(struct verify_node *n, const struct gguf *file_a, int i, const struct gguf *file_b, int j,
                           double tolerance, bool *within)
{
    struct tensor want, got;
    struct difference d;
    if (!values_of(file_a, i, &want) || !values_of(file_b, j, &got) || !tensor_same_shape(&want, &got))
        return false;
    difference_find(&d, &got, &want, tolerance);
    n->row = d.row[0] + d.row[1] * want.ne[1] + d.row[2] * want.ne[1] * want.ne[2];
    n->column = d.column;
    n->got = d.got;
    n->want = d.want;
    n->nmse = d.nmse;
    n->tolerance = d.tolerance > tolerance ? d.tolerance : tolerance;
    *within = d.kind == DIFFERENCE_NONE;
    return true;
}

static void name_node(struct verify_node *n, const json_t *a, const json_t *b)
{
    *n = (struct verify_node){.nmse = NAN};
    snprintf(n->tensor, sizeof n->tensor, "%s", text_of(a, "tensor"));
    for (int k = 0; k < 2; k++) {
        snprintf(n->op[k], sizeof n->op[k], "%s", text_of(k ? b : a, "op"));
        snprintf(n->kernel[k], sizeof n->kernel[k], "%s", text_of(k ? b : a, "kernel"));
    }
}

void verify_nodes_compare(struct verify_nodes *n, const struct node_lists *l)
{
    size_t i;
    json_t *x;
    int first_b = -1, first = verify_nodes_first(l->a, l->b, &first_b);
    double loosest = 0;
    n->n_common = n->n_different = 0;
    json_array_foreach(l->a, i, x)
    {
        int j = place_of(l->b, text_of(x, "tensor"));
        const json_t *y = j >= 0 && comparable(x, json_array_get(l->b, (size_t)j)) ? json_array_get(l->b, (size_t)j) : NULL;
        struct verify_node node;
        bool within = true;
        n->n_common += y != NULL;
        if (first < 0 || (int)i < first) /* nothing has differed yet: no error has come in */
            continue;
        double own = fmax(tolerance_of(x), y ? tolerance_of(y) : 0);
        loosest = fmax(loosest, fmax(own, rounding_of(x)));
        if (!y || same_hash(x, y))
            continue;
        n->n_different++;
        name_node(&node, x, y);
        node.same_inputs = (int)i == first && same_question(x, y, l);
        bool known = compare_values(&node, l->file_a, (int)i, l->file_b, j, node.same_inputs ? own : loosest, &within);
        if ((int)i == first)
            n->first = node;
        if (known && !within && !n->beyond.tensor[0])
            n->beyond = node;
    }
}

/* ---- the runs */

static json_t *node_job(const struct verify *v, const char *file, int first)
{
    enum { LIMIT = 512 << 20 };
    const struct verify_nodes *n = &v->nodes;
    const struct verify_text *t = &v->texts[n->text];
    size_t prefill = verify_prefill(v, t), end = n->step ? prefill + n->step : prefill;
    json_t *ids = json_array(), *nodes = json_pack("{s:I}", "step", (json_int_t)n->step);
    for (size_t i = 0; i < end; i++)
        json_array_append_new(ids, json_integer(t->ids[i]));
    if (file) {
        json_object_set_new(nodes, "file", json_string(file));
        json_object_set_new(nodes, "first", json_integer(first));
        json_object_set_new(nodes, "bytes", json_integer(LIMIT));
    }
    /* The same logits are wanted as when they were compared: they decide which rows the last layer computes. */
    return json_pack("{s:o, s:I, s:I, s:o}", "tokens", ids, "prefill", (json_int_t)prefill, "from",
                     (json_int_t)verify_first(v, t), "nodes", nodes);
}

static int list_nodes(struct verify *v, int side, const char *file, int first, json_t **list, struct hone_error *e)
{
    json_t *jobs = json_pack("[o]", node_job(v, file, first)), *answers = NULL;
    int rc = jobs ? side_jobs(v, side, jobs, &answers, NULL, e) : err_set(e, HONE_ERESOURCE, "no memory for a job");
    *list = rc ? NULL : json_incref(json_object_get(json_array_get(answers, 0), "nodes"));
    if (!rc && !json_is_array(*list))
        rc = err_set(e, HONE_EINPUT, "side %s gave no nodes", side ? "B" : "A");
    json_decref(jobs);
    json_decref(answers);
    return rc;
}

static int look_at_values(struct verify *v, const char *folder, const int first[2], struct hone_error *e)
{
    char path[2][4300];
    struct gguf *file[2] = {NULL, NULL};
    json_t *list[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/nodes-%s.gguf", folder, i ? "B" : "A");
    for (int i = 0; i < 2 && !rc; i++) {
        rc = list_nodes(v, i, path[i], first[i], &list[i], e);
        if (!rc)
            rc = gguf_open(&file[i], path[i], e);
    }
    if (!rc)
        verify_nodes_compare(&v->nodes, &(struct node_lists){list[0], list[1], file[0], file[1], v->side[0].model->model->gguf,
                                                             v->side[1].model->model->gguf});
    for (int i = 0; i < 2; i++) {
        gguf_close(file[i]);
        json_decref(list[i]);
        unlink(path[i]);
    }
    return rc;
}

int verify_look(struct verify *v, const char *folder, struct hone_error *e)
{
    struct verify_nodes *n = &v->nodes;
    json_t *list[2] = {NULL, NULL};
    int first[2] = {-1, -1}, rc = 0;
    if (!v->side[0].has_jobs || !v->side[1].has_jobs) {
        snprintf(n->why_not, sizeof n->why_not, "side %s is a build that cannot show its nodes",
                 v->side[0].has_jobs ? "B" : "A");
        return 0;
    }
    const struct verify_text *t;
    verify_place(v, v->first_bits, &n->text, &n->position);
    t = &v->texts[n->text];
    size_t prefill = verify_prefill(v, t);
    n->step = n->position < prefill ? 0 : n->position - prefill + 1;
    for (int i = 0; i < 2 && !rc; i++)
        rc = list_nodes(v, i, NULL, 0, &list[i], e);
    if (!rc)
        first[0] = verify_nodes_first(list[0], list[1], &first[1]);
    n->looked = !rc;
    if (!rc && first[0] < 0) {
        verify_nodes_compare(n, &(struct node_lists){.a = list[0], .b = list[1]});
        snprintf(n->why_not, sizeof n->why_not, "%s",
                 n->n_common ? "this time all values that both sides have are the same: the sides are not steady, or "
                               "what differs lies in a cache before the step"
                             : "the sides have no value of the same name");
    }
    json_decref(list[0]);
    json_decref(list[1]);
    return rc || first[0] < 0 ? rc : look_at_values(v, folder, first, e);
}
