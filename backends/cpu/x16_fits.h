/* x16_fits.h: which nodes the kernels on packed weights take. */
#ifndef BACKENDS_CPU_X16_FITS_H
#define BACKENDS_CPU_X16_FITS_H

#include "backends/backend.h"

/* n is a mul_mat that a kernel of `layout`, reading its activation in the given format, can run once W is packed and X, which
 * may still be f32, quantised. */
bool x16_fits(const struct layout *layout, enum format_id activation, const struct node *n, struct reason *r);

#endif
