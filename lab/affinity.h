/* affinity.h: which processors threads may use: llama-bench's --cpu-mask and --cpu-strict. */
#ifndef LAB_AFFINITY_H
#define LAB_AFFINITY_H

#include "base/err.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

enum { AFFINITY_CPUS = 512, AFFINITY_THREADS = 2048 };

struct affinity {
    cpu_set_t before, mask;
    bool on;
    pid_t known[AFFINITY_THREADS]; /* this process' threads when the mask was put on */
    int n_known;
};

/* Puts the calling thread, and so all that it will start, on the processors of a hexadecimal mask ("0x3"); "0x0" changes
 * nothing. HONE_EUSAGE when it cannot be read or names no processor that this process may use. */
int affinity_enter(struct affinity *a, const char *mask, struct hone_error *e);
/* The calling thread to the mask's first processor, each thread started since affinity_enter to its next, round and round. */
int affinity_pin(const struct affinity *a, struct hone_error *e);
void affinity_leave(struct affinity *a); /* harmless on a zeroed one */

#endif
