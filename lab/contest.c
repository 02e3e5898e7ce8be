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
                 const struct contest_source *from, struct hone_error *e)
{
    struct match *m = &c->matches[c->n_matches++];
    struct ring ring = {from, candidate};
    struct ab_source source = {&ring, ring_sample, from->each ? ring_each : NULL};
    *m = (struct match){.kind = kind, .candidate = candidate, .rules = rules->ab};
    m->rules.seed += (uint64_t)c->n_matches - 1;
    m->rules.early &= kind != MATCH_AA; /* the noise is what is asked for: more of it is known after all blocks */
    m->rules.early_alpha /= kind == MATCH_TRIAL ? c->n_candidates : 1;
    if (from->begin && from->begin(from->user, m))
        return err_set(e, HONE_ECANCELED, "cancelled");
    int rc = ab_run(&m->result, &m->samples, &m->rules, &source, e);
    m->whole = !rc;
    if (!rc && from->end && from->end(from->user, m))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    return rc;
}

static void take_back(struct standing *s, const char *why)
{
    s->outcome = AB_UNCLEAR;
    snprintf(s->why, sizeof s->why, "%s", why);
}

/* Wins and losses that Holm's rule does not grant are unclear; and while not all trials were fought, nobody can say what it
 * would grant. */
static void hold_back(struct contest *c)
{
    double p[CONTEST_MAX];
    bool granted[CONTEST_MAX];
    for (int i = 0; i < c->n_standings; i++)
        p[i] = c->standings[i].match->result.p;
    stats_holm(p, c->n_standings, c->n_standings ? 1 - c->standings[0].match->rules.level : 0, granted);
    for (int i = 0; i < c->n_standings && c->n_candidates > 1; i++) {
        struct standing *s = &c->standings[i];
        char why[sizeof s->why];
        if (s->outcome != AB_WIN && s->outcome != AB_LOSS)
            continue;
        snprintf(why, sizeof why, "alone a %s (p = %.4f), but one of %d candidates: Holm's rule does not grant it",
                 ab_outcome_name(s->outcome), p[i], c->n_candidates);
        if (c->n_standings < c->n_candidates)
            take_back(s, "not all candidates were compared");
        else if (!granted[i])
            take_back(s, why);
    }
}

static bool wants_confirmation(const struct contest *c, const struct standing *s)
{
    return s->outcome == AB_WIN && (c->n_candidates > 1 || c->confirm);
}

static void trials(struct contest *c)
{
    c->n_standings = 0;
    c->floor = 0;
    c->aa_failed = false;
    for (int i = 0; i < c->n_matches; i++) {
        const struct match *m = &c->matches[i];
        const struct ab_span *gain = &m->result.gain;
        if (m->kind == MATCH_AA) {
            c->floor = fmax(fabs(gain->lo), fabs(gain->hi));
            c->aa_failed = m->result.outcome == AB_WIN || m->result.outcome == AB_LOSS;
        } else if (m->kind == MATCH_TRIAL && (m->whole || c->n_candidates == 1) && m->candidate == c->n_standings + 1) {
            c->standings[c->n_standings++] = (struct standing){.outcome = m->result.outcome, .match = m};
        }
    }
    hold_back(c);
}

void contest_judge(struct contest *c)
{
    trials(c);
    for (int i = 0; i < c->n_standings; i++) {
        struct standing *s = &c->standings[i];
        const struct match *again = NULL;
        char why[sizeof s->why];
        for (int k = 0; k < c->n_matches; k++)
            if (c->matches[k].kind == MATCH_CONFIRM && c->matches[k].candidate == i + 1)
                again = &c->matches[k];
        if (!wants_confirmation(c, s))
            continue;
        if (!again || !again->whole) {
            take_back(s, "a win whose confirmation did not come to its end");
            continue;
        }
        s->match = again;
        snprintf(why, sizeof why, "a win that its confirmation does not bear out: %s", ab_outcome_name(again->result.outcome));
        if (again->result.outcome != AB_WIN)
            take_back(s, why);
    }
}

char *contest_verdict(const struct contest *c, char *text, size_t size)
{
    size_t n = 0;
    *text = 0;
    if (!c->n_standings && c->n_matches && c->matches[0].kind == MATCH_AA)
        snprintf(text, size, "A/A: %s", ab_outcome_name(c->matches[0].result.outcome));
    for (int i = 0; i < c->n_standings && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", ab_outcome_name(c->standings[i].outcome));
    return text;
}

int contest_run(struct contest *c, const struct contest_rules *rules, int n_candidates, const struct contest_source *from,
                struct hone_error *e)
{
    *c = (struct contest){.n_candidates = n_candidates, .confirm = rules->confirm};
    int rc = ab_rules_check(&rules->ab, e);
    if (rc)
        return rc;
    if (n_candidates < (rules->aa ? 0 : 1) || n_candidates > CONTEST_MAX)
        return err_set(e, HONE_EUSAGE, "%d candidates; 1 to %d are possible", n_candidates, CONTEST_MAX);
    c->matches = calloc(CONTEST_MATCHES, sizeof *c->matches);
    if (!c->matches)
        return err_set(e, HONE_ERESOURCE, "no memory for %d candidates", n_candidates);
    if (rules->aa)
        rc = fight(c, MATCH_AA, 0, rules, from, e);
    for (int i = 0; i < n_candidates && !rc; i++)
        rc = fight(c, MATCH_TRIAL, i + 1, rules, from, e);
    trials(c);
    for (int i = 0; i < c->n_standings && !rc; i++)
        if (wants_confirmation(c, &c->standings[i]))
            rc = fight(c, MATCH_CONFIRM, i + 1, rules, from, e);
    contest_judge(c);
    return rc;
}

void contest_free(struct contest *c)
{
    for (int i = 0; i < c->n_matches; i++)
        ab_samples_free(&c->matches[i].samples);
    free(c->matches);
    *c = (struct contest){0};
}
