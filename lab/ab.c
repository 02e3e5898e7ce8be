/* ab.c: block order, verdict, and the loop that takes samples.
 *
 * In A B B A both arms stand at the same mean time, so a linear drift cancels within the block, and in the B A A B beside it
 * what is quadratic does. What stays is judged by the differences between blocks, which is what the interval is made of.
 *
 * Verdict: `win` when the whole interval lies above the margin, `loss` below it, `no difference` inside, else `unclear`. The
 * interval is the bootstrap one (bootstrap.h) of a number of blocks that was fixed beforehand. A run may end before that only
 * because the always-valid sequence (sequence.h) decides by the same rule; looking at the bootstrap interval after each block
 * and stopping when it pleases turns its 1 % into 10 %, which is why `so_far` decides nothing.
 *
 * What lost: A and B in turns, without reversal (a drift of 1 % over the run becomes an effect); all A, then all B (the same,
 * at its worst); the ratio of the medians of all samples, which pays for the machine's slow changes that the blocks take out.
 */
#include "lab/ab.h"

#include "base/rng.h"
#include "lab/bootstrap.h"
#include "lab/sequence.h"
#include "lab/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ab_rules ab_defaults(void)
{
    return (struct ab_rules){.blocks = 16, .early = true, .level = 0.99, .early_alpha = 0.01, .margin = 0.005, .seed = 1};
}

int ab_rules_check(const struct ab_rules *r, struct hone_error *e)
{
    if (r->blocks < AB_MIN_BLOCKS || r->blocks > AB_MAX_BLOCKS)
        return err_set(e, HONE_EUSAGE, "%d blocks; %d to %d are possible", r->blocks, AB_MIN_BLOCKS, AB_MAX_BLOCKS);
    if (!(r->level >= 0.5 && r->level <= 0.9999))
        return err_set(e, HONE_EUSAGE, "an interval of %g; 0.5 to 0.9999 are possible", r->level);
    if (!(r->early_alpha > 0 && r->early_alpha <= 0.5))
        return err_set(e, HONE_EUSAGE, "an error of %g for early stopping; above 0 and up to 0.5 are possible", r->early_alpha);
    if (!(r->margin >= 0 && r->margin <= 0.5))
        return err_set(e, HONE_EUSAGE, "a margin of %g; 0 to 0.5 are possible", r->margin);
    return 0;
}

bool ab_order(uint64_t seed, int block, int position)
{
    struct rng coin = rng_seed(seed ^ (uint64_t)(block / 2) * 0x9e3779b97f4a7c15u);
    bool b_opens = (block & 1) != (block >= 2 && rng_u64(&coin) >> 63);
    return (position == 1 || position == 2) != b_opens;
}

const char *ab_outcome_name(enum ab_outcome o)
{
    static const char *const names[] = {"unclear", "win", "loss", "no difference"};
    return names[o];
}

const char *ab_outputs_name(enum ab_outputs o)
{
    static const char *const names[] = {"unknown", "identical", "differ", "unstable"};
    return names[o];
}

/* ---- the verdict */

/* What a block says, in logarithms: how much faster B was, and how much longer the second of a pair took. */
struct blocks {
    double *gain, *position;
    double *a, *b; /* log times: two a block */
    int n;
};

static int blocks_make(struct blocks *k, const struct ab_sample *s, size_t n, struct hone_error *e)
{
    int n_blocks = (int)(n / AB_BLOCK);
    double *memory = calloc((size_t)n_blocks * 6 + 1, sizeof *memory);
    *k = (struct blocks){memory, memory + n_blocks, memory + 2 * n_blocks, memory + 4 * n_blocks, n_blocks};
    if (!memory)
        return err_set(e, HONE_ERESOURCE, "no memory for %d blocks", n_blocks);
    for (int i = 0; i < n_blocks; i++, s += AB_BLOCK) {
        int n_a = 0, n_b = 0;
        for (int j = 0; j < AB_BLOCK; j++) {
            double t = log(s[j].ns);
            if (s[j].block != i || s[j].position != j || !(s[j].ns > 0) || !isfinite(t) || (s[j].candidate ? n_b : n_a) == 2)
                return err_set(e, HONE_EINPUT, "sample %d of block %d: not in its place, too many of its arm, or %g ns", j, i,
                               s[j].ns);
            *(s[j].candidate ? &k->b[2 * i + n_b++] : &k->a[2 * i + n_a++]) = t;
        }
        k->gain[i] = (k->a[2 * i] + k->a[2 * i + 1] - k->b[2 * i] - k->b[2 * i + 1]) / 2;
        k->position[i] = (log(s[1].ns) - log(s[0].ns) + log(s[3].ns) - log(s[2].ns)) / 2;
    }
    return 0;
}

