/* states.c: slots of recurrent state and histories of them. See states.h.
 *
 * There are n_snapshots + 2 slots a sequence: where it stands, its snapshots, and one that a step writes; so a free one is
 * always found. Which snapshot goes when there is one too many: never the oldest (a prompt that many answers start from), never
 * the newest (the position before the last step), and of the others the one whose neighbours are closest, measured by how far
 * back it lies. So the gaps grow with the distance, and a ring of four reaches over any number of decode steps. A plain ring of
 * the last four lost: after four tokens of an answer nothing was left but the answer's own positions.
 *
 * Memory comes on first touch: what is never used costs nothing. A state updated in place with copies taken now and then would
 * have been smaller, but a cancelled step leaves such a state broken, and a copy at each step moves the state twice. */
#include "engine/states.h"

#include "base/mmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t conv_bytes(const struct layer_memory *y)
{
    return sizeof(float) * (size_t)y->conv_rows * (size_t)y->conv_channels;
}

static size_t delta_bytes(const struct layer_memory *y)
{
    return sizeof(float) * (size_t)y->n_state_head * (size_t)y->state_dim_k * (size_t)y->state_dim_v;
}

size_t states_slot_bytes(const struct model *m)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n_layer; i++)
        bytes += conv_bytes(&m->memory[i]) + delta_bytes(&m->memory[i]);
    return bytes;
}

static int64_t slots_for(int32_t n_seq, int32_t n_snapshots)
{
    return (int64_t)n_seq * (n_snapshots + 2);
}

size_t states_bytes(const struct model *m, int32_t n_seq, int32_t n_snapshots)
{
    size_t n = (size_t)slots_for(n_seq, n_snapshots), bytes = 0;
    for (int i = 0; i < m->n_layer; i++)
        bytes += aligned(n * conv_bytes(&m->memory[i])) + aligned(n * delta_bytes(&m->memory[i]));
    return bytes;
}

void states_bytes_at(const struct model *m, int32_t n_seq, int32_t n_snapshots, const struct places *places, size_t bytes[MAX_PLACES])
{
    size_t n = (size_t)slots_for(n_seq, n_snapshots);
    memset(bytes, 0, MAX_PLACES * sizeof *bytes);
    for (int i = 0; i < m->n_layer; i++)
        bytes[places ? places->states[i] : 0] += aligned(n * conv_bytes(&m->memory[i])) + aligned(n * delta_bytes(&m->memory[i]));
}

static struct tensor *place(struct states *st, struct tensor *t, char **at, struct buffer *buffer, const char *name, int layer, int n_dims,
                            const int64_t *ne)
{
    tensor_shape(t, FORMAT_F32, n_dims, ne);
    t->kind = TENSOR_STATE;
    t->data = *at;
    t->buffer = buffer;
    snprintf(t->name, sizeof t->name, "%s-%d", name, layer);
    *at += aligned(tensor_nbytes(t));
    INVARIANT(*at <= (buffer ? (char *)buffer->data + buffer->bytes : (char *)st->memory + st->host_bytes));
    return t;
}

static int devices_create(struct states *st, const struct places *places, const size_t bytes[MAX_PLACES], struct hone_error *e)
{
    int rc = 0;
    for (int i = 1; places && i < places->placement.n && !rc; i++) {
        const struct place *at = &places->placement.list[i];
        struct buffer *b = &st->devices[i];
        *b = (struct buffer){.backend = at->backend, .device = at->device, .bytes = bytes[i]};
        if (!bytes[i])
            continue;
        rc = at->backend->api->alloc(at->device, bytes[i], &b->data, e);
        if (!rc)
            rc = at->backend->api->fill(at->device, NULL, b->data, 0, bytes[i], e);
        if (!rc)
            rc = at->backend->api->synchronise(at->device, NULL, e);
        if (rc)
            err_prefix(e, "the recurrent state of %.1f MiB", (double)bytes[i] / 0x1p20);
    }
    return rc;
}

