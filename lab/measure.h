/* measure.h: one throughput test on one session: what llama-bench calls pp (a prompt in batches), tg (single tokens) and pg
 * (one after the other), behind a context of a given depth. `bench` uses it, and `ab --in-process` on two sessions in turn.
 *
 * A sample is the test's work and two or three readings of the clock, nothing else: ids are drawn before, hashes are taken in a
 * run of their own. As in llama-bench the ids are random (the first is the model's bos), so no sample pays for choosing a
 * token, and every run of a test computes the same. */
#ifndef LAB_MEASURE_H
#define LAB_MEASURE_H

#include "base/hash.h"
#include "engine/engine.h"

struct measure_test {
    int32_t n_prompt, n_gen; /* tg: n_prompt 0; pp: n_gen 0 */
    int32_t n_depth;         /* positions in the context before */
    int32_t n_batch; /* tokens a call while prefilling, each with the logits of its last; the session cuts a call in steps of
                        its own n_batch */
};

/* What a session's sequence 0 holds of the depth's ids, kept by the caller for one session, zero at first: a sweep over depths
 * then prefills each position once. */
struct measure_prefix {
    int32_t length;
    int32_t step; /* tokens a step it was filled with */
};

struct measure;

/* Draws the ids and fills sequence 0 to the test's depth. The session, made with the params p and an n_ctx of at least the
 * test's sum, stays the caller's and serves no one else until measure_close. Every call below leaves the sequence at the depth,
 * also on failure. prefix NULL: filled from nothing. */
int measure_open(struct measure **out, struct hone_session *s, const struct hone_session_params *p, const struct hone_model *m,
                 const struct measure_test *t, struct measure_prefix *prefix, struct hone_error *e);
void measure_close(struct measure *t); /* NULL is allowed */

struct measure_output {
    struct sha256 output; /* of, for each position with logits: the id of its largest logit (int32, little-endian), then the
                             SHA-256 of the logits */
    struct sha256 tokens; /* of the ids of the largest logits alone */
    size_t n;             /* positions with logits */
    bool nan;             /* some logit was no finite number */
};
/* An untimed run of the test with all logits looked at. */
int measure_hash(struct measure *t, struct measure_output *out, struct hone_error *e);

struct measure_sample {
    int64_t ns;        /* the whole test */
    int64_t first_ns;  /* until the first logits: of pp and pg the whole prompt, of tg the first token */
    int64_t prompt_ns; /* the prompt's part; 0: none */
    bool same;         /* the last logits are, bit for bit, those that measure_hash saw; true before any hash */
};
/* One timed run of the test. */
int measure_once(struct measure *t, struct measure_sample *out, struct hone_error *e);
/* One untimed step of one token, which reads every weight: to be called when something else (a reading of the roof, another
 * session) has had the caches since the last run. */
int measure_settle(struct measure *t, struct hone_error *e);

/* Warm-up goes on until two rounds in succession agree within tolerance. */
struct warm_rule {
    double tolerance; /* of the shorter round */
    int max_rounds;   /* at least 2 */
    int64_t max_ns;   /* from the third round on: no further one when this much is spent */
};
struct warmth {
    int rounds;
    bool stable; /* the last two agreed; false: they never did */
    double gap;  /* between the last two, of the shorter */
    int64_t ns;  /* spent */
};
struct warm_rule warm_defaults(void); /* the figures and their reasons are in measure.c */
/* One round: its own time in *ns. */
typedef int warm_fn(void *user, int64_t *ns, struct hone_error *e);
int warm_up(struct warmth *w, const struct warm_rule *r, warm_fn *round, void *user, struct hone_error *e);
/* warm_up by runs of the test itself; of a long generation only its first tokens. */
int measure_warm(struct measure *t, const struct warm_rule *r, struct warmth *w, struct hone_error *e);

#endif
