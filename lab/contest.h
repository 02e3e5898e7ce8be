/* contest.h: one or several candidates against one base: the machine's own noise first, then each candidate's comparison, then,
 * where several were tried, Holm's rule and a fresh run that confirms each winner. */
#ifndef LAB_CONTEST_H
#define LAB_CONTEST_H

#include "lab/ab.h"

struct contest_rules {
    struct ab_rules ab;
    bool aa;      /* the base against itself first */
    bool confirm; /* a lone winner is confirmed too; one of several always is */
};

enum match_kind { MATCH_AA, MATCH_TRIAL, MATCH_CONFIRM };

struct match {
    enum match_kind kind;
    int candidate;         /* from 1; 0 in MATCH_AA: arm B is the base too */
    struct ab_rules rules; /* with a seed of its own */
    struct ab_samples samples;
    struct ab_result result;
    bool whole; /* it came to its end */
};

struct standing {
    enum ab_outcome outcome;
    const struct match *match; /* whose figures these are: the trial's, or the confirmation's */
    char why[200];             /* where the outcome is not that of the match: who took it back; else "" */
};

enum { CONTEST_MAX = 16, CONTEST_MATCHES = 2 * CONTEST_MAX + 1 };

struct contest {
    int n_candidates;      /* that were to be compared */
    bool confirm;          /* a lone winner must be confirmed too */
    struct match *matches; /* in the order in which they were fought */
    int n_matches;
    struct standing standings[CONTEST_MAX]; /* of candidate i at i - 1 */
    int n_standings;                        /* candidates that were compared */
    uint64_t diagnostics; /* a bit an arm, the base's is 1: its speed is no result, whatever was measured */
    double floor;   /* the A/A interval reaches so far from 0: smaller differences are not told here; 0: not measured */
    bool aa_failed; /* the base was called faster or slower than itself: nothing measured here is to be trusted */
};

struct contest_source {
    void *user;
    int (*begin)(void *user, const struct match *m); /* these two may be NULL; non-zero ends the contest with HONE_ECANCELED */
    int (*end)(void *user, const struct match *m);   /* not after a failure */
    int (*sample)(void *user, int arm, struct ab_sample *s, struct hone_error *e);      /* arm 0: the base */
    int (*each)(void *user, const struct ab_sample *s, const struct ab_result *so_far); /* as in ab_source */
};

/* After a failure *c holds the matches that were fought, the last one maybe in part, and standings only of those. contest_free
 * in any case. */
int contest_run(struct contest *c, const struct contest_rules *rules, int n_candidates, const struct contest_source *from,
                struct hone_error *e);
void contest_free(struct contest *c);
/* The standings, the noise floor and aa_failed from the matches alone: what contest_run gives, and the same again from a
 * journal. */
void contest_judge(struct contest *c);
/* All outcomes in a few words: "win", "loss, unclear", "A/A: unclear". Returns text. */
char *contest_verdict(const struct contest *c, char *text, size_t size);
const char *match_kind_name(enum match_kind k); /* "aa", "trial", "confirm" */

#endif
