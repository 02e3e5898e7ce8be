/* ab.h: what hone ab prints (ab_print.c), apart from how it comes about (ab.c). */
#ifndef CMD_AB_H
#define CMD_AB_H

#include "lab/contest.h"
#include "lab/machine.h"
#include "lab/rig.h"

struct ab_report {
    const struct rig *rig;
    const struct contest *contest;
    const struct contest_rules *rules;
    const char *verified[CONTEST_MAX + 1]; /* the class that hone verify gave a candidate; NULL: it was not asked */
    json_t **differences;                  /* of each candidate against the base; NULL for the base */
    double seconds;                        /* spent on samples */
    int64_t samples;
    struct machine_change change;
    json_t *warnings;
};

/* "B", or "B2" of several. */
const char *ab_name(const struct ab_report *r, int candidate, char *text, size_t size);
/* The arms and the test, before anything is measured. */
void ab_print_arms(const struct ab_report *r);
/* How long it will take, on stderr. */
void ab_tell_duration(const struct ab_report *r);
/* A match as it ends. */
void ab_print_match(const struct ab_report *r, const struct match *m);
/* The verdicts. */
void ab_print_end(const struct ab_report *r);
/* All of it. */
json_t *ab_report_json(const struct ab_report *r);
/* Whether nothing qualifies a candidate's verdict. */
bool ab_is_plain(const struct ab_report *r, int candidate);
/* A candidate's verdict in words: "win", "win, output differs: verify", "unclear", ... */
const char *ab_verdict(const struct ab_report *r, int candidate, char *text, size_t size);

#endif
