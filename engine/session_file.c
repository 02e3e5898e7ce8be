/* session_file.c: see session_file.h for the format.
 *
 * A file says how long it is three times: by its size, in its header, and by what its numbers add up to; all must agree before
 * a byte of the rest is believed, so no loop or copy below goes by a number that the file's own bytes do not back. Then the
 * hash: a flipped bit is an error and not a slightly different conversation. Only then are the sequences cut to nothing and
 * filled; from there on nothing can fail.
 *
 * Saving a session as tokens to be evaluated again was the alternative: small and the same for every build, but restoring costs
 * the whole prefill, which is what one wants to save. */
#include "engine/session_file.h"

#include "base/hash.h"
#include "base/mmap.h"
#include "base/whole.h"
#include "engine/image.h"
#include "model/gguf.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'H', 'O', 'N', 'E', 'S', 'E', 'S', 'S'};
enum { VERSION = 2, FORMAT_SIZE = 16, MEMORY_INTS = 8, MAX_SEQUENCES = 64, SAMPLE = 4096 };

struct header {
    char magic[8];
    uint32_t version, note;
    uint64_t size, sum, model;
    uint32_t n_layer, n_seq, n_cells, n_slots;
    char k[FORMAT_SIZE], v[FORMAT_SIZE];
};
_Static_assert(sizeof(struct header) == 88 && offsetof(struct header, sum) == SESSION_FILE_SUM &&
                   offsetof(struct header, model) == SESSION_FILE_SUMMED,
               "header of a session file");

static void memory_ints(const struct layer_memory *y, int32_t out[MEMORY_INTS])
{
    const int32_t all[MEMORY_INTS] = {y->n_kv_head,     y->head_dim_k,   y->head_dim_v,  y->conv_rows,
                                      y->conv_channels, y->n_state_head, y->state_dim_k, y->state_dim_v};
    memcpy(out, all, sizeof all);
}

/* A file that was cut off and filled with zeros, or mended in place, differs at an end or in the middle of some tensor. */
static uint64_t sampled(const uint8_t *p, size_t n)
{
    if (n <= 3 * (size_t)SAMPLE)
        return hash64(p, n);
    uint64_t h[3] = {hash64(p, SAMPLE), hash64(p + n / 2, SAMPLE), hash64(p + n - SAMPLE, SAMPLE)};
    return hash64(h, sizeof h);
}

/* All metadata but what is about text alone, or about the file. */
static uint64_t metadata_id(const struct gguf *g)
{
    uint64_t id = 0;
    for (int64_t i = 0; g && i < g->n_values; i++) {
        const struct gguf_value *v = &g->values[i];
        bool aside = (v->key.size > 8 && !memcmp(v->key.data, "general.", 8)) || (v->key.size > 10 && !memcmp(v->key.data, "tokenizer.", 10));
        if (aside || v->strings)
            continue;
        uint64_t facts[3] = {id, hash64(v->key.data, (size_t)v->key.size),
                             hash64(v->data, (size_t)v->n * gguf_type_bytes(v->type == GGUF_ARRAY ? v->element : v->type))};
        id = hash64(facts, sizeof facts);
    }
    return id;
}

uint64_t session_model_id(const struct model *m)
{
    uint64_t id = hash64(m->arch->name, strlen(m->arch->name)) ^ metadata_id(m->gguf);
    for (int i = 0; i < m->n_weights; i++) {
        const struct tensor *w = m->weights[i];
        size_t bytes = format_row_bytes(format_get(w->format), w->ne[0]) * (size_t)(w->ne[1] * w->ne[2] * w->ne[3]);
        uint64_t facts[8] = {id, (uint64_t)w->format, hash64(w->name, strlen(w->name)), sampled(w->rows, bytes)};
        for (int d = 0; d < MAX_DIMS; d++)
            facts[4 + d] = (uint64_t)w->ne[d];
        id = hash64(facts, sizeof facts);
    }
    return id;
}

