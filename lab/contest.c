/* contest.c: who tries twenty changes at 1 % finds one that "wins" by luck every few tries; who then quotes the luckiest figure
 * quotes the luck too. So win and loss among several candidates must pass Holm's rule, which keeps the chance of any false one
 * at 1 % in all, and what is quoted of a winner is its confirmation: samples that had no part in choosing it.
 *
 * Each candidate is compared with its own samples of the base. Sharing the base's samples among all (A B C C B A) would save a
 * third of the time for two candidates; but then a slow moment of the base flatters every candidate at once, blocks grow with
 * the number of candidates, and drift within them with the square. */
#include "lab/contest.h"

#include "lab/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *match_kind_name(enum match_kind k)
{
    static const char *const names[] = {"aa", "trial", "confirm"};
    return names[k];
}

struct ring {
    const struct contest_source *from;
    int candidate;
};

static int ring_sample(void *user, bool candidate, struct ab_sample *s, struct hone_error *e)
{
    const struct ring *r = user;
    return r->from->sample(r->from->user, candidate ? r->candidate : 0, s, e);
}

static int ring_each(void *user, const struct ab_sample *s, const struct ab_result *so_far)
{
    const struct ring *r = user;
    return r->from->each(r->from->user, s, so_far);
}

static int fight(struct contest *c, enum match_kind kind, int candidate, const struct contest_rules *rules,
                 const struct contest_source *from, struct match **out, struct hone_error *e)
{
    struct match *m = &c->matches[c->n_matches++];
    struct ring ring = {from, candidate};
    struct ab_source source = {&ring, ring_sample, from->each ? ring_each : NULL};
    *m = (struct match){.kind = kind, .candidate = candidate, .rules = rules->ab};
    *out = m;
    m->rules.seed += (uint64_t)c->n_matches - 1;
    m->rules.early &= kind != MATCH_AA; /* the noise is what is asked for: more of it is known after all blocks */
    m->rules.early_alpha /= kind == MATCH_TRIAL ? c->n_candidates : 1;
    if (from->begin && from->begin(from->user, m))
        return err_set(e, HONE_ECANCELED, "cancelled");
    int rc = ab_run(&m->result, &m->samples, &m->rules, &source, e);
    if (!rc && from->end && from->end(from->user, m))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    return rc;
}

/* Wins and losses that Holm's rule does not grant are unclear. */
static void hold_back(struct contest *c, double alpha)
{
    double p[CONTEST_MAX];
    bool granted[CONTEST_MAX];
    for (int i = 0; i < c->n_candidates; i++)
        p[i] = c->standings[i].match->result.p;
    stats_holm(p, c->n_candidates, alpha, granted);
    for (int i = 0; i < c->n_candidates; i++) {
        struct standing *s = &c->standings[i];
        if ((s->outcome != AB_WIN && s->outcome != AB_LOSS) || granted[i])
            continue;
        snprintf(s->why, sizeof s->why, "alone a %s (p = %.4f), but one of %d candidates: Holm's rule does not grant it",
                 ab_outcome_name(s->outcome), p[i], c->n_candidates);
        s->outcome = AB_UNCLEAR;
    }
}

static int confirm(struct contest *c, int i, const struct contest_rules *rules, const struct contest_source *from,
                   struct hone_error *e)
{
    struct match *m;
    struct standing *s = &c->standings[i];
    int rc = fight(c, MATCH_CONFIRM, i + 1, rules, from, &m, e);
    if (rc) {
        s->outcome = AB_UNCLEAR; /* a winner that nobody confirmed is none */
        snprintf(s->why, sizeof s->why, "a win whose confirmation did not come to its end");
        return rc;
    }
    s->match = m;
    if (m->result.outcome != AB_WIN) {
        snprintf(s->why, sizeof s->why, "a win that its confirmation does not bear out: %s",
                 ab_outcome_name(m->result.outcome));
        s->outcome = AB_UNCLEAR;
    }
    return 0;
}

int contest_run(struct contest *c, const struct contest_rules *rules, int n_candidates, const struct contest_source *from,
                struct hone_error *e)
{
    struct match *m;
    *c = (struct contest){0};
    int rc = ab_rules_check(&rules->ab, e);
    if (rc)
        return rc;
    if (n_candidates < (rules->aa ? 0 : 1) || n_candidates > CONTEST_MAX)
        return err_set(e, HONE_EUSAGE, "%d candidates; 1 to %d are possible", n_candidates, CONTEST_MAX);
    c->matches = calloc(2 * (size_t)n_candidates + 1, sizeof *c->matches);
    c->standings = calloc((size_t)n_candidates + 1, sizeof *c->standings);
    if (!c->matches || !c->standings)
        return err_set(e, HONE_ERESOURCE, "no memory for %d candidates", n_candidates);
    c->n_candidates = n_candidates; /* the trials share out the sequences' error by it */
    if (rules->aa) {
        rc = fight(c, MATCH_AA, 0, rules, from, &m, e);
        c->floor = fmax(fabs(m->result.gain.lo), fabs(m->result.gain.hi));
        c->aa_failed = m->result.outcome == AB_WIN || m->result.outcome == AB_LOSS;
    }
    int n = 0; /* trials that came to their end */
    for (; n < n_candidates && !rc; n += !rc) {
        rc = fight(c, MATCH_TRIAL, n + 1, rules, from, &m, e);
        c->standings[n] = (struct standing){.outcome = m->result.outcome, .match = m};
    }
    c->n_candidates = n;
    for (int i = 0; i < n && rc; i++) { /* nobody can say what Holm's rule would have granted */
        c->standings[i].outcome = AB_UNCLEAR;
        snprintf(c->standings[i].why, sizeof c->standings[i].why, "not all candidates were compared");
    }
    if (n > 1 && !rc)
        hold_back(c, 1 - rules->ab.level);
    for (int i = 0; i < n && !rc; i++)
        if (c->standings[i].outcome == AB_WIN && (n > 1 || rules->confirm))
            rc = confirm(c, i, rules, from, e);
    return rc;
}

void contest_free(struct contest *c)
{
    for (int i = 0; i < c->n_matches; i++)
        ab_samples_free(&c->matches[i].samples);
    free(c->matches);
    free(c->standings);
    *c = (struct contest){0};
}
