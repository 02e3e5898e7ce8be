/* x16.h: the packed layouts <format>.x16: rows in groups of 16, interleaved, the file's bytes in another order.
 *
 * A group is k / block group-blocks one behind the other. A group-block holds the blocks of the 16 rows at one place: field by
 * field, and within a field unit by unit, unit u of all 16 rows side by side. With units of 4 bytes a 64-byte load brings four
 * code bytes of each of 16 rows, a dword a row, so an integer dot product adds up along a row within its lane and no sum
 * across lanes is ever needed. Small fields (scales) lie in units of their own size. The last group is filled up with rows of
 * zero bytes.
 *
 * A layout is a table of fields; packing and restoring are one loop over it, so both are exact by the same table. Layouts of 8
 * rows lost: AVX2 reads the halves of 16 just as well, and AVX-512 would need two loads and an insert. */
#ifndef FORMATS_X16_H
#define FORMATS_X16_H

#include "formats/blocks.h"
#include "formats/formats.h"

enum {
    X16_ROWS = 16,
    X16_GRAIN = 2, /* groups that a worker's share is a multiple of: 32 rows are a block of the next product's activation */
    X16_NIBBLES = 0,
};

/* A field of the file's block. Fields are listed in the packed order and cover the block. */
struct x16_field {
    uint8_t offset, bytes;
    uint8_t unit; /* 1, 2 or 4 bytes; X16_NIBBLES: 4 bits, row r's nibble at bits 4 r of 64 */
};

struct x16 {
    enum format_id format;
    int n_fields;
    const struct x16_field *fields;
};

static inline int64_t x16_groups(int64_t rows)
{
    return (rows + X16_ROWS - 1) / X16_ROWS;
}

const char *x16_refuses(const struct x16 *x, int64_t k, int64_t rows);
size_t x16_bytes(const struct x16 *x, int64_t k, int64_t rows);
void x16_pack(const struct x16 *x, const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n);
void x16_unpack_row(const struct x16 *x, const void *packed, float *dst, int64_t k, int64_t row);
void x16_restore_row(const struct x16 *x, const void *packed, void *dst, int64_t k, int64_t row);

/* Defines layout_<id>_x16 from its fields. */
#define X16_LAYOUT(ID, id, label, ...)                                                                                         \
    static const struct x16_field fields[] = {__VA_ARGS__};                                                                    \
    static const struct x16 x16 = {FORMAT_##ID, sizeof fields / sizeof *fields, fields};                                       \
    static const char *refuses(int64_t k, int64_t rows)                                                                        \
    {                                                                                                                          \
        return x16_refuses(&x16, k, rows);                                                                                     \
    }                                                                                                                          \
    static size_t bytes(int64_t k, int64_t rows)                                                                               \
    {                                                                                                                          \
        return x16_bytes(&x16, k, rows);                                                                                       \
    }                                                                                                                          \
    static void pack(const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n)                            \
    {                                                                                                                          \
        x16_pack(&x16, src, dst, k, rows, first, n);                                                                           \
    }                                                                                                                          \
    static void unpack_row(const void *packed, float *dst, int64_t k, int64_t rows, int64_t row)                               \
    {                                                                                                                          \
        (void)rows;                                                                                                            \
        x16_unpack_row(&x16, packed, dst, k, row);                                                                             \
    }                                                                                                                          \
    static void restore_row(const void *packed, void *dst, int64_t k, int64_t rows, int64_t row)                               \
    {                                                                                                                          \
        (void)rows;                                                                                                            \
        x16_restore_row(&x16, packed, dst, k, row);                                                                            \
    }                                                                                                                          \
    const struct layout layout_##id##_x16 = {.name = label ".x16",                                                             \
                                             .format = FORMAT_##ID,                                                            \
                                             .refuses = refuses,                                                               \
                                             .bytes = bytes,                                                                   \
                                             .pack = pack,                                                                     \
                                             .unpack_row = unpack_row,                                                         \
                                             .restore_row = restore_row,                                                       \
                                             .grain = X16_ROWS}

#endif
