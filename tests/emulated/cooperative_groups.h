/* cooperative_groups.h, emulated: clusters. */
#ifndef TESTS_EMULATED_COOPERATIVE_GROUPS_H
#define TESTS_EMULATED_COOPERATIVE_GROUPS_H

#include "backends/cuda/cuda.h"

namespace cooperative_groups
{
struct cluster_group {
    void sync()
    {
        emulated_cluster_barrier();
    }
    unsigned num_blocks()
    {
        return emulated_cluster_size();
    }
    template <class T> T *map_shared_rank(T *p, unsigned rank)
    {
        return (T *)emulated_peer((void *)p, rank);
    }
};
static inline cluster_group this_cluster()
{
    return {};
}
} // namespace cooperative_groups

#endif
