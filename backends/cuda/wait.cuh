/* wait.cuh: waits in kernels for what another block or rank brings, each bounded by the device's clock.
 *
 * Who waits looks, and between many looks asks whether there is still reason to: not once somebody has given up (`stop`, in
 * memory of the host, so the host can end waits too), nor when the time is over. Then the kernel tells the host and runs on
 * with whatever there is, to an error of the step that names the node. Ending the kernel by a trap was the alternative: the
 * process could not use the device any more, and nobody would know where it stood.
 *
 * Ranks tell in their group's status (link.cuh). Blocks of one kernel that wait for each other tell in struct cuda_late. */
#ifndef BACKENDS_CUDA_WAIT_CUH
#define BACKENDS_CUDA_WAIT_CUH

#include "backends/cuda/link_ptx.cuh"

enum { WAIT_LOOKS = 256 }; /* between two looks at `stop` and the clock */
enum wait_state { WAIT_ON, WAIT_STOPPED, WAIT_OVER };

/* One wait; zeroed. */
struct wait {
    uint32_t looks;
    uint64_t until;
};

/* After a look that did not find it. */
__device__ static inline enum wait_state wait_ask(struct wait &w, const uint32_t *stop, uint32_t limit_ms)
{
    if (++w.looks % WAIT_LOOKS)
        return WAIT_ON;
    if (link_is_set(stop))
        return WAIT_STOPPED;
    uint64_t now = link_clock_ns();
    if (!w.until)
        w.until = now + (uint64_t)limit_ms * 1000000;
    return now < w.until ? WAIT_ON : WAIT_OVER;
}

/* ---- blocks of one kernel */

/* Until block number `block` of this kernel has set its flag; by one thread. */
__device__ static inline void wait_for_block(const struct cuda_waiting &at, const uint32_t *flag, uint32_t block)
{
    struct wait w = {};
    enum wait_state state = WAIT_ON;
    while (state == WAIT_ON && !flag_look(flag))
        state = wait_ask(w, &at.late->stop, CUDA_LATE_MS);
    if (state != WAIT_OVER)
        return;
    at.late->where = at.where;
    at.late->block = block;
    link_stop(&at.late->stop);
}

#endif
