/* quantize_a8.h: what both quantize kernels to A8 share: which nodes they take and how workers split them. The instruction
 * set's file has the one function that turns 32 values into a block, to the bits of the format's own pack (formats/a8.c).
 *
 * Workers share blocks, not rows: in decode there is one row, and the matrix products that wait for it are all there is to do.
 */
#ifndef BACKENDS_CPU_QUANTIZE_A8_H
#define BACKENDS_CPU_QUANTIZE_A8_H

#include "backends/backend.h"
#include "base/cpu.h"
#include "formats/blocks.h"
#include "ops/quantize.h"

enum { QUANTIZE_A8_GRAIN = 8 }; /* blocks: 320 bytes, five whole cache lines */

static bool quantize_a8_fits(const struct node *n, struct reason *r)
{
    const struct tensor *x = n->src[0];
    if (n->out->format != FORMAT_A8)
        return fits_not(r, "the output is %s, not A8", format_get(n->out->format)->name);
    if (x->nb[0] != sizeof(float))
        return fits_not(r, "the elements of a row do not lie one behind the other");
    if (!tensor_rows_contiguous(n->out))
        return fits_not(r, "the blocks of an output row do not lie one behind the other");
    return true;
}

typedef void quantize_a8_block(const float *x, struct block_a8 *y);

static inline __attribute__((always_inline)) void quantize_a8(const struct node *n, const struct worker *w,
                                                              quantize_a8_block *block)
{
    int64_t per_row = n->out->ne[0] / 32, lo, hi;
    worker_range(w, per_row * tensor_rows(n->out), QUANTIZE_A8_GRAIN, &lo, &hi);
    while (lo < hi) {
        int64_t i[3], row = lo / per_row, first = lo % per_row, last = hi - lo < per_row - first ? first + hi - lo : per_row;
        tensor_row_index(n->out, row, i);
        const float *x = tensor_row(n->src[0], i[0], i[1], i[2]);
        struct block_a8 *y = tensor_row(n->out, i[0], i[1], i[2]);
        for (int64_t b = first; b < last; b++)
            block(x + 32 * b, y + b);
        lo += last - first;
    }
}

#endif