/* The model with the way in which keys of a session for so many positions are turned. */
static uint64_t turned_id(const struct session_parts *p, bool far)
{
    uint64_t id = session_model_id(p->model);
    return far ? hash64(&id, sizeof id) : id;
}

static bool turns_far(const struct session_parts *p)
{
    return p->model->n_ctx_short && p->kv->n_ctx > p->model->n_ctx_short;
}

static struct tensor *keys_or_values(const struct session_parts *p, int layer, int which)
{
    return which ? p->kv->v[layer] : p->kv->k[layer];
}

static struct tensor *state_of(const struct session_parts *p, int layer, int which)
{
    if (!p->states->n_slots)
        return NULL;
    return which ? p->states->delta[layer] : p->states->conv[layer];
}

/* Bytes of one slot of a state tensor: the window [channels, rows], or the matrices [d_v, d_k, heads]. */
static size_t slot_bytes(const struct tensor *t, int which)
{
    return t->nb[which ? 3 : 2];
}

/* ---- saving */

/* Numbers of cells and slots in the file, by the session's own; -1: not in use. */
struct numbering {
    int32_t *cells, *cell_of; /* [n_cells]: number in the file; and back */
    int32_t *slots, *slot_of;
    int32_t n_cells, n_slots;
};

static int32_t *filled(int32_t n, int32_t value)
{
    int32_t *a = malloc(((size_t)n + 1) * sizeof *a);
    for (int32_t i = 0; a && i < n; i++)
        a[i] = value;
    return a;
}

static int32_t newest_slot(const struct states *st, int32_t seq)
{
    return st->n_slots && st->n_history[seq] ? st->history[(int64_t)seq * (st->n_snapshots + 1) + st->n_history[seq] - 1].slot
                                             : -1;
}

static int numbering_make(struct numbering *n, const struct session_parts *p, struct hone_error *e)
{
    const struct kv *kv = p->kv;
    n->cells = filled(kv->n_cells, -1);
    n->cell_of = filled(kv->n_cells, -1);
    n->slots = filled(p->states->n_slots, -1);
    n->slot_of = filled(p->states->n_slots, -1);
    if (!n->cells || !n->cell_of || !n->slots || !n->slot_of)
        return err_set(e, HONE_ERESOURCE, "no memory to save a session");
    for (int32_t q = 0; q < kv->n_seq; q++) {
        for (int32_t i = 0; i < kv->length[q]; i++) {
            int32_t cell = kv->map[(int64_t)q * kv->n_ctx + i];
            if (n->cells[cell] < 0) {
                n->cell_of[n->n_cells] = cell;
                n->cells[cell] = n->n_cells++;
            }
        }
        int32_t slot = newest_slot(p->states, q);
        if (slot >= 0 && n->slots[slot] < 0) {
            n->slot_of[n->n_slots] = slot;
            n->slots[slot] = n->n_slots++;
        }
    }
    return 0;
}

static void numbering_free(struct numbering *n)
{
    free(n->cells);
    free(n->cell_of);
    free(n->slots);
    free(n->slot_of);
}

struct output {
    FILE *file;
    const char *path;
    uint64_t written;
    struct hone_error *e;
    int rc;
};

static void put(struct output *o, const void *data, size_t n)
{
    if (!o->rc && n && fwrite(data, 1, n, o->file) != n)
        o->rc = err_set(o->e, HONE_ERESOURCE, "%s: cannot write: %s", o->path, strerror(errno));
    o->written += n;
}