int states_create(struct states *st, const struct model *m, int32_t n_seq, int32_t n_snapshots, const struct places *places,
                  struct hone_error *e)
{
    size_t bytes_at[MAX_PLACES];
    *st = (struct states){.n_seq = n_seq, .n_snapshots = n_snapshots, .slot_bytes = states_slot_bytes(m)};
    if (!st->slot_bytes)
        return 0;
    size_t n = (size_t)slots_for(n_seq, n_snapshots), layers = (size_t)m->n_layer, available = pages_available();
    st->bytes = states_bytes(m, n_seq, n_snapshots);
    states_bytes_at(m, n_seq, n_snapshots, places, bytes_at);
    st->host_bytes = bytes_at[0];
    if (available && st->host_bytes > available)
        return err_set(
            e, HONE_ERESOURCE,
            "the recurrent state needs %.1f GiB: %.1f MiB for each of %zu slots (%d sequence(s), %d snapshots each); %.1f GiB "
            "are available",
            (double)st->host_bytes / 0x1p30, (double)st->slot_bytes / 0x1p20, n, n_seq, n_snapshots, (double)available / 0x1p30);
    st->n_slots = (int32_t)n;
    int rc = devices_create(st, places, bytes_at, e);
    if (rc) {
        states_free(st);
        return rc;
    }
    st->memory = pages_alloc(st->host_bytes);
    st->history = calloc((size_t)n_seq * (size_t)(n_snapshots + 1), sizeof *st->history);
    st->n_history = calloc((size_t)n_seq, sizeof *st->n_history);
    st->users = calloc(n, sizeof *st->users);
    st->slots = malloc(2 * (size_t)n_seq * sizeof *st->slots);
    st->tensors = calloc(2 * layers, sizeof *st->tensors);
    st->conv = calloc(layers, sizeof *st->conv);
    st->delta = calloc(layers, sizeof *st->delta);
    if (!st->memory || !st->history || !st->n_history || !st->users || !st->slots || !st->tensors || !st->conv || !st->delta) {
        size_t bytes = st->bytes;
        states_free(st);
        return err_set(e, HONE_ERESOURCE, "no memory for %.1f MiB of recurrent state", (double)bytes / 0x1p20);
    }
    for (int32_t i = 0; i < 2 * n_seq; i++)
        st->slots[i] = -1;
    char *next[MAX_PLACES] = {st->memory};
    for (int i = 1; i < MAX_PLACES; i++)
        next[i] = st->devices[i].data;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer_memory *y = &m->memory[i];
        int at = places ? places->states[i] : 0;
        struct buffer *buffer = at ? &st->devices[at] : NULL;
        if (conv_bytes(y))
            st->conv[i] = place(st, &st->tensors[2 * i], &next[at], buffer, "conv_state", i, 3,
                                (int64_t[]){y->conv_channels, y->conv_rows, st->n_slots});
        if (delta_bytes(y))
            st->delta[i] = place(st, &st->tensors[2 * i + 1], &next[at], buffer, "delta_state", i, 4,
                                 (int64_t[]){y->state_dim_v, y->state_dim_k, y->n_state_head, st->n_slots});
    }
    return 0;
}

void states_free(struct states *st)
{
    for (int i = 1; i < MAX_PLACES; i++)
        if (st->devices[i].data)
            st->devices[i].backend->api->free(st->devices[i].device, st->devices[i].data);
    pages_free(st->memory, st->host_bytes);
    free(st->history);
    free(st->n_history);
    free(st->users);
    free(st->slots);
    free(st->tensors);
    free(st->conv);
    free(st->delta);
    *st = (struct states){0};
}

static struct snapshot *history_of(const struct states *st, int32_t seq)
{
    return st->history + (int64_t)seq * (st->n_snapshots + 1);
}

