/* q4_K_soa.c: the layout q4_K.soa: two streams, the 128 bytes of codes of all N super-blocks, then the 16 bytes of their heads
 * (d, dmin, 12 bytes of sub-scales), in the order of the file. Both streams are aligned, which the file's 144 bytes are not,
 * and a reader that runs along rows, as GPUs do, loads each with full width. CPUs run along 16 rows at once and prefer
 * q4_K.x16. */
#include "formats/blocks.h"
#include "formats/formats.h"

#include <string.h>

enum { CODES = 128, HEAD = 16 };
_Static_assert(sizeof(struct block_q4_K) == CODES + HEAD, "a head, then codes");

static const char *refuses(int64_t k, int64_t rows)
{
    if (k < 1 || rows < 1)
        return "the matrix is empty";
    return k % BLOCK_K ? "a row is no whole number of blocks" : NULL;
}

static size_t bytes(int64_t k, int64_t rows)
{
    return (size_t)(k / BLOCK_K) * (size_t)rows * sizeof(struct block_q4_K);
}

/* Where super-block number `block` of N has its codes and its head. */
static size_t codes_at(int64_t block)
{
    return (size_t)block * CODES;
}

static size_t head_at(int64_t n_blocks, int64_t block)
{
    return (size_t)n_blocks * CODES + (size_t)block * HEAD;
}

static void pack(const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n)
{
    const struct block_q4_K *b = src;
    int64_t per_row = k / BLOCK_K, total = per_row * rows, last = first + n < rows ? first + n : rows;
    for (int64_t i = first * per_row; i < last * per_row; i++) {
        memcpy((uint8_t *)dst + codes_at(i), b[i].qs, CODES);
        memcpy((uint8_t *)dst + head_at(total, i), &b[i], HEAD);
    }
}

static void restore_row(const void *packed, void *dst, int64_t k, int64_t rows, int64_t row)
{
    struct block_q4_K *b = dst;
    int64_t per_row = k / BLOCK_K;
    for (int64_t i = 0; i < per_row; i++) {
        memcpy(b[i].qs, (const uint8_t *)packed + codes_at(row * per_row + i), CODES);
        memcpy(&b[i], (const uint8_t *)packed + head_at(per_row * rows, row * per_row + i), HEAD);
    }
}

static void unpack_row(const void *packed, float *dst, int64_t k, int64_t rows, int64_t row)
{
    const struct format *f = format_get(FORMAT_Q4_K);
    int64_t per_row = k / BLOCK_K;
    for (int64_t i = 0; i < per_row; i++) {
        struct block_q4_K b;
        memcpy(b.qs, (const uint8_t *)packed + codes_at(row * per_row + i), CODES);
        memcpy(&b, (const uint8_t *)packed + head_at(per_row * rows, row * per_row + i), HEAD);
        f->unpack(&b, dst + i * BLOCK_K, BLOCK_K);
    }
}

const struct layout layout_q4_K_soa = {.name = "q4_K.soa",
                                       .format = FORMAT_Q4_K,
                                       .refuses = refuses,
                                       .bytes = bytes,
                                       .pack = pack,
                                       .unpack_row = unpack_row,
                                       .restore_row = restore_row,
                                       .grain = 1};
