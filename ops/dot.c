/* dot.c: the functions of dot.h, built for several instruction sets; the loader picks one (an ifunc). A table of pointers
 * filled at start lost: it needs a call that someone must not forget. Sanitizers start after the loader has called the
 * resolver, so under them, and with clang, whose support for this differs, there is only the plain build; the bits are the
 * same. */
#include "ops/dot.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(HONE_SANITIZED)
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CLONES
#endif

CLONES void dot_columns(const float *a, const double *b, int64_t stride, int64_t count, int64_t n, double *out)
{
    dot_body_columns(a, b, stride, count, n, out);
}

CLONES void dot_accumulate(double s, const float *x, double *y, int64_t n)
{
    dot_body_accumulate(s, x, y, n);
}
