/* recurrent.h: what the ops with a recurrent state share: which tokens are of which sequence, and where its state lies.
 *
 * A state tensor holds slots [..., n_slots]. slots is i32 [2, n_seq]: sequence s reads slot slots[0, s] and leaves its new
 * state in slot slots[1, s]. A negative slot to read, or one beyond the last, is a state of zeros: that of a sequence which
 * begins; one to write is then not written. Both may be one slot. Distinct sequences write distinct slots, the engine sees to
 * it; should they not, they do so in the order of their numbers. Tokens of several sequences may be mixed; those of one are in
 * their order. A sequence without tokens in the step writes nothing, and a token whose sequence has no column in slots gives
 * zeros. */
#ifndef OPS_RECURRENT_H
#define OPS_RECURRENT_H

#include "ops/ops.h"

/* Sources `sequences` and `slots` of n fit as [n_tokens] and [2, n_seq], and slots of the state are its last dimension
 * (`n_dims` in all). 0 or a refusal. */
int recurrent_shape(const struct node *n, int state, int n_dims, int sequences, int slots, int64_t n_tokens,
                    struct hone_error *e);

/* The tokens of a sequence, in order, into list (room for all tokens of the step); how many. */
static inline int64_t recurrent_tokens(const struct tensor *sequences, int64_t seq, int32_t *list)
{
    int64_t n = 0;
    for (int64_t t = 0; t < sequences->ne[0]; t++)
        if (tensor_read_index(sequences, t, 0) == seq)
            list[n++] = (int32_t)t;
    return n;
}

/* The tokens of no sequence of slots. */
static inline int64_t recurrent_strays(const struct tensor *sequences, const struct tensor *slots, int32_t *list)
{
    int64_t n = 0;
    for (int64_t t = 0; t < sequences->ne[0]; t++) {
        int64_t seq = tensor_read_index(sequences, t, 0);
        if (seq < 0 || seq >= slots->ne[1])
            list[n++] = (int32_t)t;
    }
    return n;
}

/* Slot that a sequence reads (writes false) or writes; -1: none. */
static inline int64_t recurrent_slot(const struct tensor *slots, int64_t seq, bool writes, int64_t n_slots)
{
    int64_t slot = tensor_read_index(slots, writes, seq);
    return slot >= 0 && slot < n_slots ? slot : -1;
}

#endif