static void put_body(struct output *o, const struct session_parts *p, const struct numbering *n)
{
    const struct kv *kv = p->kv;
    for (int i = 0; i < p->model->n_layer; i++) {
        int32_t ints[MEMORY_INTS];
        memory_ints(&p->model->memory[i], ints);
        put(o, ints, sizeof ints);
    }
    for (int32_t q = 0; q < kv->n_seq; q++) {
        int32_t slot = newest_slot(p->states, q), pair[2] = {kv->length[q], slot < 0 ? -1 : n->slots[slot]};
        put(o, pair, sizeof pair);
    }
    for (int32_t q = 0; q < kv->n_seq; q++)
        for (int32_t i = 0; i < kv->length[q]; i++)
            put(o, &n->cells[kv->map[(int64_t)q * kv->n_ctx + i]], sizeof(int32_t));
    for (int i = 0; i < p->model->n_layer; i++)
        for (int which = 0; which < 2; which++) {
            const struct tensor *t = keys_or_values(p, i, which);
            struct tensor image;
            if (!t || o->rc || (o->rc = image_open(&image, t, o->e)))
                continue;
            for (int64_t head = 0; head < t->ne[2]; head++)
                for (int32_t c = 0; c < n->n_cells; c++)
                    put(o, tensor_row(&image, n->cell_of[c], head, 0), t->nb[1]);
            image_close(&image, t, false, o->e);
        }
    for (int i = 0; i < p->model->n_layer; i++)
        for (int which = 0; which < 2; which++) {
            const struct tensor *t = state_of(p, i, which);
            struct tensor image;
            if (!t || o->rc || (o->rc = image_open(&image, t, o->e)))
                continue;
            for (int32_t s = 0; s < n->n_slots; s++)
                put(o, (const char *)image.data + (size_t)n->slot_of[s] * slot_bytes(t, which), slot_bytes(t, which));
            image_close(&image, t, false, o->e);
        }
}

/* The size and the hash, once all is written. */
static int seal(struct output *o, struct header *h)
{
    struct mapping m = {0};
    h->size = o->written;
    if (!o->rc && (fseeko(o->file, 0, SEEK_SET) || fwrite(h, 1, sizeof *h, o->file) != sizeof *h || fflush(o->file)))
        o->rc = err_set(o->e, HONE_ERESOURCE, "%s: cannot write: %s", o->path, strerror(errno));
    if (!o->rc)
        o->rc = mapping_open(&m, o->path, o->e);
    if (o->rc)
        return o->rc;
    h->sum = hash64(m.data + SESSION_FILE_SUMMED, m.size - SESSION_FILE_SUMMED);
    mapping_close(&m);
    if (fseeko(o->file, 0, SEEK_SET) || fwrite(h, 1, sizeof *h, o->file) != sizeof *h)
        o->rc = err_set(o->e, HONE_ERESOURCE, "%s: cannot write: %s", o->path, strerror(errno));
    return o->rc;
}

int session_file_save(const struct session_parts *p, const char *path, const char *note, struct hone_error *e)
{
    struct numbering n = {0};
    size_t note_size = note ? strlen(note) : 0;
    struct whole w = {0};
    struct output o = {.e = e};
    struct header h = {.version = VERSION, .n_layer = (uint32_t)p->model->n_layer, .n_seq = (uint32_t)p->kv->n_seq};
    int rc = note_size <= SESSION_FILE_NOTE_LIMIT ? numbering_make(&n, p, e)
                                                  : err_set(e, HONE_EUSAGE, "a note of %zu bytes to a session", note_size);
    if (!rc)
        rc = whole_begin(&w, path, e);
    if (rc)
        goto done;
    h.note = (uint32_t)note_size;
    memcpy(h.magic, magic, sizeof magic);
    h.model = turned_id(p, turns_far(p));
    h.n_cells = (uint32_t)n.n_cells;
    h.n_slots = (uint32_t)n.n_slots;
    snprintf(h.k, sizeof h.k, "%s", format_get(p->kv->format_k)->name);
    snprintf(h.v, sizeof h.v, "%s", format_get(p->kv->format_v)->name);
    o.path = w.partial;
    o.file = w.file;
    put(&o, &h, sizeof h);
    put_body(&o, p, &n);
    put(&o, note, note_size);
    rc = seal(&o, &h);
    if (whole_end(&w, rc == 0, e) && !rc)
        rc = HONE_ERESOURCE;
done:
    numbering_free(&n);
    return rc;
}

/* ---- restoring */