static struct ab_span span_of(double centre, double lo, double hi)
{
    return (struct ab_span){expm1(centre), expm1(lo), expm1(hi)};
}

static enum ab_outcome outcome_of(const struct ab_span *s, double margin)
{
    if (s->lo > s->hi)
        return AB_UNCLEAR;
    if (s->lo > margin)
        return AB_WIN;
    if (s->hi < -margin)
        return AB_LOSS;
    return s->lo >= -margin && s->hi <= margin ? AB_SAME : AB_UNCLEAR;
}

/* The number of blocks after which the sequence decides, or all; what it then says. */
static int follow_sequence(struct ab_result *r, const struct blocks *k, const struct ab_rules *rules, struct hone_error *e)
{
    struct always_valid s = {.alpha = rules->early_alpha};
    int rc = 0;
    r->sequence = (struct ab_span){0, -1, INFINITY};
    for (r->n_blocks = 0; r->n_blocks < k->n && !rc && !r->early;) {
        rc = always_valid_add(&s, k->gain[r->n_blocks++], e);
        r->sequence = span_of(0, s.lo, s.hi);
        r->moved = s.lo > s.hi;
        enum ab_outcome o = outcome_of(&r->sequence, rules->margin);
        if (rules->early && o != AB_UNCLEAR) {
            r->outcome = o;
            r->early = true;
        }
    }
    always_valid_free(&s);
    return rc;
}

/* A's medians at both ends of the run, and over all of it. x has 2 n entries and is sorted in pieces. */
static void summarise_times(struct ab_result *r, struct blocks *k)
{
    size_t n = 2 * (size_t)r->n_blocks, third = n / 3;
    if (third)
        r->drift = expm1(stats_median(k->a + n - third, third) - stats_median(k->a, third));
    r->a_ns = exp(stats_median(k->a, n));
    r->b_ns = exp(stats_median(k->b, n));
}

static enum ab_outputs outputs_of(const struct ab_sample *s, size_t n)
{
    const char *of[2] = {NULL, NULL};
    for (size_t i = 0; i < n; i++) {
        const char **first = &of[s[i].candidate];
        if (!s[i].output[0])
            return AB_OUTPUTS_UNKNOWN;
        if (*first && strcmp(*first, s[i].output) != 0)
            return AB_OUTPUTS_UNSTABLE;
        *first = s[i].output;
    }
    return !of[0] || !of[1] ? AB_OUTPUTS_UNKNOWN : strcmp(of[0], of[1]) != 0 ? AB_OUTPUTS_DIFFER : AB_OUTPUTS_EQUAL;
}

/* How many more blocks would take the interval off the margins between which it hangs. */
static double blocks_missing(const struct bootstrap *b, int n, double margin)
{
    double up = b->centre - log1p(margin), down = log1p(-margin) - b->centre; /* distances beyond the margins */
    double room = fmax(fmax(up, down), fmin(-up, -down));
    return ceil(fmax(1, bootstrap_needed(b, (size_t)n, room) - n));
}

static int judge_blocks(struct ab_result *r, struct blocks *k, const struct ab_rules *rules, struct hone_error *e)
{
    int rc = follow_sequence(r, k, rules, e);
    size_t n = (size_t)r->n_blocks;
    r->gain = r->position = (struct ab_span){NAN, -INFINITY, INFINITY}; /* until there are blocks enough for a figure */
    r->p = 1;
    r->signed_rank = r->drift = r->noise = r->a_ns = r->b_ns = NAN;
    r->more_blocks = AB_MIN_BLOCKS > r->n_blocks ? AB_MIN_BLOCKS - r->n_blocks : 0;
    if (rc || r->n_blocks < AB_MIN_BLOCKS)
        return rc;
    struct bootstrap gain, position = {0};
    rc = bootstrap_make(&gain, k->gain, n, rules->level, rules->seed, e);
    if (!rc)
        rc = bootstrap_make(&position, k->position, n, rules->level, rules->seed, e);
    if (!rc) {
        r->gain = span_of(gain.centre, gain.lo, gain.hi);
        r->position = span_of(position.centre, position.lo, position.hi);
        if (!r->early && !r->moved)
            r->outcome = outcome_of(&r->gain, rules->margin);
        if (r->gain.centre > rules->margin)
            r->p = bootstrap_p(&gain, log1p(rules->margin));
        else if (r->gain.centre < -rules->margin)
            r->p = bootstrap_p(&gain, log1p(-rules->margin));
        if (r->early && (r->outcome == AB_WIN || r->outcome == AB_LOSS))
            r->p = rules->early_alpha;
        if (r->outcome == AB_UNCLEAR)
            r->more_blocks = blocks_missing(&gain, r->n_blocks, rules->margin);
        r->signed_rank = stats_signed_rank(k->gain, n);
        if (r->signed_rank < 0)
            rc = err_set(e, HONE_ERESOURCE, "no memory for the signed-rank test");
        stats_sort(k->gain, n);
        r->noise = expm1((stats_quantile(k->gain, n, 0.84) - stats_quantile(k->gain, n, 0.16)) / 2);
        summarise_times(r, k);
    }
    bootstrap_free(&gain);
    bootstrap_free(&position);
    return rc;
}

