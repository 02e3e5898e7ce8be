/* gguf.h: reading and writing GGUF files (format document: ggml's docs/gguf.md, versions 2 and 3).
 *
 * The reader maps the file and checks every count, length, type and range against the bytes that are there before it
 * believes them (rule 9); errors name file and offset. It knows no architecture. Files split in parts
 * (name-00001-of-00003.gguf, keys split.*) open as one, from any part's path.
 *
 * What a caller may rely on: keys and tensor names are unique, not empty, valid UTF-8 without control characters; string
 * values hold any bytes; bools are 0 or 1; data of known tensors lies in the file, aligned to at least 8 and apart from the
 * others' data. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include "base/arena.h"
#include "base/err.h"
#include "base/mmap.h"
#include "formats/formats.h"

#include <stdbool.h>
#include <stdint.h>

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64, GGUF_N_TYPES,
};

struct gguf_string {
    const char *data; /* in the mapping: not NUL-terminated, any bytes */
    uint64_t size;
};

struct gguf_value {
    struct gguf_string key;
    enum gguf_type type;      /* of the value; GGUF_ARRAY: of `element` items */
    enum gguf_type element;   /* arrays only; never GGUF_ARRAY itself (refused: no known file nests) */
    uint64_t n;               /* items of an array; 1 for a scalar */
    const void *data;         /* scalars and arrays of them: little-endian, unaligned, in the mapping */
    struct gguf_string *strings; /* n strings, for GGUF_STRING and arrays of it; else NULL */
    uint64_t offset;          /* of the key in its file, for messages */
};

struct gguf_tensor {
    struct gguf_string name;
    char *cname;              /* the name with a NUL; names with a NUL inside are refused */
    int gguf_type;            /* as in the file */
    bool known;               /* hone reads this type; else format, bytes and data are meaningless */
    enum format_id format;
    int n_dims;
    int64_t ne[4];            /* all > 0, 1 from n_dims on; their product fits an int64_t */
    size_t bytes;
    const void *data;         /* in the mapping of its part */
    int part;
    uint64_t offset;          /* of the data in that part */
};

struct gguf {
    struct arena arena;
    char *path;
    uint32_t version;
    uint32_t alignment;
    int n_parts;
    struct mapping *parts;
    char **part_paths;
    int64_t n_values;
    struct gguf_value *values;   /* of the first part, in file order */
    int64_t n_tensors;
    struct gguf_tensor *tensors; /* of all parts, in file order */
    /* Private: open-addressing indices into values and tensors, by hash of the name; this part's own mapping (not unmapped by
     * close where the memory is the caller's); the other parts, each a struct gguf of its own. */
    struct gguf_index *value_index, *tensor_index;
    struct mapping map;
    bool borrowed;
    struct gguf **others;
};

int gguf_open(struct gguf **out, const char *path, struct hone_error *e);
/* The same from memory that stays valid; one part only. For fuzzing and tests. */
int gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *label, struct hone_error *e);
void gguf_close(struct gguf *g); /* g may be NULL */

/* NULL when absent. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* A scalar key as the wanted type. Absent: *out keeps its value and 0 is returned, unless required. Any integer
 * type is taken for an integer if the value fits, any finite number for an f32; else HONE_EINPUT names key and file. */
int gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out, struct hone_error *e);
int gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out, struct hone_error *e);
int gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out, struct hone_error *e);
/* *out points into the file. */
int gguf_get_string(const struct gguf *g, const char *key, bool required, struct gguf_string *out, struct hone_error *e);
/* Item i (< n) of a scalar or array value as an integer / a double. The value must be numeric or bool. What an int64_t cannot
 * hold comes as its nearest end, NaN as 0. */
int64_t gguf_integer(const struct gguf_value *v, uint64_t i);
double gguf_number(const struct gguf_value *v, uint64_t i);
bool gguf_is_integer(enum gguf_type t); /* bool counts as one */
size_t gguf_type_bytes(enum gguf_type t);   /* of one item; 0 for strings, arrays and what is no type */
const char *gguf_type_name(enum gguf_type t);

/* Writing. Values and tensors are declared first, then the data of each tensor is appended in the order of declaration; the
 * file appears under its name only at the end (it is written beside it as <path>.<pid>.partial), so a failure leaves nothing
 * behind. A general.alignment that is written is also obeyed; 32 else. Errors stick: the first one is what write_data and close
 * report. */
struct gguf_writer;
int gguf_writer_create(struct gguf_writer **out, const char *path, struct hone_error *e);
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_write_f32(struct gguf_writer *w, const char *key, float v);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_string(struct gguf_writer *w, const char *key, const char *v);
void gguf_write_strings(struct gguf_writer *w, const char *key, const struct gguf_string *v, uint64_t n);
/* n items of a fixed-size type, native byte order. */
void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *items, uint64_t n);
/* Any value as another file has it; key NULL: under its own key. */
void gguf_write_value(struct gguf_writer *w, const char *key, const struct gguf_value *v);
void gguf_write_tensor(struct gguf_writer *w, const char *name, enum format_id format, int n_dims, const int64_t *ne);
/* Appends size bytes to the current tensor, not beyond its end; the next begins once it is full. */
int gguf_write_data(struct gguf_writer *w, const void *data, size_t size, struct hone_error *e);
/* The same with zeros that take no room on the disk, where the file system has holes. */
int gguf_write_hole(struct gguf_writer *w, size_t size, struct hone_error *e);
/* Finishes and renames (keep), or removes what was written. Frees w. An incomplete file is an error with keep. */
int gguf_writer_close(struct gguf_writer *w, bool keep, struct hone_error *e);

#endif
