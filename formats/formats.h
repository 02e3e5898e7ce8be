/* formats.h: how numbers lie in memory: the weight formats of GGUF files and the packed layouts that kernels want.
 *
 * A format is a block of `block` values in `bytes` bytes; a row of n values is n / block blocks, one behind the other.
 * Adding one: a file formats/<name>.c and a row in formats.def. */
#ifndef FORMATS_FORMATS_H
#define FORMATS_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FORMAT(NAME, name) FORMAT_##NAME,
enum format_id {
#include "formats/formats.def"
    N_FORMATS
};
#undef FORMAT

struct format {
    const char *name; /* as GGUF tools spell it and as kernel names contain it: "Q4_K" is "q4_K" in a kernel's name */
    int gguf_type;    /* the type number in a GGUF file; -1: never in a file */
    int block;        /* values a block */
    int bytes;        /* bytes a block */
    /* n values (a multiple of block) from src, which needs no alignment. NULL for integer formats. */
    void (*unpack)(const void *src, float *dst, int64_t n);
    /* n values (a multiple of block) into dst, deterministic. Non-finite input gives a valid block of unspecified
     * values. NULL where hone cannot write the format. */
    void (*pack)(const float *src, void *dst, int64_t n);
};

/* The format of an id (which must be valid). */
const struct format *format_get(enum format_id id);
/* The format of a GGUF type number, or of a name in any case ("q4_k"): 0, or -1 when there is none. */
int format_by_gguf_type(int64_t gguf_type, enum format_id *id);
int format_by_name(const char *name, enum format_id *id);
/* "q4_K": as the names of kernels and layouts have it; NULL for an id that there is not. */
const char *format_word(int32_t id);
/* Bytes of a row of n values; n must be a multiple of the block. */
static inline size_t format_row_bytes(const struct format *f, int64_t n)
{
    return (size_t)(n / f->block) * (size_t)f->bytes;
}

/* A packed layout of a matrix [k, rows] of one format: another order of the same bits. The plain order of the file
 * is no layout (a NULL pointer). unpack_row reads any one row of a packed matrix, so every reference reads every layout. */
struct layout {
    const char *name; /* "q4_K.soa" */
    enum format_id format;
    /* Why a matrix of this shape cannot be packed so, or NULL when it can. */
    const char *(*refuses)(int64_t k, int64_t rows);
    size_t (*bytes)(int64_t k, int64_t rows);
    /* Packs rows [first, first + n) of src (file order, the whole matrix) into dst (the whole packed matrix); calls for
     * disjoint ranges that start at multiples of `grain` rows may run in parallel. */
    void (*pack)(const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n);
    void (*unpack_row)(const void *packed, float *dst, int64_t k, int64_t rows, int64_t row);
    /* The inverse of pack: row `row` in the file's own bytes, to prove unpack(pack(x)) == x. */
    void (*restore_row)(const void *packed, void *dst, int64_t k, int64_t rows, int64_t row);
    int grain; /* rows packed together */
};

#endif
