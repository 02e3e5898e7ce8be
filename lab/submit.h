/* submit.h: a result for a public leaderboard, from records of the journal alone; and whether such a payload, whosever, holds
 * what it must. */
#ifndef LAB_SUBMIT_H
#define LAB_SUBMIT_H

#include "lab/journal.h"

enum { SUBMIT_LEAST_SAMPLES = 3, SUBMIT_SCHEMA = 2 };

/* The payload of a bench run that generates (tgN, or pgP,N). notes: what there is to say beside; NULL: nothing. HONE_ECHECK
 * with the reason: not ended, not verified, quality that differs and is not spoken of, samples that are missing, diagnostics, a
 * chain that does not hold. */
int submit_make(struct journal *j, int64_t run, const char *notes, json_t **payload, struct hone_error *e);
/* What is wrong with a payload, sentences; empty: nothing. NULL: no memory. Whatever follows from other fields is derived again
 * and compared; everything else has a type and a range; a field that is none of a payload's is wrong. */
json_t *submit_check(const json_t *payload);

/* What both sides derive. Tokens a second of the median sample, less what `prompts` (or NULL) says of it; 0: no such times. */
double submit_speed(const json_t *samples, const json_t *prompts, double tokens);
/* The type that most bytes are in; "": of nothing. */
const char *submit_quantisation(const json_t *bytes);

#endif
