/* session_file.h: what the sequences of a session hold, as a file.
 *
 * Little-endian; text is padded with NULs:
 *   0    "HONESESS"; u32 version (2); u32 bytes of the note
 *   16   u64 bytes of the file; u64 XXH3 of all bytes behind this one
 *   32   u64 of the model (session_model_id; hashed once more where the keys are turned by factors for long contexts); u32 layers, sequences, cells, slots
 *   56   formats of keys and values, 16 bytes each
 *   88   for each layer eight i32: those of struct layer_memory
 *        for each sequence i32 length, i32 slot (-1: none)
 *        for each sequence an i32 for each of its positions: the cell
 *        for each layer with a KV cache the keys: for each KV head the row of each cell; and so the values
 *        for each layer with a recurrent state, of each slot the window of its convolution, then of each slot its matrices
 *        the note: text of whoever saves, without a NUL; what stands in it is not looked at here
 * Version 1 had no note, and 0 in its place. Cells and slots are numbered anew, those in use alone; sequences that share them
 * do so in the file. Snapshots are not saved: what is restored can go back to 0 and to where it stands. */
#ifndef ENGINE_SESSION_FILE_H
#define ENGINE_SESSION_FILE_H

#include "engine/kv.h"
#include "engine/states.h"

struct session_parts {
    const struct model *model;
    struct kv *kv;
    struct states *states;
};

/* A number that two files of one model have in common and others hardly: of its shapes, and of bytes from every weight. */
uint64_t session_model_id(const struct model *m);
/* Written under another name and renamed when whole; a link is followed, and what is there and is no regular file is refused.
 * note may be NULL. */
int session_file_save(const struct session_parts *p, const char *path, const char *note, struct hone_error *e);
/* label names the bytes in messages. All is checked before anything is replaced: on failure the session is as before. *note,
 * unless note is NULL, is the file's, malloc'd, "" where it has none. */
int session_file_restore(const struct session_parts *p, const void *data, size_t size, const char *label, char **note,
                         struct hone_error *e);

enum { SESSION_FILE_NOTE_LIMIT = 64 << 20 };
enum { SESSION_FILE_SUM = 24, SESSION_FILE_SUMMED = 32 }; /* offsets of the hash, and of the first byte that it covers */

#endif
