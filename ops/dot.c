/* dot.c: the variants of dot.h, one body (dot_variant.h) built for several instruction sets, and the choice among them.
 *
 * The choice asks the compiler's own record of the processor, set before main, so it needs no start-up call and is safe in
 * any thread. The loader's resolvers (target_clones) would do the same, but break sanitizers, which start after them. Tiles
 * were measured on an AVX-512 server, k 576, 56 columns, one thread, in GMAC/s: plain 2x2 4.5, avx2 1x4 6.4, avx512 4x4 11.6
 * (4x2 9.2, 1x4 6.9). */
#include "ops/dot.h"

#include <stddef.h>
#include <string.h>

static inline __attribute__((always_inline)) double fold(double *lanes)
{
    for (int half = DOT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

#define NAME plain
#define TARGET
#define WIDTH   2
#define ROWS    2
#define COLUMNS 2
#include "ops/dot_variant.h"

#ifdef __x86_64__
#define NAME    avx2
#define TARGET  __attribute__((target("avx2")))
#define WIDTH   4
#define ROWS    1
#define COLUMNS 4
#include "ops/dot_variant.h"

#define NAME    avx512
#define TARGET  __attribute__((target("avx512f")))
#define WIDTH   8
#define ROWS    4
#define COLUMNS 4
#include "ops/dot_variant.h"
#endif

const struct dot *dot_variant(int i)
{
    if (i == 0)
        return &plain_variant;
#ifdef __x86_64__
    if (i == 1 && __builtin_cpu_supports("avx2"))
        return &avx2_variant;
    if (i == 2 && __builtin_cpu_supports("avx512f"))
        return &avx512_variant;
#endif
    return NULL;
}

const struct dot *dot_best(void)
{
    const struct dot *best = NULL, *next;
    for (int i = 0; (next = dot_variant(i)); i++)
        best = next;
    return best;
}
