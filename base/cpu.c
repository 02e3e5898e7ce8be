/* cpu.c: feature bits from cpuid (through the compiler's builtin, which also asks XCR0), cores from hwloc. */
#include "base/cpu.h"

#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static unsigned allowed = ~0u;

static unsigned detect(void)
{
    unsigned f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        f |= CPU_AVX2;
    if (__builtin_cpu_supports("fma"))
        f |= CPU_FMA | (__builtin_cpu_supports("avx2") ? CPU_F16C : 0); /* every processor with FMA and AVX2 has F16C */
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        f |= CPU_AVX512;
    if (f & CPU_AVX512) {
        if (__builtin_cpu_supports("avx512vnni"))
            f |= CPU_AVX512_VNNI;
        if (__builtin_cpu_supports("avx512vbmi"))
            f |= CPU_AVX512_VBMI;
        if (__builtin_cpu_supports("avx512bf16"))
            f |= CPU_AVX512_BF16;
    }
#endif
    return f;
}

unsigned cpu_features(void)
{
    static unsigned found;
    static bool known;
    if (!known) {
        found = detect();
        known = true;
    }
    return found & allowed;
}

static const char *const names[] = {
#define X(bit, word) #word,
    CPU_FEATURES(X)
#undef X
};

const char *cpu_feature_name(unsigned bit)
{
    for (int i = 0; i < CPU_N_FEATURES; i++)
        if (bit == 1u << i)
            return names[i];
    return NULL;
}

static bool feature_named(const char *word, size_t n, unsigned *bits)
{
    for (int i = 0; i < CPU_N_FEATURES; i++) {
        if (strlen(names[i]) != n || strncmp(names[i], word, n) != 0)
            continue;
        *bits |= 1u << i;
        if (i >= CPU_AVX2_INDEX)
            *bits |= CPU_AVX2 | CPU_FMA | CPU_F16C;
        if (i > CPU_AVX512_INDEX && i <= CPU_AVX512_BF16_INDEX)
            *bits |= CPU_AVX512;
        return true;
    }
    return false;
}

int cpu_mask(const char *words, struct hone_error *e)
{
    unsigned bits = 0;
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, ",");
        if (n == 4 && !strncmp(p, "full", n))
            bits = ~0u;
        else if (!(n == 4 && !strncmp(p, "none", n)) && !feature_named(p, n, &bits)) {
            char known[200] = "";
            for (int i = 0; i < CPU_N_FEATURES; i++)
                snprintf(known + strlen(known), sizeof known - strlen(known), " %s", names[i]);
            return err_set(e, HONE_EUSAGE, "--mask: unknown feature '%.*s'; known: none full%s", (int)n, p, known);
        }
        p += n + (p[n] == ',');
    }
    allowed = bits;
    return 0;
}

/* One look at the machine; hwloc's topology is freed at once, since only a count and a name are wanted. */
static void look(int *cores, char *name, size_t size)
{
    hwloc_topology_t t;
    *cores = 1;
    snprintf(name, size, "unknown processor");
    if (hwloc_topology_init(&t))
        return;
    if (!hwloc_topology_load(t)) {
        int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
        if (n < 1)
            n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
        if (n > 1)
            *cores = n;
        hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
        const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
        if (model)
            snprintf(name, size, "%s", model);
    }
    hwloc_topology_destroy(t);
}

static struct {
    int cores;
    char name[128];
} machine;

int cpu_cores(void)
{
    if (!machine.cores)
        look(&machine.cores, machine.name, sizeof machine.name);
    return machine.cores;
}

int cpu_processors(void)
{
    int n = 0;
    for (size_t size = 1024; size <= 1 << 16 && n < 1; size *= 2) { /* a mask too small for the machine is refused */
        cpu_set_t *set = CPU_ALLOC(size);
        if (set && !sched_getaffinity(0, CPU_ALLOC_SIZE(size), set))
            n = CPU_COUNT_S(CPU_ALLOC_SIZE(size), set);
        CPU_FREE(set);
    }
    return n > 0 ? n : 1;
}

const char *cpu_name(void)
{
    cpu_cores();
    return machine.name;
}
