/* one_device.c: see one_device.h. What the settings mean is asked of the session's own reader (ranks_spec_read), so that the
 * lab does not know a second time what "-ts 1/1" says. Of several hosts it is this one's threads that count: one device is one
 * machine's. */
#include "lab/one_device.h"

#include "backends/backend.h"
#include "engine/follow.h"
#include "engine/ranks.h"

#include <string.h>

/* What is split goes to GPUs before it goes to groups of threads; beside those no row on one device stands. */
static bool to_gpus(const struct hone_session_params *p)
{
    int n_backends;
    const struct backend *const *list = backend_list(&n_backends);
    bool layers = p->split_mode && p->n_gpu_layers && !follow_comm();
    bool hosts = p->devices && (!strcmp(p->devices, "none") || !strncmp(p->devices, "cpu", 3));
    for (int i = 0; i < n_backends && layers && !hosts; i++)
        if (!list[i]->host && list[i]->n_devices() > 0)
            return true;
    return false;
}

int devices_of(const struct hone_session_params *p, int *threads)
{
    struct ranks_spec spec;
    struct hone_error refused = {0};
    int n = follow_comm() ? follow_here() : SHARD_MAX_RANKS;
    *threads = p->n_threads ? p->n_threads : cpu_cores();
    if (to_gpus(p) || ranks_spec_read(&spec, p, &refused) || spec.n < 2)
        return 1;
    *threads = 0;
    for (int i = 0; i < spec.n && i < n; i++)
        *threads += spec.threads[i];
    return spec.n;
}

struct hone_session_params one_device_params(const struct hone_session_params *p)
{
    struct hone_session_params one = *p;
    int threads;
    if (devices_of(p, &threads) < 2)
        return one;
    one.n_threads = threads;
    one.split_mode = NULL;
    one.tensor_split = NULL;
    one.devices = "none";
    return one;
}

void one_device_enter(struct one_device_place *p)
{
    cpu_set_t all;
    p->moved = follow_all_cpus(&all) && cpu_enter(&all, &p->before);
}

void one_device_leave(struct one_device_place *p)
{
    if (p->moved)
        cpu_enter(&p->before, NULL);
    p->moved = false;
}
