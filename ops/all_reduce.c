/* all_reduce.c: out = the sum of all ranks' src[0], f32, of one shape. The order and the precision of the sum are part of its
 * meaning: in rank order, each addition rounded to f32, ((x0 + x1) + x2) + ... So every rank, every kernel and every transport
 * gives the same bits, and the result is mirrored by itself. A sum in double rounded once would be a little nearer to the
 * truth, and a kernel on a device that lacks fast doubles could not give its bits. With few ranks the difference is far below
 * what the partial sums have lost already.
 *
 * Without a group (w->comm NULL) the rank is alone, and out = src[0]. */
#include "ops/ops.h"

#include "comm/comm.h"

static int all_reduce_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    return rc ? rc : op_set_out(n, FORMAT_F32, n->src[0]->ne, e);
}

/* A row of sums, and room for a row of one rank. */
static size_t all_reduce_scratch(const struct node *n)
{
    return 2 * sizeof(float) * (size_t)n->out->ne[0];
}

/* When the group fails the output stays unwritten: who runs nodes asks comm_error. */
static void all_reduce_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *x = n->src[0];
    struct comm_block alone = {x->data, tensor_nbytes(x)};
    const struct comm_block *all = &alone;
    int n_ranks = w->comm ? comm_size(w->comm) : 1;
    if (w->comm && comm_share_even(w->comm, w, alone.data, alone.bytes, n->out->name, &all))
        return;
    float *sum = w->scratch, *room = sum + n->out->ne[0];
    int64_t lo, hi, i[3];
    worker_range(w, tensor_rows(x), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(x, row, i);
        for (int r = 0; r < n_ranks; r++) {
            struct tensor t = *x; /* of the same strides on every rank: they run one program */
            t.data = (void *)(uintptr_t)all[r].data;
            const float *values = tensor_read_row(&t, i[0], i[1], i[2], room);
            for (int64_t j = 0; j < x->ne[0]; j++)
                sum[j] = r ? sum[j] + values[j] : values[j];
        }
        tensor_write_row(n->out, i[0], i[1], i[2], sum);
    }
}

/* This rank's part and the result; how many others there are a node does not know. */
static struct cost all_reduce_cost(const struct node *n)
{
    return cost_elementwise(n, 1);
}

static const struct op_case cases[] = {
    {"one", {{FORMAT_F32, {1}, FILL_NORMAL}}, NULL},
    {"decode_576", {{FORMAT_F32, {576}, FILL_NORMAL}}, NULL},
    {"decode_5120", {{FORMAT_F32, {5120}, FILL_NORMAL}}, NULL},
    {"batch_2048", {{FORMAT_F32, {2048, 5}, FILL_NORMAL}}, NULL},
    {"odd_tail", {{FORMAT_F32, {1001, 3}, FILL_NORMAL}}, NULL},
    {"no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, NULL},
    {"four_dims", {{FORMAT_F32, {17, 3, 2, 4}, FILL_NORMAL}}, NULL},
    {"padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, NULL},
    {"transposed", {{FORMAT_F32, {13, 7, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, NULL},
    {"permuted", {{FORMAT_F32, {16, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, NULL},
    {"hostile", {{FORMAT_F32, {300, 9}, FILL_HOSTILE}}, NULL},
};

const struct op_desc op_all_reduce = {
    .name = "all_reduce",
    .min_src = 1,
    .max_src = 1,
    .collective = true,
    .shape = all_reduce_shape,
    .reference = all_reduce_reference,
    .scratch = all_reduce_scratch,
    .cost = all_reduce_cost,
    /* The bits are part of the meaning. */
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
