/* gate_up_glu.c: the fused op gate_up_glu: gate and up products of one activation, and the glu of both. src[0] gate W [k, m];
 * src[1] X [k, n]; src[2] up W [k, m]. parts[2] is the glu; which of parts[0] and parts[1] is gate says their src[0]. Params:
 * struct glu_params. Its reference is its parts. */
#include "ops/glu.h"
#include "ops/ops.h"

const struct op_desc op_gate_up_glu = {
    .name = "gate_up_glu",
    .fused = true,
    .min_src = 3,
    .max_src = 3,
    .params_size = sizeof(struct glu_params),
    .params = glu_param_list,
    /* That of mul_mat for each factor; the activation's slope is at most 1.1, and the product of two values adds
     * their errors. */
    .tolerance = 1e-9,
};