struct reading {
    const struct session_parts *p;
    const uint8_t *data;
    size_t size;
    const char *label;
    struct hone_error *e;
    struct header h;
    size_t sequences, maps, keys, slots, note; /* offsets of the sections */
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reading *r, const char *format, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(r->e, HONE_EINPUT, "%.150s: %s", r->label, text);
}

static int32_t int_at(const struct reading *r, size_t offset, size_t i)
{
    int32_t x;
    memcpy(&x, r->data + offset + i * sizeof x, sizeof x);
    return x;
}

static int32_t length_of(const struct reading *r, size_t seq)
{
    return int_at(r, r->sequences, 2 * seq);
}

/* Letters, digits and _, then NULs alone: fit for a message. */
static bool name_ends(const char name[FORMAT_SIZE])
{
    size_t n = 0;
    while (n < FORMAT_SIZE && (isalnum((unsigned char)name[n]) || name[n] == '_'))
        n++;
    size_t end = n;
    while (n < FORMAT_SIZE && !name[n])
        n++;
    return n == FORMAT_SIZE && end < FORMAT_SIZE;
}

static int check_header(struct reading *r)
{
    struct header *h = &r->h;
    if (r->size < sizeof *h)
        return refuse(r, "%zu bytes are no session file", r->size);
    memcpy(h, r->data, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic))
        return refuse(r, "not a session file");
    if (h->version < 1 || h->version > VERSION || (h->version == 1 && h->note))
        return refuse(r, "a session file of version %u; this hone reads 1 and %d", h->version, VERSION);
    if (h->size != r->size)
        return refuse(r, "the file has %zu bytes and says %llu (offset 16): cut off or appended to", r->size,
                      (unsigned long long)h->size);
    bool far = turns_far(r->p);
    int32_t n_short = r->p->model->n_ctx_short;
    if (n_short && h->model == turned_id(r->p, !far))
        return refuse(r, "its keys are turned for contexts %s %d positions, this session's are for %d (-c)",
                      far ? "up to" : "beyond", n_short, r->p->kv->n_ctx);
    if (h->model != turned_id(r->p, far) || h->n_layer != (uint32_t)r->p->model->n_layer)
        return refuse(r, "of another model");
    if (h->n_seq < 1 || h->n_seq > MAX_SEQUENCES)
        return refuse(r, "%u sequences (offset 44)", h->n_seq);
    if (!name_ends(h->k) || !name_ends(h->v))
        return refuse(r, "formats that are no names (offset 56)");
    const char *k = format_get(r->p->kv->format_k)->name, *v = format_get(r->p->kv->format_v)->name;
    if (strcmp(h->k, k) || strcmp(h->v, v))
        return refuse(r, "its KV cache is %s and %s, this session's %s and %s (-ctk, -ctv)", h->k, h->v, k, v);
    return 0;
}

/* The sections' offsets from the header's numbers and the lengths, which must fill the file exactly. Sums cannot overflow: each
 * term is below 2^31 times the bytes of a row or slot, which fits memory, and is compared with the file's size at once. */
