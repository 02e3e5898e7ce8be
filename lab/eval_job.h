/* eval_job.h: one line of `hone eval --jobs`: tokens that a session is fed, and what is wanted of them. With it a comparison
 * (lab/verify.h) opens a model once for many texts, and may look into a run of another program.
 *
 * A job is an object:
 *   tokens   ids, at least one
 *   prefill  so many of them are fed together, the rest one at a time (absent: all together)
 *   greedy   then so many greedy tokens
 *   logits   path: the logits of the positions from `from` on, raw f32, a row of n_vocab each, are written there
 *   from     the first position whose logits are wanted (absent: the last)
 *   nodes    object: {step, file, first, bytes}: what every node left in that step is listed, and written (lab/node_dump.h);
 * step 0 is the prefill, 1 the first single token. The job ends behind it. The answer: {greedy: [ids], rows: N, logits_hash:
 * "...", nodes: [...]}; logits_hash is of all logits that were wanted, and of those that the greedy tokens were chosen by. */
#ifndef LAB_EVAL_JOB_H
#define LAB_EVAL_JOB_H

#include "engine/engine.h"

#include <jansson.h>

/* Sequence 0 is emptied first. HONE_EINPUT says what is wrong with the job. *answer: a new reference. */
int eval_job_run(struct hone_session *s, const struct hone_model *m, const json_t *job, json_t **answer, struct hone_error *e);
/* The formats of the session's cache, as its plans have them. */
int session_kv_formats(struct hone_session *s, const char **k, const char **v, struct hone_error *e);

#endif
