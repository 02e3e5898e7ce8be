/* recurrent.c: the shape rule that ops with a recurrent state share. See recurrent.h. */
#include "ops/recurrent.h"

int recurrent_shape(const struct node *n, int state, int n_dims, int sequences, int slots, int64_t n_tokens,
                    struct hone_error *e)
{
    const struct tensor *of = n->src[sequences], *where = n->src[slots], *s = n->src[state];
    char a[128], b[128], c[128];
    int rc = op_check_format(n, state, FORMAT_F32, e);
    if (!rc)
        rc = op_check_unpacked(n, state, e);
    if (!rc)
        rc = op_check_format(n, sequences, FORMAT_I32, e);
    if (!rc)
        rc = op_check_format(n, slots, FORMAT_I32, e);
    if (rc)
        return rc;
    for (int i = n_dims; i < MAX_DIMS; i++)
        if (s->ne[i] != 1)
            return op_refuse(n, e, "state %s has more than %d dimensions", tensor_describe(s, a, sizeof a), n_dims);
    if (of->ne[0] != n_tokens || tensor_rows(of) != 1 || where->ne[0] != 2 || where->ne[2] != 1 || where->ne[3] != 1)
        return op_refuse(n, e, "sequences %s and slots %s do not fit as [%lld] and [2, n_seq] (state %s)",
                         tensor_describe(of, a, sizeof a), tensor_describe(where, b, sizeof b), (long long)n_tokens,
                         tensor_describe(s, c, sizeof c));
    return 0;
}
