/* roof.h: how fast the weights of a step could be read: by the host's cores, or by the device that most nodes run on. */
#ifndef LAB_ROOF_H
#define LAB_ROOF_H

#include "graph/plan.h"

/* The place, other than the host, where most nodes of the plan run; NULL: most run on the host. */
const struct place *roof_place(const struct plan *p);
/* The read rate of a device's place, measured now, in bytes a second; 0: nobody knows. */
int roof_device(const struct place *at, double *bytes_per_second, struct hone_error *e);

#endif
