/* brief.h: what a worker needs to know of a task, on one page. */
#ifndef LAB_BRIEF_H
#define LAB_BRIEF_H

#include "lab/journal.h"
#include "lab/queue.h"
#include "lab/tier.h"

#include <stdio.h>

/* What was tried before: of this task, and in runs of the journal that are of the task, or of its model and series, or that
 * share its hypothesis. j and tiers may be NULL. A new object: task, events, related (other tasks of the same model and series
 * that ended), runs (newest first: id, at, kind, hypothesis, gates, what), recipe (text, from), best, or base (text), which the
 * first of a tier has to beat. */
int brief_make(struct queue *q, struct journal *j, int64_t id, const struct tiers *tiers, json_t **brief, struct hone_error *e);
/* As a page of text; control characters that came from elsewhere are '?'. */
void brief_write(const json_t *brief, FILE *to);

#endif
