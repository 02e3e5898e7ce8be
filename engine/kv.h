/* kv.h: the KV cache: cells, and a map from the positions of each sequence to them.
 *
 * A layer's keys are one tensor [head_dim, n_cells, n_kv_head], its values another. Position p of sequence s lives in cell
 * map[s][p]; several sequences may share a cell (fork), and a cell is free when none does. Positions are only ever appended or cut off at
 * the end, so a shared cell is never written over and needs no copy.
 *
 * Cells lie where their layer's attention runs. The map is the host's; each device has a twin, to which only changes go. The
 * next cells of a sequence are foreseen, and their entries sent before they are taken: not each token of a text costs a copy. */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H

#include "engine/places.h"

struct kv {
    int32_t n_ctx, n_seq, n_cells;
    enum format_id format_k, format_v;
    int32_t *map;      /* [n_seq][n_ctx]; entries behind a sequence's length are meaningless but valid cells */
    int32_t *length;   /* [n_seq] */
    int32_t *users;    /* [n_cells]: sequences that share it */
    int32_t *free_list;
    int32_t n_free;
    struct tensor *tensors;  /* 2 a layer */
    struct tensor **k, **v;  /* by layer; NULL where it has none */
    void *memory;            /* of the host's layers */
    size_t bytes;            /* of all layers, wherever they lie */
    size_t host_bytes;
    const struct places *places;       /* the session's */
    struct buffer cells[MAX_PLACES];   /* of each device's layers, */
    struct buffer maps[MAX_PLACES];    /* and its map */
    struct tensor map_twins[MAX_PLACES]; /* a list through ->twin */
    int n_twins;
    int32_t *changed;        /* [n_seq][2]: positions whose entries the twins lack, from and behind */
    int32_t *ahead;          /* [n_seq]: positions up to this one, behind the length too, have in the twins what they have in the map; 0: unknown */
    struct kv *also;         /* another rank's, whose twins are of this map too, and so on; NULL: none */
};

/* The formats that keys and values may have, in any pair: "f32, f16, ...". */
const char *kv_format_names(void);
/* One of them by name. HONE_EUSAGE: there is none of that name, or it is none for a cache; flag ("-ctk") is for the message. */
int kv_format(const char *name, const char *flag, enum format_id *out, struct hone_error *e);
/* Bytes that n_cells cells of all layers take. */
size_t kv_bytes(const struct model *m, enum format_id k, enum format_id v, int64_t n_cells);
/* Allocates for n_seq sequences of n_ctx positions; so many bytes of the host are promised to others. HONE_ERESOURCE names need, what is
 * available and the n_ctx that would fit. places outlives it; NULL: everything at the host. */
int kv_create(struct kv *kv, const struct model *m, int32_t n_ctx, int32_t n_seq, enum format_id k, enum format_id v, size_t promised,
              const struct places *places, struct hone_error *e);
/* Bytes at each place. */
void kv_bytes_at(const struct model *m, enum format_id k, enum format_id v, int64_t n_cells, const struct places *places,
                 size_t bytes[MAX_PLACES]);
/* Gives the twins of the map, those of `also` with them, what has changed, in order of each place's stream. Before each run. */
int kv_upload(struct kv *kv, struct hone_error *e);
/* The whole map was written without those who count its changes. */
void kv_changed(struct kv *kv);
void kv_free(struct kv *kv);
/* Appends one position to seq and returns its cell. There is room: length[seq] < n_ctx. */
int32_t kv_append(struct kv *kv, int32_t seq);
/* The same with a cell that another sequence has already. */
int32_t kv_append_shared(struct kv *kv, int32_t seq, int32_t cell);
/* Cuts seq to length positions (at most its own). */
void kv_truncate(struct kv *kv, int32_t seq, int32_t length);
/* Makes `to` share all cells of `from`. */
void kv_fork(struct kv *kv, int32_t from, int32_t to);

#endif
