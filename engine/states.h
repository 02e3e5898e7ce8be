/* states.h: recurrent state: slots, and for each sequence a short history of them.
 *
 * A slot holds what all recurrent layers keep of a sequence at one position: the windows of their convolutions and the matrices
 * of their delta rules. A step reads a sequence's newest slot and writes a free one, so what it started from stays: that is a
 * snapshot, and costs no copy. A history keeps the positions that a sequence can go back to; slots are shared by forks and
 * freed when no history names them. Position 0 needs no slot: a sequence begins with zeros, and anything can go back to it. */
#ifndef ENGINE_STATES_H
#define ENGINE_STATES_H

#include "engine/places.h"

enum { STATES_MAX_SNAPSHOTS = 64 };

struct snapshot {
    int32_t position, slot; /* after so many tokens */
};

struct states {
    int32_t n_seq, n_slots, n_snapshots; /* n_slots 0: the model has no recurrent layer, and everything here does nothing */
    struct snapshot *history;            /* [n_seq][n_snapshots + 1], oldest first; the last is where the sequence stands */
    int32_t *n_history;                  /* [n_seq]; 0: at position 0 */
    int32_t *users;                      /* [n_slots]: histories that name it, and the step that writes it */
    int32_t *slots;                      /* [n_seq][2]: what the step at hand reads and writes; -1: none */
    struct tensor *tensors;              /* 2 a layer */
    struct tensor **conv, **delta;       /* by layer; NULL where it has none */
    void *memory;                        /* of the host's layers */
    size_t bytes, slot_bytes;            /* of all layers, wherever they lie */
    size_t host_bytes;
    struct buffer devices[MAX_PLACES];   /* of each device's layers */
};

/* Bytes of one slot: what all recurrent layers of the model keep of one sequence. */
size_t states_slot_bytes(const struct model *m);
/* Bytes for n_seq sequences with so many snapshots beside where they stand. */
size_t states_bytes(const struct model *m, int32_t n_seq, int32_t n_snapshots);
/* The same by place. */
void states_bytes_at(const struct model *m, int32_t n_seq, int32_t n_snapshots, const struct places *places, size_t bytes[MAX_PLACES]);
/* HONE_ERESOURCE names need and what is available. places, which outlives it, says where each layer's lie; NULL: at the host. */
int states_create(struct states *st, const struct model *m, int32_t n_seq, int32_t n_snapshots, const struct places *places,
                  struct hone_error *e);
void states_free(struct states *st);

/* An eval, of one chunk or several, is one move of each sequence that has tokens in it: states_begin gives it a slot to write;
 * all chunks but the first read and write that; states_commit puts it at the end of its history, for which the least useful
 * snapshot goes where there are too many; states_abort gives it back, and the sequence stands where it did. */
void states_begin(struct states *st, int32_t seq);
/* Between chunks: what was written is what the next one reads. */
void states_next(struct states *st, int32_t seq);
void states_commit(struct states *st, int32_t seq, int32_t position);
void states_abort(struct states *st, int32_t seq);

/* Whether seq can go back to a position, and what it can go back to as text ("0, 10 or 24"); writes at most size bytes. */
bool states_can_rewind(const struct states *st, int32_t seq, int32_t position);
char *states_positions(const struct states *st, int32_t seq, char *text, size_t size);
/* Only where states_can_rewind says so. */
void states_rewind(struct states *st, int32_t seq, int32_t position);
/* Makes `to` share the whole history of `from`. */
void states_fork(struct states *st, int32_t from, int32_t to);
/* Puts seq, which stands at 0, to a position with a state in `slot` (-1: a free one, to be filled by the caller); returns the
 * slot. */
int32_t states_adopt(struct states *st, int32_t seq, int32_t position, int32_t slot);

#endif