static void forget(struct states *st, int32_t seq, int32_t i)
{
    struct snapshot *h = history_of(st, seq);
    int32_t n = st->n_history[seq]--;
    st->users[h[i].slot]--;
    memmove(&h[i], &h[i + 1], (size_t)(n - i - 1) * sizeof *h);
}

/* Of a full history the snapshot that is missed least, when one more follows at `position`. */
static int32_t least_useful(const struct states *st, int32_t seq, int32_t position)
{
    const struct snapshot *h = history_of(st, seq);
    int32_t n = st->n_history[seq], best = 0;
    double least = 0;
    for (int32_t i = 1; i + 1 < n; i++) {
        double share = (double)(h[i + 1].position - h[i - 1].position) / (double)(position - h[i].position);
        if (!best || share < least) {
            best = i;
            least = share;
        }
    }
    return best; /* 0 where there are but two */
}

static int32_t free_slot(const struct states *st)
{
    int32_t slot = 0;
    while (slot < st->n_slots && st->users[slot])
        slot++;
    INVARIANT(slot < st->n_slots);
    return slot;
}

void states_begin(struct states *st, int32_t seq)
{
    if (!st->n_slots)
        return;
    int32_t n = st->n_history[seq], slot = free_slot(st);
    st->users[slot] = 1;
    st->slots[2 * seq] = n ? history_of(st, seq)[n - 1].slot : -1;
    st->slots[2 * seq + 1] = slot;
}

void states_next(struct states *st, int32_t seq)
{
    if (st->n_slots)
        st->slots[2 * seq] = st->slots[2 * seq + 1];
}

void states_commit(struct states *st, int32_t seq, int32_t position)
{
    if (!st->n_slots)
        return;
    if (st->n_history[seq] == st->n_snapshots + 1)
        forget(st, seq, least_useful(st, seq, position));
    history_of(st, seq)[st->n_history[seq]++] = (struct snapshot){position, st->slots[2 * seq + 1]};
    st->slots[2 * seq] = st->slots[2 * seq + 1] = -1;
}

void states_abort(struct states *st, int32_t seq)
{
    if (!st->n_slots || st->slots[2 * seq + 1] < 0)
        return;
    st->users[st->slots[2 * seq + 1]] = 0;
    st->slots[2 * seq] = st->slots[2 * seq + 1] = -1;
}

bool states_can_rewind(const struct states *st, int32_t seq, int32_t position)
{
    for (int32_t i = 0; st->n_slots && i < st->n_history[seq]; i++)
        if (history_of(st, seq)[i].position == position)
            return true;
    return !st->n_slots || !position;
}

char *states_positions(const struct states *st, int32_t seq, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "0");
    int32_t n = st->n_slots ? st->n_history[seq] : 0;
    for (int32_t i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i + 1 < n ? ", " : " or ", history_of(st, seq)[i].position);
    return text;
}

void states_rewind(struct states *st, int32_t seq, int32_t position)
{
    while (st->n_slots && st->n_history[seq] && history_of(st, seq)[st->n_history[seq] - 1].position > position)
        forget(st, seq, st->n_history[seq] - 1);
}

void states_fork(struct states *st, int32_t from, int32_t to)
{
    if (!st->n_slots || from == to)
        return;
    states_rewind(st, to, 0);
    const struct snapshot *h = history_of(st, from);
    int32_t n = st->n_history[from];
    for (int32_t i = 0; i < n; i++)
        st->users[h[i].slot]++;
    memcpy(history_of(st, to), h, (size_t)n * sizeof *h);
    st->n_history[to] = n;
}

int32_t states_adopt(struct states *st, int32_t seq, int32_t position, int32_t slot)
{
    INVARIANT(st->n_slots && !st->n_history[seq]);
    slot = slot < 0 ? free_slot(st) : slot;
    st->users[slot]++;
    history_of(st, seq)[st->n_history[seq]++] = (struct snapshot){position, slot};
    return slot;
}
