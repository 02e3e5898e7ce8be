/* poison.h: what the poisoned kernels share. Each file here is a plug-in: for each op one plain kernel that is right, and the
 * same kernel again with one fault, as they are made in earnest. The check must pass the first and name each of the others
 * (tests/test_check.c has the list). */
#ifndef TESTS_POISON_H
#define TESTS_POISON_H

#include "hone_kernel.h"

#include <stdio.h>

static inline char *row_of(const struct hone_tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (char *)t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

static inline void split(const struct hone_tensor *t, int64_t row, int64_t i[3])
{
    i[0] = row % t->ne[1];
    i[1] = row / t->ne[1] % t->ne[2];
    i[2] = row / t->ne[1] / t->ne[2];
}

static inline float get_f32(const char *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void put_f32(char *at, double value)
{
    float f = (float)value;
    memcpy(at, &f, sizeof f);
}

static inline int32_t whole(const struct hone_tensor *t, int64_t i0, int64_t i1)
{
    int32_t value;
    memcpy(&value, row_of(t, i1, 0, 0) + i0 * t->nb[0], sizeof value);
    return value;
}

static inline int refuse(char *why, size_t size, const char *text)
{
    snprintf(why, size, "%s", text);
    return 0;
}

/* The kernel `variant` of `op`, that is `run` with the fault FAULT_<variant>. */
#define POISON(op_name, name, run_fn, fits_fn, ...)                                                                            \
    static int run_##op_name##_##name(const struct hone_ctx *ctx, const struct hone_node *n, int32_t ith, int32_t nth)         \
    {                                                                                                                          \
        return run_fn(ctx, n, ith, nth, FAULT_##name);                                                                         \
    }                                                                                                                          \
    static const struct hone_kernel op_name##_##name = {.size = sizeof(struct hone_kernel),                                    \
                                                        .op = #op_name,                                                        \
                                                        .variant = #name,                                                      \
                                                        .fits = fits_fn,                                                       \
                                                        .run = run_##op_name##_##name,                                         \
                                                        __VA_ARGS__};

#endif
