/* top_k_avx2.c: the k largest of each row: values become whole numbers in the same order, then k passes of a vectorised maximum. A row
 * belongs to one worker: a router has a few hundred values at most, and a token takes eight or ten of them. Not measured by itself. */
#include "backends/backend.h"
#include "base/cpu.h"
#include "ops/top_k.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { TAKEN = INT32_MIN, NO_NUMBER = INT32_MIN + 1 };

static bool fits(const struct node *n, struct reason *r)
{
    return n->src[0]->nb[0] == sizeof(float) || fits_not(r, "the elements of a row do not lie one behind the other");
}

static size_t scratch(const struct node *n)
{
    return sizeof(int32_t) * (size_t)n->src[0]->ne[0];
}

/* Ordered as the values are, with both zeros equal; a NaN below all. */
static inline int32_t key_of(float x)
{
    int32_t bits;
    x = x + 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? NO_NUMBER : bits < 0 ? INT32_MIN + (INT32_MAX - (bits & INT32_MAX)) + 1 : bits;
}

static int run(const struct exec *x, const struct node *n)
{
    const struct tensor *in = n->src[0], *out = n->out;
    int64_t lo, hi, i[3], width = in->ne[0];
    int32_t *keys = x->worker.scratch;
    worker_range(&x->worker, tensor_rows(out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(out, row, i);
        const char *values = tensor_row(in, i[0], i[1], i[2]);
        for (int64_t c = 0; c < width; c++) {
            float v;
            memcpy(&v, values + sizeof v * (size_t)c, sizeof v);
            keys[c] = key_of(v);
        }
        for (int64_t j = 0; j < out->ne[0]; j++) {
            int32_t most = TAKEN, best = 0;
            for (int64_t c = 0; c < width; c++)
                most = keys[c] > most ? keys[c] : most;
            while (keys[best] != most)
                best++;
            keys[best] = TAKEN;
            memcpy((char *)tensor_row(out, i[0], i[1], i[2]) + (size_t)j * out->nb[0], &best, sizeof best);
        }
    }
    return 0;
}

const struct kernel cpu_top_k_avx2 = {.op = OP_TOP_K, .variant = "avx2", .needs = CPU_AVX2 | CPU_FMA | CPU_F16C, .fits = fits, .scratch = scratch, .run = run};
