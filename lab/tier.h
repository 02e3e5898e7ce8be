/* tier.h: named rules over a journal, and which recipe meets them.
 *
 *   tier decode
 *       model smollm2                     only runs of models with this in their name, or at the start of their hash
 *       bench tg64 t/s median >= 54       the newest bench run's median (or min, max, p1 to p99) of that series
 *       verify token-identical            the newest verify run with the recipe as side B says this class or a better one
 *       ab win                            the newest comparison with the recipe as a candidate says win; or: no-loss
 *       fallbacks 0                       the bench run has no node on a reference
 *       weights may-change                without it the weights read a token must be those of the reference
 *       base kernel.attention=ref         the recipe that the first one to be promoted has to beat; without it, hone by itself
 *
 * Runs count when they are of the recipe, of one build (that of the newest comparison, or of the newest run), ended by
 * themselves and are not superseded. Verdicts of comparisons are derived again from their samples. */
#ifndef LAB_TIER_H
#define LAB_TIER_H

#include "lab/recipe.h"
#include "lab/verify.h"

enum tier_op { TIER_GE, TIER_GT, TIER_LE, TIER_LT };
struct tier_bench {
    int line;
    char *series;
    double quantile; /* 0 min, 0.5 median, 1 max */
    enum tier_op op;
    double bound;
};
struct tier {
    char *name, *model; /* model NULL: any */
    char *base;         /* a recipe's words; NULL: none */
    int line;
    struct tier_bench *benches;
    int n_benches;
    bool has_verify, has_ab, ab_win, no_fallbacks, weights_may_change;
    enum verify_class least;
};
struct tiers {
    char *path;
    struct tier *list;
    int n;
};
/* HONE_EINPUT with file and line. tiers_free in any case. */
int tiers_read(struct tiers *t, const char *path, struct hone_error *e);
int tiers_parse(struct tiers *t, const char *text, const char *path, struct hone_error *e);
void tiers_free(struct tiers *t);
/* The rule as it is written. Returns text. */
char *tier_bench_text(const struct tier_bench *b, char *text, size_t size);
const struct tier *tiers_find(const struct tiers *t, const char *name); /* or NULL */

/* What a promotion asks beyond the tier's rules. */
struct tier_claim {
    bool promote;       /* also ask for a verified output and a control of the same build */
    const char *commit; /* the full hash of the commit that the builds must be of; NULL: the one that they say */
    /* When a commit was made, in seconds since 1970: 0, or -1 when it is not known here. NULL: nobody knows. */
    int (*commit_time)(void *user, const char *commit, int64_t *at);
    void *user;
};

enum tier_answer { TIER_PASS, TIER_FAIL, TIER_NONE }; /* NONE: nothing is recorded that says so */
const char *tier_answer_name(enum tier_answer a);
struct tier_rule {
    enum tier_answer answer;
    int64_t run; /* that says so; 0: none */
    char rule[160], why[400];
};
struct tier_result {
    bool passes;
    struct tier_rule *rules;
    int n, cap;
    int64_t runs[3];            /* bench, verify, ab; 0: none */
    char model[65], binary[65]; /* hash of the runs' model; SHA-256 of their binary */
};
/* The recipe against the tier. HONE_ECHECK: the journal itself was tampered with, with the record. tier_result_free in any
 * case. */
int tier_check(struct tier_result *out, const struct tier *t, const struct recipe *r, struct journal *j,
               const struct tier_claim *claim, struct hone_error *e);
/* Whether a run is a bench run of the recipe, a verify run with it as side B, or a comparison with it as a candidate. */
int tier_run_is_of(struct journal *j, const struct recipe *r, int64_t run, bool *is, struct hone_error *e);
void tier_result_free(struct tier_result *r);
json_t *tier_result_json(const struct tier_result *r);

/* Records that the recipe, which passed, is now the best of the tier: a run of kind "tier" with a decision. who: the
 * supervisor; task: of the queue, 0: none. HONE_ECHECK when it did not pass. */
int tier_promote(struct journal *j, const struct tier *t, const struct recipe *r, const struct tier_result *result,
                 const char *who, int64_t task, int64_t *run, struct hone_error *e);

#endif