int ab_judge(struct ab_result *r, const struct ab_sample *samples, size_t n, const struct ab_rules *rules, struct hone_error *e)
{
    struct blocks k;
    *r = (struct ab_result){.signed_rank = 1};
    int rc = ab_rules_check(rules, e);
    if (rc)
        return rc;
    rc = blocks_make(&k, samples, n, e);
    if (!rc)
        rc = judge_blocks(r, &k, rules, e);
    free(k.gain);
    if (!rc)
        r->outputs = outputs_of(samples, (size_t)r->n_blocks * AB_BLOCK);
    return rc;
}

/* ---- the loop */

struct progress {
    struct always_valid sequence;
    double gains[AB_MAX_BLOCKS];
};

/* After a whole block: what is shown while the run goes on, and whether the sequence ends it. */
static int look(struct ab_result *r, struct progress *p, const struct ab_sample *s, const struct ab_rules *rules,
                struct hone_error *e)
{
    double gain = 0;
    for (int j = 0; j < AB_BLOCK; j++)
        gain += (s[j].candidate ? -0.5 : 0.5) * log(s[j].ns);
    if (!isfinite(gain))
        return err_set(e, HONE_EFAULT, "block %d: a sample of no time", s->block);
    int rc = always_valid_add(&p->sequence, gain, e);
    p->gains[r->n_blocks++] = gain;
    stats_sort(p->gains, (size_t)r->n_blocks);
    r->gain.centre = expm1(stats_trimmed_mean(p->gains, (size_t)r->n_blocks, 0.2));
    r->sequence = span_of(0, p->sequence.lo, p->sequence.hi);
    r->outcome = outcome_of(&r->sequence, rules->margin);
    r->early = rules->early && r->outcome != AB_UNCLEAR;
    return rc;
}

/* The blocks, until all are taken or the sequence ends it. so_far: what is shown meanwhile. */
static int take(struct ab_samples *samples, struct progress *p, const struct ab_rules *rules, const struct ab_source *from,
                struct hone_error *e)
{
    struct ab_result so_far = {0};
    int rc = 0;
    while (!rc && !so_far.early && samples->n < (size_t)rules->blocks * AB_BLOCK) {
        struct ab_sample *s = &samples->list[samples->n];
        *s = (struct ab_sample){.block = (int)(samples->n / AB_BLOCK), .position = (int)(samples->n % AB_BLOCK)};
        s->candidate = ab_order(rules->seed, s->block, s->position);
        rc = from->sample(from->user, s->candidate, s, e);
        if (rc)
            break;
        bool whole = ++samples->n % AB_BLOCK == 0;
        if (whole)
            rc = look(&so_far, p, s - AB_BLOCK + 1, rules, e);
        if (!rc && from->each && from->each(from->user, s, whole ? &so_far : NULL))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
    }
    return rc;
}

int ab_run(struct ab_result *r, struct ab_samples *samples, const struct ab_rules *rules, const struct ab_source *from,
           struct hone_error *e)
{
    *r = (struct ab_result){.signed_rank = 1, .p = 1};
    *samples = (struct ab_samples){0};
    int rc = ab_rules_check(rules, e);
    if (rc)
        return rc;
    samples->list = calloc((size_t)rules->blocks * AB_BLOCK, sizeof *samples->list);
    struct progress *p = calloc(1, sizeof *p);
    if (!samples->list || !p) {
        free(p);
        return err_set(e, HONE_ERESOURCE, "no memory for %d blocks", rules->blocks);
    }
    p->sequence.alpha = rules->early_alpha;
    rc = take(samples, p, rules, from, e);
    always_valid_free(&p->sequence);
    free(p);
    struct hone_error ignored = {0}; /* after a failure: what the whole blocks say is only a courtesy */
    int judged = ab_judge(r, samples->list, samples->n, rules, rc ? &ignored : e);
    return rc ? rc : judged;
}

void ab_samples_free(struct ab_samples *s)
{
    free(s->list);
    *s = (struct ab_samples){0};
}
