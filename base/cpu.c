/* cpu.c: feature bits from cpuid (through the compiler's builtin, which also asks XCR0), cores from hwloc. */
#include "base/cpu.h"

#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static struct {
    int cores;
    char name[128];
    int n_sets; /* cores again; 0 where they cannot be told */
    cpu_set_t *sets;
} machine;

/* The hardware threads of each core, in the machine's order. */
static void look_at_cores(hwloc_topology_t t, hwloc_obj_type_t type, int n)
{
    cpu_set_t *sets = calloc((size_t)n, sizeof *sets);
    for (int i = 0; i < n && sets; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(t, type, (unsigned)i);
        unsigned id;
        hwloc_bitmap_foreach_begin(id, core->cpuset) if (id < CPU_SETSIZE) CPU_SET(id, &sets[i]);
        hwloc_bitmap_foreach_end();
    }
    machine.sets = sets;
    machine.n_sets = sets ? n : 0;
}

/* One look at the machine; hwloc's topology is freed at once, since a count, a name and the cores' processors are all that is
 * wanted. */
static void look(void)
{
    hwloc_topology_t t;
    machine.cores = 1;
    snprintf(machine.name, sizeof machine.name, "unknown processor");
    if (hwloc_topology_init(&t))
        return;
    if (!hwloc_topology_load(t)) {
        hwloc_obj_type_t type = HWLOC_OBJ_CORE;
        int n = hwloc_get_nbobjs_by_type(t, type);
        if (n < 1)
            n = hwloc_get_nbobjs_by_type(t, type = HWLOC_OBJ_PU);
        if (n > 1)
            machine.cores = n;
        if (n > 0)
            look_at_cores(t, type, n);
        hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
        const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
        if (model)
            snprintf(machine.name, sizeof machine.name, "%s", model);
    }
    hwloc_topology_destroy(t);
}

int cpu_cores(void)
{
    if (!machine.cores)
        look();
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

/* Cores, or (single) hardware threads core by core, of those in `usable`; returns how many. list: room for CPU_SETSIZE. */
static int units_of(const cpu_set_t *usable, bool single, cpu_set_t *list)
{
    int n = 0;
    for (int i = 0; i < machine.n_sets; i++) {
        cpu_set_t mine;
        CPU_AND(&mine, &machine.sets[i], usable);
        if (!single && CPU_COUNT(&mine))
            list[n++] = mine;
        for (int id = 0; single && id < CPU_SETSIZE; id++)
            if (CPU_ISSET(id, &mine)) {
                CPU_ZERO(&list[n]);
                CPU_SET(id, &list[n++]);
            }
    }
    return n;
}

bool cpu_deal(const int *threads, int n, cpu_set_t *sets)
{
    cpu_set_t usable, *units = calloc(CPU_SETSIZE, sizeof *units);
    int64_t total = 0, before = 0;
    for (int i = 0; i < n; i++)
        total += threads[i];
    int n_units = 0;
    if (units && cpu_cores() <= CPU_SETSIZE && !sched_getaffinity(0, sizeof usable, &usable)) {
        n_units = units_of(&usable, false, units);
        if (n_units < total)
            n_units = units_of(&usable, true, units);
    }
    bool enough = total > 0 && n_units >= total;
    for (int i = 0; i < n && enough; before += threads[i++]) {
        int64_t from = n_units * before / total, to = n_units * (before + threads[i]) / total;
        CPU_ZERO(&sets[i]);
        for (int64_t k = from; k < to; k++)
            CPU_OR(&sets[i], &sets[i], &units[k]);
    }
    free(units);
    return enough;
}

bool cpu_enter(const cpu_set_t *set, cpu_set_t *before)
{
    if (before && sched_getaffinity(0, sizeof *before, before))
        return false;
    return sched_setaffinity(0, sizeof *set, set) == 0;
}
