/* bandwidth.h: how fast memory can be read here and now: the roof under every decode. */
#ifndef BASE_BANDWIDTH_H
#define BASE_BANDWIDTH_H

#include "base/err.h"

/* Bytes a second that n threads read together from a fresh block much larger than any cache (1 GiB, less where memory is short), in
 * huge pages where the kernel gives them: the best of three passes of each of two read kernels. About a second. */
int bandwidth_read(int n_threads, double *bytes_per_second, struct hone_error *e);

#endif
