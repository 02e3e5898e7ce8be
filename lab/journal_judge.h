/* journal_judge.h: what is concluded from the samples of a journal, always anew: two runs beside each other, changes in
 * histories, the verdict of a run. Nothing here is stored. */
#ifndef LAB_JOURNAL_JUDGE_H
#define LAB_JOURNAL_JUDGE_H

#include "lab/changepoint.h"
#include "lab/journal.h"

/* ---- two runs */

enum judged { JUDGED_UNCLEAR, JUDGED_BETTER, JUDGED_WORSE };
const char *judged_name(enum judged j);

struct journal_contrast {
    char *series;
    size_t n_a, n_b; /* 0: the run has no such series */
    double median_a, median_b;
    bool has_ratio;       /* all values are positive */
    double ratio, lo, hi; /* of B to A: 1.03 is 3 % more; the interval's ends 0 and infinite when samples are too few */
    enum judged word;     /* the whole interval on one side of 1; of the direction that the series' unit has */
};
/* Every series that one of the runs has. level: 0.99. Runs are not interleaved: what the machine did between them is in the
 * ratio. */
int journal_compare(struct journal *j, int64_t a, int64_t b, double level, struct journal_contrast **list, size_t *n,
                    struct hone_error *e);
void journal_contrasts_free(struct journal_contrast *list, size_t n);
/* How two runs (of journal_get) differ in who took part and what was asked: a new array of {"what": "build.commit", "a":,
 * "b":}. */
json_t *journal_differences(const json_t *a, const json_t *b);

/* ---- histories */

struct journal_trend {
    const struct journal_history *history;
    struct changepoint *changes;
    size_t n;
    double correlation; /* of neighbours, around the levels found: far from 0, false alarms are more frequent than alpha */
    bool correlated;    /* it is beyond what chance gives */
    bool worse;         /* the newest change is for the worse, by more than the margin */
};
/* One for each history, in its order. alpha: the chance of a false alarm in all of them together. margin: 0.005. */
int journal_regress(const struct journal_histories *h, double alpha, double margin, struct journal_trend **list,
                    struct hone_error *e);
void journal_trends_free(struct journal_trend *list, size_t n);

/* ---- verdicts */

/* The verdict of a run (of journal_get) from its samples and checks alone. *verdict: a new object, or NULL where nothing is
 * derived for its kind; *agrees: the one that was recorded, if any, says the same. */
int journal_rederive(struct journal *j, const json_t *run, json_t **verdict, bool *agrees, struct hone_error *e);

#endif
