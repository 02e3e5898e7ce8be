/* texts.h: what models are fed to compare two ways of running them: short texts of different kinds, the same in every release, or random ids
 * where a model has no vocabulary or random weights. */
#ifndef LAB_TEXTS_H
#define LAB_TEXTS_H

#include "engine/engine.h"
#include "lab/compare.h"

struct sequence {
    int32_t *ids; /* malloc'd */
    size_t n;
};

enum { N_TEXTS = 12 };

/* The first n_texts texts (at most N_TEXTS) as ids, each cut to max_tokens and at least 2; random ids of that length for a model
 * without a vocabulary. *list is malloc'd, to be freed by texts_free. */
int texts_encode(struct sequence **list, int n_texts, size_t max_tokens, const struct hone_model *m, struct hone_error *e);
void texts_free(struct sequence *list, int n_texts);
/* The model's weights are random (hone synth made it): its top tokens mean nothing, only logit errors do. */
bool model_is_synthetic(const struct hone_model *m);
/* comparison_judge, but of a synthetic model only the errors count. */
void comparison_judge_for(struct comparison *c, const struct hone_model *m, double kl_bound);

#endif
