/* tier_judging.h: what the files that judge a recipe by a tier share: the runs that were chosen, and how a rule's answer is
 * said. */
#ifndef LAB_TIER_JUDGING_H
#define LAB_TIER_JUDGING_H

#include "lab/tier.h"

enum { BENCH, VERIFY, AB, N_KINDS };

struct judging {
    struct tier_result *out;
    const struct tier *tier;
    const struct recipe *recipe;
    struct journal *j;
    const struct tier_claim *claim;
    json_t *runs[N_KINDS]; /* NULL: none; owned */
    int candidate;         /* of the comparison: 1, 2, ... */
    json_t *arms;          /* of the comparison: identities; owned */
    json_t *best;          /* the decision of the tier's last promotion; NULL: none; owned */
    struct recipe best_recipe;
    struct hone_error *e;
};

int tier_say(struct judging *g, enum tier_answer answer, const json_t *run, const char *rule, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A list within the run's notes: "sides" of verify, "identities" of ab, "said" of ab. New reference or NULL. */
int tier_noted(struct judging *g, const json_t *run, const char *key, json_t **list);

/* tier_arms.c: what the sides of the verify run and the arms of the comparison were told. */
int tier_check_sides(struct judging *g);
int tier_check_arms(struct judging *g);

static inline const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

#endif
