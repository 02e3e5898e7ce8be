/* outline.h: what a model would run on here, without running it or touching its weights. */
#ifndef LAB_OUTLINE_H
#define LAB_OUTLINE_H

#include "engine/engine.h"

#include <jansson.h>

/* {"decode": [{op, format, kernel, nodes, reason, passed_over: [{variant, reason}]}], a row for each op, weight format and kernel;
 * "sizes": {weight_bytes_per_token, kv_bytes_per_position, kv_format, delta_state_bytes, conv_state_bytes}, of one sequence; "left_out": what of
 * the file has no part in the model, "" for nothing}. NULL and *e on failure. */
json_t *outline(const struct hone_model *m, struct hone_error *e);

#endif
