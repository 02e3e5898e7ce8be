/* link_rate.h: how long ranks on devices take for a sum, kernel by kernel and size by size: what a decode step of a model that
 * is split over them pays twice a layer. */
#ifndef LAB_LINK_RATE_H
#define LAB_LINK_RATE_H

#include "backends/backend.h"

enum { LINK_RATE_RANKS = 16, LINK_RATE_SIZES = 5, LINK_RATE_KERNELS = 4 };

struct link_rate {
    const char *way;                /* how they meet */
    int64_t bytes[LINK_RATE_SIZES]; /* of a rank's part */
    int n_kernels;
    const char *kernels[LINK_RATE_KERNELS];
    double ns[LINK_RATE_KERNELS][LINK_RATE_SIZES]; /* of one sum, in a row of many; 0: the kernel does not take it */
};

/* Ranks on devices of one backend; a device may come twice. way: as in link_api. */
int link_rate_measure(struct link_rate *r, const struct backend *b, const int *devices, int n, const char *way,
                      struct hone_error *e);

#endif
