/* s32.c: packing and restoring of the s32 layouts, driven by how their files cut a block (s32.h). Packing is what a load waits
 * for: a block is cut in a small buffer and its pieces go to streams that are written forward, row by row, so any share of the
 * rows can be packed by itself. */
#include "formats/s32.h"

#include "formats/kquant.h"

#include <string.h>

enum { MAX_BYTES = 256 }; /* of a block */

static int n_streams(const struct s32 *s)
{
    int n = 0;
    while (n < S32_STREAMS && s->bytes[n])
        n++;
    return n;
}

const char *s32_refuses(const struct s32 *s, int64_t k, int64_t rows)
{
    if (k < 1 || rows < 1)
        return "the matrix is empty";
    return k % format_get(s->format)->block ? "a row is no whole number of blocks" : NULL;
}

size_t s32_bytes(const struct s32 *s, int64_t k, int64_t rows)
{
    return s32_stream(s->bytes, k / format_get(s->format)->block * rows, n_streams(s));
}

void s32_pack(const struct s32 *s, const void *src, void *dst, int64_t k, int64_t rows, int64_t first, int64_t n)
{
    const struct format *f = format_get(s->format);
    int64_t per_row = k / f->block, blocks = per_row * rows, last = first + n < rows ? first + n : rows;
    const uint8_t *from = (const uint8_t *)src + (size_t)(first * per_row) * (size_t)f->bytes;
    uint8_t *to[S32_STREAMS], cut[MAX_BYTES];
    int streams = n_streams(s);
    for (int i = 0; i < streams; i++)
        to[i] = (uint8_t *)dst + s32_stream(s->bytes, blocks, i) + (size_t)(first * per_row) * s->bytes[i];
    for (int64_t b = first * per_row; b < last * per_row; b++, from += f->bytes) {
        const uint8_t *piece = cut;
        s->split(from, cut);
        for (int i = 0; i < streams; piece += s->bytes[i], to[i] += s->bytes[i], i++)
            memcpy(to[i], piece, s->bytes[i]);
    }
}

static void restore_block(const struct s32 *s, const uint8_t *packed, int64_t blocks, int64_t block, uint8_t *to)
{
    uint8_t cut[MAX_BYTES], *piece = cut;
    for (int i = 0; i < n_streams(s); piece += s->bytes[i], i++)
        memcpy(piece, packed + s32_stream(s->bytes, blocks, i) + (size_t)block * s->bytes[i], s->bytes[i]);
    s->join(cut, to);
}

void s32_restore_row(const struct s32 *s, const void *packed, void *dst, int64_t k, int64_t rows, int64_t row)
{
    const struct format *f = format_get(s->format);
    int64_t per_row = k / f->block;
    for (int64_t b = 0; b < per_row; b++)
        restore_block(s, packed, per_row * rows, row * per_row + b, (uint8_t *)dst + (size_t)b * (size_t)f->bytes);
}

void s32_unpack_row(const struct s32 *s, const void *packed, float *dst, int64_t k, int64_t rows, int64_t row)
{
    const struct format *f = format_get(s->format);
    int64_t per_row = k / f->block;
    for (int64_t b = 0; b < per_row; b++) {
        uint8_t block[MAX_BYTES];
        restore_block(s, packed, per_row * rows, row * per_row + b, block);
        f->unpack(block, dst + b * f->block, f->block);
    }
}

void s32_put_nibbles(const uint8_t *q, int n, uint8_t *to)
{
    for (; n > 0; n -= 32, q += 32, to += 16)
        for (int j = 0; j < 16; j++)
            to[j] = (uint8_t)((q[j] & 15) | (q[16 + j] & 15) << 4);
}

void s32_get_nibbles(const uint8_t *from, int n, uint8_t *q)
{
    for (; n > 0; n -= 32, q += 32, from += 16)
        for (int j = 0; j < 16; j++) {
            q[j] |= from[j] & 15;
            q[16 + j] |= from[j] >> 4;
        }
}

void s32_put_pairs(const uint8_t *q, int n, int at, uint8_t *to)
{
    for (; n > 0; n -= 32, q += 32, to += 8)
        for (int j = 0; j < 8; j++)
            to[j] = (uint8_t)((q[j] >> at & 3) | (q[8 + j] >> at & 3) << 2 | (q[16 + j] >> at & 3) << 4 |
                              (q[24 + j] >> at & 3) << 6);
}

void s32_get_pairs(const uint8_t *from, int n, int at, uint8_t *q)
{
    for (; n > 0; n -= 32, q += 32, from += 8)
        for (int s = 0; s < 4; s++)
            for (int j = 0; j < 8; j++)
                q[8 * s + j] |= (uint8_t)((from[j] >> 2 * s & 3) << at);
}

void s32_put_bits(const uint8_t *q, int n, int at, uint8_t *to)
{
    for (; n > 0; n -= 32, q += 32, to += 4)
        for (int i = 0; i < 4; i++) {
            unsigned bits = 0;
            for (int v = 0; v < 8; v++)
                bits |= (unsigned)(q[4 * v + i] >> at & 1) << v;
            to[i] = (uint8_t)bits;
        }
}

void s32_get_bits(const uint8_t *from, int n, int at, uint8_t *q)
{
    for (; n > 0; n -= 32, q += 32, from += 4)
        for (int v = 0; v < 8; v++)
            for (int i = 0; i < 4; i++)
                q[4 * v + i] |= (uint8_t)((from[i] >> v & 1) << at);
}

void s32_put_scales(const uint8_t *scales, uint8_t *to)
{
    uint8_t scale[8], min[8];
    kquant_scales_get(scales, scale, min);
    for (int g = 0; g < 8; g++)
        to[g] = (uint8_t)(scale[g] | (min[g] & 3) << 6);
    for (int g = 0; g < 4; g++)
        to[8 + g] = (uint8_t)(min[2 * g] >> 2 | min[2 * g + 1] >> 2 << 4);
}

void s32_get_scales(const uint8_t *from, uint8_t *scales)
{
    float scale[8], min[8];
    for (int g = 0; g < 8; g++) {
        scale[g] = (float)(from[g] & 63);
        min[g] = (float)(from[g] >> 6 | (from[8 + g / 2] >> g % 2 * 4 & 15) << 2);
    }
    kquant_scales_put(scale, min, scales);
}
