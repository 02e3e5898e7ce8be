/* ab_record.h: a comparison in the journal: raw samples as they are taken, and the verdict derived again from them. */
#ifndef LAB_AB_RECORD_H
#define LAB_AB_RECORD_H

#include "lab/contest.h"
#include "lab/journal.h"

/* A match begins: its kind, candidate and rules, and of how many candidates. index: which of the run it is, from 0. */
int ab_record_match(struct journal *j, int64_t run, int index, const struct match *m, const struct contest *of,
                    struct hone_error *e);
/* One sample, as tokens a second of the series "<match> <arm> <test> t/s", with all that ab_judge needs. tokens: of one run of
 * the test. */
int ab_record_sample(struct journal *j, int64_t run, int index, const struct match *m, const struct ab_sample *s,
                     const char *test, double tokens, struct hone_error *e);
/* A new object with "verdict" (contest_verdict), "matches" and "standings", derived from the samples alone by the rules that
 * were recorded before them. A match that was broken off says what its whole blocks say. */
int ab_record_derive(struct journal *j, int64_t run, json_t **derived, struct hone_error *e);
/* The same of a contest that was just fought. */
json_t *ab_record_verdict(const struct contest *c);

#endif
