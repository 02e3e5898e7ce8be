/* bandwidth.h: how fast memory can be read here and now: the roof under every decode. */
#ifndef BASE_BANDWIDTH_H
#define BASE_BANDWIDTH_H

#include "base/err.h"

#include <stddef.h>

/* A block much larger than any cache (1 GiB, less where memory is short), in huge pages where the kernel gives them, and the
 * threads that read it. */
struct bandwidth;

int bandwidth_open(struct bandwidth **out, int n_threads, struct hone_error *e);
/* Bytes a second that the threads read together: the best of three read kernels, the whole block once each. A quarter of a
 * second at 12 GB/s. */
double bandwidth_round(struct bandwidth *b);
size_t bandwidth_bytes(const struct bandwidth *b); /* that it keeps in memory */
void bandwidth_close(struct bandwidth *b);         /* NULL is allowed */

/* All in one: the best of three rounds. About a second. */
int bandwidth_read(int n_threads, double *bytes_per_second, struct hone_error *e);

#endif
