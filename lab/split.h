/* split.h: how a session's model is split over its devices, as lines and as JSON: what inspect, trace and bench show. */
#ifndef LAB_SPLIT_H
#define LAB_SPLIT_H

#include "engine/engine.h"

#include <jansson.h>
#include <stdio.h>

/* {"mode", "devices": [{"threads", "weight_bytes", "mirrored_bytes", "kv_bytes", "state_bytes", "value_bytes"}], "weights":
 * [{"name", "how", "why", "total", "parts", "tensors", "bytes"}]}; null where the model is not split. NULL: out of memory. */
json_t *split_json(const struct hone_session *s);
/* A line a device and a line a kind of weight. Nothing where the model is not split. */
void split_print(const struct hone_session *s, FILE *to);

#endif
