/* all_gather.c: out = the rows of which every rank has a part. src[0] f32 [n, ...], elements one behind the other; out f32
 * [total, ...]: row by row the parts in rank order. Parts may differ in size and be empty; their sum must be the total, which
 * all ranks know (params), while a part's size only its rank knows: the blocks themselves say it.
 *
 * Without a group the rank has its own part alone: it stands at the front, with zeros behind. */
#include "ops/all_gather.h"

#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

static const struct op_param params[] = {{OP_WHOLE(struct all_gather_params, total)}, {0}};

static int all_gather_shape(struct node *n, struct hone_error *e)
{
    char text[128];
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (rc)
        return rc;
    const struct tensor *x = n->src[0];
    int64_t total = node_params(n, struct all_gather_params)->total;
    if (!tensor_contiguous(x))
        return op_refuse(n, e, "source 0, %s, has gaps", tensor_describe(x, text, sizeof text));
    if (x->ne[0] > total)
        return op_refuse(n, e, "a part %s of rows of %lld", tensor_describe(x, text, sizeof text), (long long)total);
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){total, x->ne[1], x->ne[2], x->ne[3]}, e);
}

static size_t all_gather_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->out->ne[0];
}

static bool parts_fill(const struct node *n, const struct comm_block *all, int n_ranks)
{
    size_t bytes = 0;
    for (int r = 0; r < n_ranks; r++)
        bytes += all[r].bytes;
    return bytes == sizeof(float) * (size_t)tensor_elements(n->out);
}

static void parts_refuse(const struct node *n, struct comm *c)
{
    char message[200];
    snprintf(message, sizeof message, "%s: the parts of all ranks do not make rows of %lld", n->out->name,
             (long long)n->out->ne[0]);
    comm_abort(c, HONE_EFAULT, message);
}

static void all_gather_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *x = n->src[0];
    int64_t rows = tensor_rows(x), lo, hi, i[3];
    struct comm_block alone = {x->data, tensor_nbytes(x)};
    const struct comm_block *all = &alone;
    int n_ranks = w->comm ? comm_size(w->comm) : 1;
    if (w->comm && comm_share(w->comm, w, alone, sizeof(float) * (size_t)tensor_elements(n->out), n->out->name, &all))
        return;
    if (w->comm && !parts_fill(n, all, n_ranks)) {
        parts_refuse(n, w->comm);
        return;
    }
    worker_range(w, rows, 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        float *whole = w->scratch;
        int64_t at = 0;
        for (int r = 0; r < n_ranks; r++) {
            int64_t part = (int64_t)(all[r].bytes / sizeof(float)) / rows;
            if (part)
                memcpy(whole + at, (const float *)all[r].data + row * part, sizeof(float) * (size_t)part);
            at += part;
        }
        if (at < n->out->ne[0])
            memset(whole + at, 0, sizeof(float) * (size_t)(n->out->ne[0] - at));
        tensor_row_index(n->out, row, i);
        tensor_write_row(n->out, i[0], i[1], i[2], whole);
    }
}

static struct cost all_gather_cost(const struct node *n)
{
    return cost_elementwise(n, 0);
}

/* Three ranks, as the check makes them up: parts of one size. */
static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(struct all_gather_params){3}},
    {"logits_999", {{FORMAT_F32, {333}, FILL_NORMAL}}, &(struct all_gather_params){999}},
    {"logits_30720", {{FORMAT_F32, {10240}, FILL_NORMAL}}, &(struct all_gather_params){30720}},
    {"batch", {{FORMAT_F32, {64, 5}, FILL_NORMAL}}, &(struct all_gather_params){192}},
    {"odd_batch", {{FORMAT_F32, {77, 3, 2}, FILL_NORMAL}}, &(struct all_gather_params){231}},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(struct all_gather_params){192}},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, &(struct all_gather_params){900}},
};

const struct op_desc op_all_gather = {
    .name = "all_gather",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct all_gather_params),
    .params = params,
    .collective = true,
    .shape = all_gather_shape,
    .reference = all_gather_reference,
    .scratch = all_gather_scratch,
    .cost = all_gather_cost,
    /* Nothing is computed. */
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
