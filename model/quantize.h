/* quantize.h: a GGUF file with its weights in another format. */
#ifndef MODEL_QUANTIZE_H
#define MODEL_QUANTIZE_H

#include "base/err.h"
#include "hone.h"

/* Writes the model at `in` (any part of a split one) to `out` with the weight formats of the type name `type` (model/mix.h).
 * Warns by log_line of weights that were quantised before, of rows that took a fallback format, and of values that are not
 * finite. n_threads 0: one a core. The same bytes for any number of threads. progress may be NULL; on any failure nothing is
 * left at `out`. */
int model_quantize(const char *in, const char *out, const char *type, int n_threads, hone_progress_fn *progress, void *user,
                   struct hone_error *e);

#endif