static int check_layout(struct reading *r)
{
    const struct session_parts *p = r->p;
    size_t at = sizeof(struct header);
    if (r->size - at < (size_t)r->h.n_layer * MEMORY_INTS * 4 + (size_t)r->h.n_seq * 8)
        return refuse(r, "too short for %u layers and %u sequences", r->h.n_layer, r->h.n_seq);
    for (uint32_t i = 0; i < r->h.n_layer; i++) {
        int32_t ints[MEMORY_INTS];
        memory_ints(&p->model->memory[i], ints);
        if (memcmp(ints, r->data + at, sizeof ints))
            return refuse(r, "layer %u (offset %zu) keeps something else than the model's", i, at);
        at += sizeof ints;
    }
    r->sequences = at;
    r->maps = at += (size_t)r->h.n_seq * 8;
    for (size_t q = 0; q < r->h.n_seq; q++) {
        int32_t n = length_of(r, q);
        if (n < 0 || (size_t)n > (r->size - at) / 4)
            return refuse(r, "sequence %zu has %d positions (offset %zu)", q, n, r->sequences + q * 8);
        at += (size_t)n * 4;
    }
    r->keys = at;
    if (r->h.n_cells > (at - r->maps) / 4)
        return refuse(r, "%u cells for %zu positions", r->h.n_cells, (at - r->maps) / 4);
    uint32_t limits[2] = {r->h.n_cells, r->h.n_slots};
    for (int part = 0; part < 2; part++) {
        size_t each = part ? p->states->slot_bytes : kv_bytes(p->model, p->kv->format_k, p->kv->format_v, 1);
        if (each && limits[part] > (r->size - at) / each)
            return refuse(r, "too short for %u %s of %zu bytes", limits[part], part ? "slots" : "cells", each);
        if (!part)
            r->slots = at + each * limits[0];
        at += each * limits[part];
    }
    r->note = at;
    if (r->size - at != r->h.note || r->h.note > SESSION_FILE_NOTE_LIMIT)
        return refuse(r, "%zu bytes behind its states, and a note of %u", r->size - at, r->h.note);
    return r->h.note && memchr(r->data + at, 0, r->h.note) ? refuse(r, "a note with a NUL (offset %zu)", at) : 0;
}

/* Cells and slots that are named exist, each is named, and what a sequence has fits this session. */
static int check_sequences(const struct reading *r)
{
    const struct kv *kv = r->p->kv;
    const bool recurrent = r->p->states->n_slots > 0;
    size_t n_named = 0, slots_named = 0, at = 0;
    int32_t *seen = filled((int32_t)r->h.n_cells, -1); /* fits: the file has a number for each */
    bool slot_seen[MAX_SEQUENCES] = {false};
    int rc = seen ? 0 : err_set(r->e, HONE_ERESOURCE, "no memory for %u cells", r->h.n_cells);
    if (!rc && r->h.n_slots > MAX_SEQUENCES)
        rc = refuse(r, "%u slots", r->h.n_slots);
    for (size_t q = 0; q < r->h.n_seq && !rc; q++) {
        int32_t n = length_of(r, q), slot = int_at(r, r->sequences, 2 * q + 1);
        if (n && (int32_t)q >= kv->n_seq)
            rc = refuse(r, "holds sequence %zu; this session has %d", q, kv->n_seq);
        else if (n > kv->n_ctx)
            rc = refuse(r, "sequence %zu has %d positions, more than this session's context of %d (-c)", q, n, kv->n_ctx);
        else if (recurrent && n ? slot < 0 || (uint32_t)slot >= r->h.n_slots : slot != -1)
            rc = refuse(r, "sequence %zu has slot %d of %u (offset %zu)", q, slot, r->h.n_slots, r->sequences + q * 8 + 4);
        for (int32_t i = 0; i < n && !rc; i++, at++) {
            int32_t cell = int_at(r, r->maps, at);
            if (cell < 0 || (uint32_t)cell >= r->h.n_cells || seen[cell] == (int32_t)q)
                rc = refuse(r, "position %d of sequence %zu has cell %d of %u (offset %zu)", i, q, cell, r->h.n_cells,
                            r->maps + at * 4);
            else if (seen[cell] < 0)
                n_named++;
            if (!rc)
                seen[cell] = (int32_t)q;
        }
        if (!rc && slot >= 0) {
            slots_named += !slot_seen[slot];
            slot_seen[slot] = true;
        }
    }
    if (!rc && (n_named != r->h.n_cells || slots_named != r->h.n_slots))
        rc = refuse(r, "cells or slots that no sequence has");
    free(seen);
    return rc;
}

static int fill_kv(const struct reading *r, const int32_t *cells)
{
    const uint8_t *from = r->data + r->keys;
    int rc = 0;
    for (uint32_t i = 0; i < r->h.n_layer; i++)
        for (int which = 0; which < 2; which++) {
            const struct tensor *t = keys_or_values(r->p, (int)i, which);
            struct tensor image;
            if (!t || rc || (rc = image_open(&image, t, r->e)))
                continue;
            for (int64_t head = 0; head < t->ne[2]; head++)
                for (uint32_t c = 0; c < r->h.n_cells; c++, from += t->nb[1])
                    memcpy(tensor_row(&image, cells[c], head, 0), from, t->nb[1]);
            rc = image_close(&image, t, true, r->e);
        }
    return rc;
}

