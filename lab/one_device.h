/* one_device.h: the run on one device that stands beside one over several: the same settings, with the threads of all devices
 * of this machine in one group. Without it a figure over several devices says nothing of what they are good for. Devices are
 * groups of threads or processes (engine/ranks.h); layers that go to GPUs are no such split. */
#ifndef LAB_ONE_DEVICE_H
#define LAB_ONE_DEVICE_H

#include "base/cpu.h"
#include "hone.h"

/* How many devices p asks for; 1: it is no split, or one that is refused. *threads: of all those on this machine. */
int devices_of(const struct hone_session_params *p, int *threads);
/* The same session on one device. */
struct hone_session_params one_device_params(const struct hone_session_params *p);
/* Where mpirun gave each process some processors, one device takes those of all processes here: from here to the leave the
 * calling thread, and what it starts, may run on them. The leave may be called without. */
struct one_device_place {
    bool moved;
    cpu_set_t before;
};
void one_device_enter(struct one_device_place *p);
void one_device_leave(struct one_device_place *p);

#endif
