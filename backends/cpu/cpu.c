/* cpu.c: the CPU as a backend: one device, host memory, the references of all ops as its slowest kernels, and the rows of
 * kernels.def as the faster ones. It owns no threads; a step brings its pool. */
#include "backends/backend.h"

#include "base/cpu.h"
#include "base/mmap.h"
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const struct backend backend_cpu;

/* The reference of every op, as a kernel that fits whatever the op accepts. */
static int run_reference(const struct exec *x, const struct node *n)
{
    node_reference(n, &x->worker);
    return x->worker.comm ? comm_error(x->worker.comm)->code : 0;
}

#define OP(NAME, name)                                                                                                         \
    static const struct kernel cpu_##name##_ref = {                                                                            \
        .op = OP_##NAME, .variant = "ref", .wants.any_layout = true, .scratch = node_scratch, .run = run_reference};
#include "ops/ops.def"
#undef OP

#define KERNEL(op, variant) extern const struct kernel cpu_##op##_##variant;
#include "backends/cpu/kernels.def"
#undef KERNEL

static const struct kernel *const table[] = {
#define OP(NAME, name) &cpu_##name##_ref,
#include "ops/ops.def"
#undef OP
#define KERNEL(op, variant) &cpu_##op##_##variant,
#include "backends/cpu/kernels.def"
#undef KERNEL
};

static const struct kernel *const *kernels(int *n)
{
    return backend_with_registered(&backend_cpu, table, (int)(sizeof table / sizeof *table), n);
}

static int n_devices(void)
{
    return 1;
}

static int device(int i, struct device_info *info, struct hone_error *e)
{
    if (i != 0)
        return err_set(e, HONE_EUSAGE, "the cpu backend has one device, not %d", i);
    *info = (struct device_info){.units = cpu_cores(), .memory_free = pages_available()};
    snprintf(info->name, sizeof info->name, "%s", cpu_name());
    for (unsigned bit = 1; cpu_feature_name(bit); bit <<= 1) {
        size_t n = strlen(info->features);
        if (cpu_features() & bit)
            snprintf(info->features + n, sizeof info->features - n, "%s%s", n ? " " : "", cpu_feature_name(bit));
    }
    info->memory_total = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return 0;
}

static unsigned features(int i)
{
    (void)i;
    return cpu_features();
}

const struct backend backend_cpu = {
    .name = "cpu",
    .host = true,
    .n_devices = n_devices,
    .device = device,
    .features = features,
    .feature_name = cpu_feature_name,
    .kernels = kernels,
};
