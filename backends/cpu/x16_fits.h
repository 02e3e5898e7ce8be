/* x16_fits.h: which nodes the kernels on x16 layouts take. */
#ifndef BACKENDS_CPU_X16_FITS_H
#define BACKENDS_CPU_X16_FITS_H

#include "backends/backend.h"

/* n is a mul_mat that a kernel of `layout` with an A8 activation can run once W is packed and X quantised. */
bool x16_fits(const struct layout *layout, const struct node *n, struct reason *r);

#endif
