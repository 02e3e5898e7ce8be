/* link_ptx.cuh, emulated: memory that ranks share is plain memory, looked at once a turn of all threads, and time passes with
 * the looks at the clock. What it cannot show is memory order. */
#ifndef TESTS_EMULATED_LINK_PTX_CUH
#define TESTS_EMULATED_LINK_PTX_CUH

#include "backends/cuda/cuda.h"

static inline void link_store(void *to, uint64_t a, uint64_t b)
{
    if ((uintptr_t)to % 16)
        abort();
    ((uint64_t *)to)[0] = a;
    ((uint64_t *)to)[1] = b;
}

static inline void link_load(const void *from, uint64_t &a, uint64_t &b)
{
    if ((uintptr_t)from % 16)
        abort();
    emulated_yield();
    a = ((const volatile uint64_t *)from)[0];
    b = ((const volatile uint64_t *)from)[1];
}

static inline void link_publish(uint64_t *to, uint64_t x)
{
    *(volatile uint64_t *)to = x;
}

static inline uint64_t link_look(const uint64_t *from)
{
    emulated_yield();
    return *(const volatile uint64_t *)from;
}

static inline bool link_is_set(const uint32_t *word)
{
    return *(const volatile uint32_t *)word != 0;
}

static inline void link_tell(uint32_t *to, uint32_t x)
{
    *(volatile uint32_t *)to = x;
}

static inline void link_stop(uint32_t *stop)
{
    link_tell(stop, 1);
}

static inline uint64_t link_clock_ns(void)
{
    static uint64_t now = 1000000000;
    return now += 10000000; /* 10 ms */
}

static inline void flag_set(uint32_t *flag)
{
    *flag = 1;
    emulated_changed();
}

static inline bool flag_look(const uint32_t *flag)
{
    if (!*(volatile const uint32_t *)flag)
        emulated_yield();
    return *(volatile const uint32_t *)flag != 0;
}

#endif
