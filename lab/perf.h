/* perf.h: how fast a kernel that was found right is, on its specimen. */
#ifndef LAB_PERF_H
#define LAB_PERF_H

#include "lab/specimen.h"

struct perf_result {
    int samples; /* 0: not measured */
    int threads;
    double cold_ns;   /* median, nothing of the node's memory in any cache */
    double warm_ns;   /* median, run after run */
    struct cost cost; /* of the node as the kernel reads it */
};

/* Runs k, of backend b, on the specimen's first data set. Weights are packed as k wants them. */
int perf_measure(struct perf_result *p, struct specimen *s, const struct backend *b, const struct kernel *k, struct pool *pool,
                 struct hone_error *e);

#endif
