/* x16.c: packing and restoring of the x16 layouts, driven by their tables of fields (x16.h).
 *
 * Packing is what a model waits for when it is loaded, so the loops by unit are written out: a unit is moved as a whole and the
 * 16 destinations of a unit share a cache line or two. A group is packed block by block, since 16 rows are 16 streams that the
 * prefetchers can follow. Restoring goes row by row and need not be quick: tests, and references that read a packed weight. */
#include "formats/x16.h"

#include <string.h>

enum { MAX_BYTES = 256 }; /* of a block */

const char *x16_refuses(const struct x16 *x, int64_t k, int64_t rows)
{
    if (k < 1 || rows < 1)
        return "the matrix is empty";
    if (k % format_get(x->format)->block != 0)
        return "a row is no whole number of blocks";
    return NULL;
}

size_t x16_bytes(const struct x16 *x, int64_t k, int64_t rows)
{
    return format_row_bytes(format_get(x->format), k) * (size_t)x16_groups(rows) * X16_ROWS;
}

/* Nibble r of 16 to byte-wise pairs: row r's nibbles of one unit lie at bits 4 r of the 8 bytes at `to`. */
static inline void put_nibble(uint8_t *to, int row, unsigned nibble)
{
    to[row / 2] = (uint8_t)(row % 2 ? (to[row / 2] & 15) | nibble << 4 : (to[row / 2] & 0xf0) | nibble);
}

/* `units` units of n_rows rows. */
static void pack_units(int unit, const uint8_t *src, size_t row_bytes, int n_rows, int units, uint8_t *dst)
{
    switch (unit) {
    case 4:
        for (int r = 0; r < n_rows; r++)
            for (int u = 0; u < units; u++)
                memcpy(dst + 64 * u + 4 * r, src + (size_t)r * row_bytes + 4 * u, 4);
        break;
    case 2:
        for (int r = 0; r < n_rows; r++)
            for (int u = 0; u < units; u++)
                memcpy(dst + 32 * u + 2 * r, src + (size_t)r * row_bytes + 2 * u, 2);
        break;
    case 1:
        for (int r = 0; r < n_rows; r++)
            for (int u = 0; u < units; u++)
                dst[16 * u + r] = src[(size_t)r * row_bytes + (size_t)u];
        break;
    default:
        for (int r = 0; r < n_rows; r++)
            for (int u = 0; u < units; u++)
                put_nibble(dst + 8 * u, r, src[(size_t)r * row_bytes + (size_t)u / 2] >> u % 2 * 4 & 15u);
    }
}

/* A whole row is one field in formats of single values; else a block has several. In runs, so that what is written stays in the
 * first-level cache until all rows have been there. */
static void pack_row(const struct x16_field *f, const uint8_t *src, size_t row_bytes, int n_rows, uint8_t *dst)
{
    enum { RUN = 256 };
    for (size_t at = 0; at < row_bytes; at += RUN) {
        size_t n = row_bytes - at < RUN ? row_bytes - at : RUN;
        pack_units(f->unit, src + at, row_bytes, n_rows, (int)n / f->unit, dst + at * X16_ROWS);
    }
}

void x16_pack(const struct x16 *x, const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n)
{
    const struct format *format = format_get(x->format);
    size_t row_bytes = format_row_bytes(format, k), block = (size_t)format->bytes;
    int64_t n_blocks = k / format->block, last = first + n < rows ? first + n : rows;
    for (int64_t row = first; row < last; row += X16_ROWS) {
        int n_rows = last - row < X16_ROWS ? (int)(last - row) : X16_ROWS;
        const uint8_t *from = (const uint8_t *)src + (size_t)row * row_bytes;
        uint8_t *to = (uint8_t *)dst + (size_t)row * row_bytes;
        if (n_rows < X16_ROWS)
            memset(to, 0, row_bytes * X16_ROWS);
        if (x->n_fields == 1) {
            pack_row(x->fields, from, row_bytes, n_rows, to);
            continue;
        }
        for (int64_t b = 0; b < n_blocks; b++, from += block)
            for (const struct x16_field *f = x->fields; f < x->fields + x->n_fields; f++) {
                int units = f->unit ? f->bytes / f->unit : 2 * f->bytes;
                pack_units(f->unit, from + f->offset, row_bytes, n_rows, units, to);
                to += (size_t)f->bytes * X16_ROWS;
            }
    }
}

/* Row r of one group-block, as the file's block. */
static void restore_block(const struct x16 *x, const uint8_t *from, int r, uint8_t *block)
{
    for (int i = 0; i < x->n_fields; i++) {
        const struct x16_field *f = &x->fields[i];
        uint8_t *to = block + f->offset;
        for (int u = 0; f->unit && u < f->bytes / f->unit; u++)
            memcpy(to + u * f->unit, from + (u * X16_ROWS + r) * f->unit, f->unit);
        for (int u = 0; !f->unit && u < f->bytes; u++) {
            unsigned low = from[16 * u + r / 2] >> r % 2 * 4 & 15u, high = from[16 * u + 8 + r / 2] >> r % 2 * 4 & 15u;
            to[u] = (uint8_t)(low | high << 4);
        }
        from += f->bytes * X16_ROWS;
    }
}

void x16_restore_row(const struct x16 *x, const void *packed, void *dst, int64_t k, int64_t row)
{
    const struct format *format = format_get(x->format);
    size_t block = (size_t)format->bytes;
    const uint8_t *group = (const uint8_t *)packed + (size_t)(row / X16_ROWS * X16_ROWS) * format_row_bytes(format, k);
    for (int64_t b = 0; b < k / format->block; b++)
        restore_block(x, group + (size_t)b * block * X16_ROWS, (int)(row % X16_ROWS), (uint8_t *)dst + (size_t)b * block);
}

void x16_unpack_row(const struct x16 *x, const void *packed, float *dst, int64_t k, int64_t row)
{
    const struct format *format = format_get(x->format);
    size_t block = (size_t)format->bytes;
    const uint8_t *group = (const uint8_t *)packed + (size_t)(row / X16_ROWS * X16_ROWS) * format_row_bytes(format, k);
    for (int64_t b = 0; b < k / format->block; b++) {
        uint8_t bytes[MAX_BYTES];
        restore_block(x, group + (size_t)b * block * X16_ROWS, (int)(row % X16_ROWS), bytes);
        format->unpack(bytes, dst + b * format->block, format->block);
    }
}
