/* shapes.h: cases in the sizes of real models: what check --perf times beside the ops' own cases. */
#ifndef LAB_SHAPES_H
#define LAB_SHAPES_H

#include "ops/ops.h"

/* The shapes of an op; *n may be 0. */
const struct op_case *shapes_of(enum op op, int *n);

#endif