static int fill_states(const struct reading *r, const int32_t *slots)
{
    const uint8_t *from = r->data + r->slots;
    int rc = 0;
    for (uint32_t i = 0; i < r->h.n_layer; i++)
        for (int which = 0; which < 2; which++) {
            const struct tensor *t = state_of(r->p, (int)i, which);
            struct tensor image;
            if (!t || rc || (rc = image_open(&image, t, r->e)))
                continue;
            for (uint32_t s = 0; s < r->h.n_slots; s++, from += slot_bytes(t, which))
                memcpy((char *)image.data + (size_t)slots[s] * slot_bytes(t, which), from, slot_bytes(t, which));
            rc = image_close(&image, t, true, r->e);
        }
    return rc;
}

/* Replaces what the session holds. cells: room for the session's number of each of the file's. A device that fails meanwhile
 * leaves all sequences empty. */
static int replace(const struct reading *r, int32_t *cells)
{
    struct kv *kv = r->p->kv;
    int32_t slots[MAX_SEQUENCES];
    size_t at = 0;
    for (int32_t q = 0; q < kv->n_seq; q++) {
        kv_truncate(kv, q, 0);
        states_rewind(r->p->states, q, 0);
    }
    for (uint32_t c = 0; c < r->h.n_cells; c++)
        cells[c] = -1;
    for (uint32_t s = 0; s < r->h.n_slots; s++)
        slots[s] = -1;
    for (int32_t q = 0; q < kv->n_seq && q < (int32_t)r->h.n_seq; q++) {
        int32_t n = length_of(r, (size_t)q), slot = int_at(r, r->sequences, 2 * (size_t)q + 1);
        for (int32_t i = 0; i < n; i++, at++) {
            int32_t *cell = &cells[int_at(r, r->maps, at)];
            *cell = *cell < 0 ? kv_append(kv, q) : kv_append_shared(kv, q, *cell);
        }
        if (slot >= 0)
            slots[slot] = states_adopt(r->p->states, q, n, slots[slot]);
    }
    int rc = fill_kv(r, cells);
    if (!rc)
        rc = fill_states(r, slots);
    for (int32_t q = 0; q < kv->n_seq && rc; q++) {
        kv_truncate(kv, q, 0);
        states_rewind(r->p->states, q, 0);
    }
    return rc;
}

int session_file_restore(const struct session_parts *p, const void *data, size_t size, const char *label, char **note,
                         struct hone_error *e)
{
    struct reading r = {.p = p, .data = data, .size = size, .label = label, .e = e};
    int rc = check_header(&r);
    if (!rc)
        rc = check_layout(&r);
    if (!rc && r.h.sum != hash64(r.data + SESSION_FILE_SUMMED, r.size - SESSION_FILE_SUMMED))
        rc = refuse(&r, "its bytes are not what was saved (XXH3 at offset %d)", SESSION_FILE_SUM);
    if (!rc)
        rc = check_sequences(&r);
    int32_t *cells = rc ? NULL : filled((int32_t)r.h.n_cells, -1);
    if (!rc && !cells)
        rc = err_set(e, HONE_ERESOURCE, "no memory for %u cells", r.h.n_cells);
    char *own_note = !rc && note ? strndup(r.h.note ? (const char *)r.data + r.note : "", r.h.note) : NULL;
    if (!rc && note && !own_note)
        rc = err_set(e, HONE_ERESOURCE, "no memory for a note of %u bytes", r.h.note);
    if (!rc)
        rc = replace(&r, cells);
    if (!rc && note)
        *note = own_note;
    else
        free(own_note);
    free(cells);
    return rc;
}
