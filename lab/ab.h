/* ab.h: a paired, interleaved comparison of two arms: when each is measured, and what the samples say. Where a sample comes
 * from is the caller's (arm.h: a fresh process, or a new session; in tests a formula).
 *
 * Blocks of four samples, A B B A and B A A B in turns, so that a drift of the machine falls out of each block; a seeded coin
 * says which of the two kinds opens each later couple of blocks, so that no rhythm of the machine can keep step with it. The
 * log-ratio of a block is what is averaged. */
#ifndef LAB_AB_H
#define LAB_AB_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AB_BLOCK = 4, AB_MIN_BLOCKS = 8, AB_MAX_BLOCKS = 1000 };

struct ab_sample {
    int block, position; /* position in the block, 0 to 3 */
    bool candidate;      /* of arm B */
    double ns;           /* what the test took */
    char output[65];     /* SHA-256 of what it computed; "": unknown */
};

struct ab_rules {
    int blocks;         /* taken when nothing ends the run before; AB_MIN_BLOCKS to AB_MAX_BLOCKS */
    bool early;         /* end when the always-valid sequence decides */
    double level;       /* of the interval that decides at the end: 0.99 */
    double early_alpha; /* the chance that the sequence is ever wrong: 0.01 */
    double margin;      /* differences up to this share do not matter: 0.005 */
    uint64_t seed;      /* of the block order and the bootstrap */
};
struct ab_rules ab_defaults(void);
/* 0, or HONE_EUSAGE with what is wrong. */
int ab_rules_check(const struct ab_rules *r, struct hone_error *e);

/* Whether position `position` of block `block` is arm B's. */
bool ab_order(uint64_t seed, int block, int position);

enum ab_outcome { AB_UNCLEAR, AB_WIN, AB_LOSS, AB_SAME };
const char *ab_outcome_name(enum ab_outcome o); /* "unclear", "win", "loss", "no difference" */
enum ab_outputs {
    AB_OUTPUTS_UNKNOWN,
    AB_OUTPUTS_EQUAL,
    AB_OUTPUTS_DIFFER,  /* each arm always computes the same, but not the same as the other */
    AB_OUTPUTS_UNSTABLE /* an arm computed now this, now that: what it was is not known */
};
const char *ab_outputs_name(enum ab_outputs o); /* "unknown", "identical", "differ", "unstable" */

/* Shares: 0.03 is 3 %. An end that nothing bounds is infinite. */
struct ab_span {
    double centre, lo, hi;
};

struct ab_result {
    enum ab_outcome outcome;
    int n_blocks;            /* complete ones */
    bool early;              /* the sequence decided */
    bool moved;              /* no one effect fits all the samples: it changed during the run; the outcome is then unclear */
    struct ab_span gain;     /* by how much B is faster: the bootstrap interval */
    struct ab_span sequence; /* the same by the always-valid sequence; it has no centre of its own */
    double p;                /* of no effect beyond the margin; 1 when the centre is within */
    double signed_rank;      /* p of Wilcoxon's test of no effect at all, for comparison */
    struct ab_span position; /* by how much the second of a pair takes longer, whichever arm it is */
    double drift;            /* arm A: how much longer its samples took in the last third than in the first */
    double noise;            /* of one block's ratio: half the middle 68 % */
    double more_blocks;      /* AB_UNCLEAR: about so many more would tell, if the samples to come are like these; else 0 */
    double a_ns, b_ns;       /* medians */
    enum ab_outputs outputs;
};

/* The verdict from the samples of whole blocks alone: what ab_run gives, and the same again from a journal. In the order in
 * which they were taken; a last block that is not complete is left out. With fewer than AB_MIN_BLOCKS blocks all is unclear. */
int ab_judge(struct ab_result *r, const struct ab_sample *samples, size_t n, const struct ab_rules *rules,
             struct hone_error *e);
json_t *ab_result_json(const struct ab_result *r);
json_t *ab_rules_json(const struct ab_rules *r);
json_t *ab_sample_json(const struct ab_sample *s);
/* What those wrote. HONE_EINPUT with what is wrong. */
int ab_rules_parse(struct ab_rules *r, const json_t *j, struct hone_error *e);
int ab_sample_parse(struct ab_sample *s, const json_t *j, struct hone_error *e);

struct ab_samples {
    struct ab_sample *list; /* malloc'd */
    size_t n;
};

struct ab_source {
    void *user;
    /* Takes one sample of arm B (candidate) or A: fills ns and output. */
    int (*sample)(void *user, bool candidate, struct ab_sample *s, struct hone_error *e);
    /* Told of each, with the result so far after each block (else NULL), for progress alone: it decides nothing. A non-zero
     * return ends the run with HONE_ECANCELED. May be NULL. */
    int (*each)(void *user, const struct ab_sample *s, const struct ab_result *so_far);
};
/* Measures and judges. What was sampled is in *samples also after a failure, with the verdict of its whole blocks in *r. */
int ab_run(struct ab_result *r, struct ab_samples *samples, const struct ab_rules *rules, const struct ab_source *from,
           struct hone_error *e);
void ab_samples_free(struct ab_samples *s);

#endif
