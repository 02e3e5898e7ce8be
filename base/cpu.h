/* cpu.h: what the processor can do, and how many cores it has. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "base/err.h"

#include <sched.h>
#include <stdbool.h>

/* X(bit name, word on the command line). One bit a feature that some kernel asks for. */
#define CPU_FEATURES(X)            \
    X(CPU_AVX2, avx2)              \
    X(CPU_FMA, fma)                \
    X(CPU_F16C, f16c)              \
    X(CPU_AVX512, avx512)          \
    X(CPU_AVX512_VNNI, avx512_vnni) \
    X(CPU_AVX512_VBMI, avx512_vbmi) \
    X(CPU_AVX512_BF16, avx512_bf16) \
    X(CPU_AVX_VNNI, avx_vnni)

#define X(bit, word) bit##_INDEX,
enum { CPU_FEATURES(X) CPU_N_FEATURES };
#undef X
#define X(bit, word) bit = 1u << bit##_INDEX,
enum cpu_feature { CPU_FEATURES(X) };
#undef X

/* Feature bits of this processor that the operating system lets us use, less those masked. CPU_AVX512 means F, BW, DQ and VL. */
unsigned cpu_features(void);
/* Keeps only the named features from now on: "none", "full", or words of CPU_FEATURES joined by commas; "avx2" alone
 * brings fma and f16c with it, "avx512" brings those and avx2. Not thread-safe: before the first plan. */
int cpu_mask(const char *words, struct hone_error *e);
/* The word of one feature bit (a single bit), or NULL. */
const char *cpu_feature_name(unsigned bit);
/* Physical cores that this process may run on; at least 1. */
int cpu_cores(void);
/* Logical processors that the calling thread may run on now; at least 1. */
int cpu_processors(void);
/* "vendor model" as the system reports it; a static string, never NULL. */
const char *cpu_name(void);

/* Deals the cores that the calling thread may run on out among n groups of so many threads, without one for two: stretches in
 * the machine's order, since neighbours share caches and memory, of lengths as the numbers of threads. Where cores are fewer
 * than threads their hardware threads are dealt. false, and nothing is written: there are fewer of those, too, or more than a
 * set can hold. */
bool cpu_deal(const int *threads, int n, cpu_set_t *sets);
/* Puts the calling thread on a set, and so all threads that it will start; *before (may be NULL): where it was. false: it
 * stays. */
bool cpu_enter(const cpu_set_t *set, cpu_set_t *before);

#endif
