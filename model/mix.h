/* mix.h: which weight format each tensor of a model gets under a type name such as "Q4_K_M". Converting a file and making a
 * synthetic one ask the same table, so both look like the files that people download. */
#ifndef MODEL_MIX_H
#define MODEL_MIX_H

#include "formats/formats.h"

struct mix; /* a row of the table; static */

/* By name in any case ("q4_k_m"); NULL when there is none. */
const struct mix *mix_find(const char *name);
/* "F32, F16, ..., Q4_K_M, ..." */
const char *mix_names(void);
const char *mix_name(const struct mix *m);
/* The number that files carry as general.file_type. */
uint32_t mix_file_type(const struct mix *m);

/* What the rules look at beside a tensor itself. */
struct mix_model {
    int n_layer;
    int gqa;   /* query heads a KV head */
    bool tied; /* the file has no output.weight: the embedding is the head too */
};

/* The format of a tensor; *wanted, unless NULL, is what it would be if its rows divided by that format's block. -1: it stays as
 * it is (norms, biases, everything of one dimension, routers). */
int mix_format(const struct mix *m, const struct mix_model *model, const char *name, int n_dims, const int64_t *ne,
               enum format_id *wanted);

#endif
