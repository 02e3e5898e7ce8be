/* persistent_ptx.cuh, emulated: a lap of a landing ends when the bytes that were announced have come, which is at once. Waits let the other
 * threads go on; the clock is the machine's. */
#ifndef TESTS_EMULATED_PERSISTENT_PTX_CUH
#define TESTS_EMULATED_PERSISTENT_PTX_CUH

#include "backends/cuda/persistent.h"
#include "backends/cuda/ptx.cuh"

#include <time.h>

static inline uint64_t persist_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline bool landing_try(struct landing *l, uint32_t parity)
{
    if (l->laps % 2 != parity)
        return true;
    emulated_yield();
    return false;
}

static inline void landing_expect(struct landing *l, uint32_t bytes)
{
    if (l->came || !bytes)
        abort(); /* the lap before has not ended */
    l->came = bytes;
}

static inline void landing_fetch(struct landing *l, void *to, const void *from, uint32_t bytes)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes || l->came < bytes)
        abort();
    memcpy(to, from, bytes);
    l->came -= bytes;
    l->laps += !l->came;
}

static inline void landing_arrive(struct landing *l)
{
    l->laps++;
}

static inline void persist_sync(void)
{
    emulated_part_barrier(1, PERSIST_WORKERS);
}

static inline uint32_t load_acquire(const uint32_t *p)
{
    emulated_yield();
    return *(const volatile uint32_t *)p;
}

static inline uint32_t add_acquire(uint32_t *p)
{
    return (*p)++;
}

static inline void add_release(uint32_t *p)
{
    add_acquire(p);
}

static inline void persist_tell(uint32_t *to, uint32_t word)
{
    *to = word;
}

#endif
