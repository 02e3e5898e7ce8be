/* s32.h: the packed layouts <format>.s32: a matrix as a few streams, each aligned, for readers whose neighbouring lanes take
 * neighbouring groups of 32 values, as GPUs do.
 *
 * A block's fields go to a stream each, block behind block in the order of the file: first the low bits of the codes, then what
 * there is of high bits, then scales. So every load of a warp is one contiguous, aligned stretch, which blocks of 18 or 210
 * bytes do not give. And the codes of 32 values w lie the same way in every format, so that one unpacking serves all.
 *
 * Nibbles, 16 bytes: byte j holds w[j] low and w[16 + j] high. Bytes: w[0] to w[15] in one stream, w[16] to w[31] in the next.
 * Pairs of bits, 8 bytes: byte j holds w[8 s + j] at bits 2 s. Single bits, 4 bytes: bit v of byte i is that of w[4 v + i].
 * Four code bytes are then at most one shift and one mask away from a register. Scales keep the file's bytes, but for the 6-bit
 * scales and minima of Q4_K and Q5_K, 12 bytes: byte g (0 to 7) is group g's scale and, at bit 6, the low two bits of its
 * minimum, and nibble g of the last four the rest of the minimum.
 *
 * A layout says how a block is cut into its streams and joined again; the rest is here once. Rows stand one behind the other in
 * every stream, so an expert, or any range of rows, is an offset. Blocks interleaved over 8 rows lost: a warp that has a row to
 * itself adds its lanes up once a row, at 5 steps for some thousand values. */
#ifndef FORMATS_S32_H
#define FORMATS_S32_H

#include "formats/blocks.h"
#include "formats/formats.h"

enum { S32_ALIGN = 256, S32_STREAMS = 4 };

struct s32 {
    enum format_id format;
    uint8_t bytes[S32_STREAMS]; /* of a block, in each stream; 0: no more streams */
    /* A block's bytes in the order of the streams, and back. */
    void (*split)(const uint8_t *block, uint8_t *to);
    void (*join)(const uint8_t *from, uint8_t *block);
};

/* Where stream number `stream` of a matrix of that many blocks begins; for the number of streams, the bytes of them all. */
static inline size_t s32_stream(const uint8_t *bytes, int64_t blocks, int stream)
{
    size_t at = 0;
    for (int i = 0; i < stream && i < S32_STREAMS; i++)
        at += ((size_t)bytes[i] * (size_t)blocks + S32_ALIGN - 1) / S32_ALIGN * S32_ALIGN;
    return at;
}

const char *s32_refuses(const struct s32 *s, int64_t k, int64_t rows);
size_t s32_bytes(const struct s32 *s, int64_t k, int64_t rows);
void s32_pack(const struct s32 *s, const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n);
void s32_unpack_row(const struct s32 *s, const void *packed, float *dst, int64_t k, int64_t rows, int64_t row);
void s32_restore_row(const struct s32 *s, const void *packed, void *dst, int64_t k, int64_t rows, int64_t row);

/* For split and join: n values (a multiple of 32) between codes, a byte each, and a stream. put_* take the named bits of each
 * code, from bit `at` on; get_* add them. */
void s32_put_nibbles(const uint8_t *q, int n, uint8_t *to);
void s32_get_nibbles(const uint8_t *from, int n, uint8_t *q);
void s32_put_pairs(const uint8_t *q, int n, int at, uint8_t *to);
void s32_get_pairs(const uint8_t *from, int n, int at, uint8_t *q);
void s32_put_bits(const uint8_t *q, int n, int at, uint8_t *to);
void s32_get_bits(const uint8_t *from, int n, int at, uint8_t *q);
/* The 12 bytes of scales and minima of Q4_K and Q5_K, from the file's order and back. */
void s32_put_scales(const uint8_t *scales, uint8_t *to);
void s32_get_scales(const uint8_t *from, uint8_t *scales);

/* Defines layout_<id>_s32 from the static functions split and join of the file. */
#define S32_LAYOUT(ID, id, ...)                                                                                                \
    static const struct s32 s32 = {FORMAT_##ID, {__VA_ARGS__}, split, join};                                                   \
    static const char *refuses(int64_t k, int64_t rows)                                                                        \
    {                                                                                                                          \
        return s32_refuses(&s32, k, rows);                                                                                     \
    }                                                                                                                          \
    static size_t bytes(int64_t k, int64_t rows)                                                                               \
    {                                                                                                                          \
        return s32_bytes(&s32, k, rows);                                                                                       \
    }                                                                                                                          \
    static void pack(const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n)                            \
    {                                                                                                                          \
        s32_pack(&s32, src, dst, k, rows, first, n);                                                                           \
    }                                                                                                                          \
    static void unpack_row(const void *packed, float *dst, int64_t k, int64_t rows, int64_t row)                               \
    {                                                                                                                          \
        s32_unpack_row(&s32, packed, dst, k, rows, row);                                                                       \
    }                                                                                                                          \
    static void restore_row(const void *packed, void *dst, int64_t k, int64_t rows, int64_t row)                               \
    {                                                                                                                          \
        s32_restore_row(&s32, packed, dst, k, rows, row);                                                                      \
    }                                                                                                                          \
    const struct layout layout_##id##_s32 = {.name = #id ".s32",                                                               \
                                             .format = FORMAT_##ID,                                                            \
                                             .refuses = refuses,                                                               \
                                             .bytes = bytes,                                                                   \
                                             .pack = pack,                                                                     \
                                             .unpack_row = unpack_row,                                                         \
                                             .restore_row = restore_row,                                                       \
                                             .grain = 1}

#endif
