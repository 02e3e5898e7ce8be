/* ab_print.c: hone ab in words and as JSON. A figure never stands without its interval, a win never without what became of the
 * output, and a difference between the arms never unsaid. */
#include "cmd/ab.h"
#include "cmd/cmd.h"
#include "lab/verify.h"

#include <math.h>
#include <string.h>

const char *ab_name(const struct ab_report *r, int candidate, char *text, size_t size)
{
    if (r->rig->n_arms > 2)
        snprintf(text, size, "B%d", candidate);
    else
        snprintf(text, size, "B");
    return text;
}

/* What qualifies a verdict, "" where nothing does; spoilt: it is then no result. */
static const char *qualification(const struct ab_report *r, int candidate, bool *spoilt)
{
    const struct standing *s = &r->contest->standings[candidate - 1];
    enum ab_outputs outputs = s->match->result.outputs;
    const char *verified = r->verified[candidate];
    *spoilt = true;
    if (r->contest->aa_failed)
        return "not to be trusted: A/A failed";
    if (outputs == AB_OUTPUTS_UNSTABLE)
        return "output unstable: no result";
    const char *base = rig_diagnostic(&r->rig->arms[0]), *gate = base ? base : rig_diagnostic(&r->rig->arms[candidate]);
    if (gate)
        return strcmp(gate, "debug.spin") ? "debug.skip_all_reduce: a diagnostic" : "debug.spin: a diagnostic";
    bool speed = s->outcome == AB_WIN || s->outcome == AB_LOSS;
    if (speed && verified && !strcmp(verified, verify_class_name(VERIFY_DIFFERENT)))
        return "output different: no result";
    if (speed && !verified && outputs != AB_OUTPUTS_EQUAL)
        return outputs == AB_OUTPUTS_DIFFER ? "output differs: verify" : "output unknown: verify";
    *spoilt = false;
    return speed && verified ? verified : "";
}

bool ab_is_plain(const struct ab_report *r, int candidate)
{
    bool spoilt;
    qualification(r, candidate, &spoilt);
    return !spoilt;
}

const char *ab_verdict(const struct ab_report *r, int candidate, char *text, size_t size)
{
    bool spoilt;
    const char *but = qualification(r, candidate, &spoilt),
               *outcome = ab_outcome_name(r->contest->standings[candidate - 1].outcome);
    snprintf(text, size, "%s%s%s%s", outcome, *but ? ", " : "", *but && !spoilt ? "output " : "", but);
    return text;
}

/* ---- text */

static void print_differences(const json_t *list)
{
    size_t i;
    json_t *d;
    json_array_foreach(list, i, d)
    {
        const char *what = json_string_value(json_object_get(d, "what")),
                   *status = json_string_value(json_object_get(d, "status"));
        const char *a = json_string_value(json_object_get(d, "a")), *b = json_string_value(json_object_get(d, "b"));
        if (strcmp(status, "follows") != 0) /* which kernels ran: -v and JSON have it */
            printf("    %-12s%s: %.60s | %.60s\n", status, what, a ? a : "(none)", b ? b : "(none)");
        else if (verbose)
            printf("    %-12s%s: %s | %s\n", status, what, a ? a : "(none)", b ? b : "(none)");
        else
            printf("    %-12s%s\n", status, what);
    }
}

void ab_print_arms(const struct ab_report *r)
{
    const struct rig *rig = r->rig;
    char test[64], name[16];
    printf("A   %s\n", rig->arms[0].spec);
    for (int i = 1; i < rig->n_arms; i++) {
        printf("%-4s%s\n", ab_name(r, i, name, sizeof name), rig->arms[i].spec);
        print_differences(r->differences[i]);
    }
    printf("    same        %s%d libraries, %d variables of the environment\n", rig->n_arms > 1 ? "all else: " : "",
           arm_count_equal(&rig->arms[0], &rig->arms[rig->n_arms - 1], "libraries."),
           arm_count_equal(&rig->arms[0], &rig->arms[rig->n_arms - 1], "environment."));
    printf("%s, a sample is the lower decile of %d runs, %s; %d blocks of %d samples%s; margin %g %%\n\n",
           rig_test_name(rig, test, sizeof test), rig->test.repeats,
           rig->o.in_process ? "sessions of this process" : "a fresh process each", r->rules->ab.blocks, AB_BLOCK,
           r->rules->ab.early ? " at most" : "", 100 * r->rules->ab.margin);
    fflush(stdout);
}

static char *duration(char *text, size_t size, double seconds)
{
    if (seconds < 90)
        snprintf(text, size, "%.0f s", seconds);
    else
        snprintf(text, size, seconds < 5400 ? "%.0f min" : "%.0f h", seconds < 5400 ? seconds / 60 : seconds / 3600);
    return text;
}

void ab_tell_duration(const struct ab_report *r)
{
    char one[40], all[40];
    double seconds = r->rules->ab.blocks * AB_BLOCK * r->rig->sample_s;
    int candidates = r->rig->n_arms - 1, least = candidates + r->rules->aa;
    int most = least + (candidates > 1 || r->rules->confirm ? candidates : 0);
    fprintf(stderr, "hone: about %s for %d blocks", duration(one, sizeof one, seconds), r->rules->ab.blocks);
    if (most > 1)
        fprintf(stderr, ", %d to %d times over: %s at most", least, most, duration(all, sizeof all, most * seconds));
    fputs(r->rules->ab.early ? "; it ends early where the samples already tell\n" : "\n", stderr);
}

static void percent(char *text, size_t size, double share)
{
    if (isfinite(share))
        snprintf(text, size, "%+.2f %%", 100 * share);
    else
        snprintf(text, size, "any");
}

static void print_span(const struct ab_span *s, double level)
{
    char centre[32], lo[32], hi[32];
    if (!isfinite(s->centre)) {
        printf("no figure");
        return;
    }
    percent(centre, sizeof centre, s->centre);
    percent(lo, sizeof lo, s->lo);
    percent(hi, sizeof hi, s->hi);
    if (s->lo > s->hi)
        printf("%s", centre);
    else
        printf("%s  [%s, %s at %g %%]", centre, lo, hi, 100 * level);
}

static double rate(const struct rig *rig, double ns)
{
    return ns > 0 ? 1e9 * (rig->test.n_prompt + rig->test.n_gen) / ns : 0;
}

static void print_details(const struct ab_report *r, const struct match *m)
{
    const struct ab_result *x = &m->result;
    char time[40] = "";
    if (!isfinite(x->gain.centre)) {
        printf("    %d whole blocks are too few for a figure: %d at least\n", x->n_blocks, AB_MIN_BLOCKS);
        return;
    }
    printf("    %d blocks%s: A %.1f t/s, B %.1f t/s; signed rank p = %.2g; a block varies by %.1f %%\n", x->n_blocks,
           x->early ? " (ended early by the always-valid sequence)" : "", rate(r->rig, x->a_ns), rate(r->rig, x->b_ns),
           x->signed_rank, 100 * x->noise);
    printf("    being second in a pair: ");
    print_span(&x->position, m->rules.level);
    printf(" of time; A's time over the run: %+.1f %%\n", 100 * x->drift);
    if (x->moved)
        printf("    the effect changed during the run: no one figure fits all samples\n");
    if (x->outcome == AB_UNCLEAR && r->samples && isfinite(x->more_blocks)) {
        printf("    about %.0f more blocks (%s) would tell, if they are like these: a new run with --blocks %.0f\n",
               x->more_blocks, duration(time, sizeof time, x->more_blocks * AB_BLOCK * r->seconds / (double)r->samples),
               x->n_blocks + x->more_blocks);
    }
}

void ab_print_match(const struct ab_report *r, const struct match *m)
{
    const struct ab_result *x = &m->result;
    char name[16];
    struct ab_span decided = x->gain;
    if (x->early) { /* what decided is what is shown */
        decided.lo = x->sequence.lo;
        decided.hi = x->sequence.hi;
    }
    progress_end();
    printf("%s%s  ", m->kind == MATCH_AA ? "A/A" : ab_name(r, m->candidate, name, sizeof name),
           m->kind == MATCH_CONFIRM ? " again" : "");
    print_span(&decided, x->early ? 1 - m->rules.early_alpha : m->rules.level);
    if (m->kind == MATCH_AA)
        printf("  %s\n", x->outcome == AB_WIN || x->outcome == AB_LOSS
                             ? "A is told from itself: NOTHING MEASURED HERE IS TO BE TRUSTED"
                             : "the machine's noise floor");
    else
        printf("  %s%s\n", ab_outcome_name(x->outcome), x->outputs == AB_OUTPUTS_EQUAL ? ", output identical" : "");
    print_details(r, m);
    fflush(stdout);
}

void ab_print_end(const struct ab_report *r)
{
    const struct contest *c = r->contest;
    char verdict[128], name[16];
    if (c->floor > 0)
        printf("\nnoise floor: A differs from itself by up to %.2f %% here, as far as %d blocks can tell\n", 100 * c->floor,
               r->rules->ab.blocks);
    for (int i = 0; i < c->n_standings; i++) {
        const struct standing *s = &c->standings[i];
        printf("%s%s: %s%s%s%s\n", i ? "" : "\n", ab_name(r, i + 1, name, sizeof name),
               ab_verdict(r, i + 1, verdict, sizeof verdict), s->why[0] ? " (" : "", s->why, s->why[0] ? ")" : "");
    }
}

/* ---- JSON */

static json_t *arms_json(const struct ab_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->rig->n_arms; i++) {
        const struct arm *a = &r->rig->arms[i];
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s?, s:b, s:O, s:O?}", "spec", a->spec, "binary", a->binary,
                                              "commit", a->commit, "diagnostic", rig_diagnostic(a) != NULL, "identity", a->identity,
                                              "differences", r->differences[i]));
    }
    return list;
}

static json_t *match_json(const struct match *m)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < m->samples.n; i++)
        json_array_append_new(samples, ab_sample_json(&m->samples.list[i]));
    return json_pack("{s:s, s:i, s:o, s:o, s:o}", "match_kind", match_kind_name(m->kind), "candidate", m->candidate, "rules",
                     ab_rules_json(&m->rules), "result", ab_result_json(&m->result), "samples", samples);
}

json_t *ab_report_json(const struct ab_report *r)
{
    const struct contest *c = r->contest;
    const struct arm_test *t = &r->rig->test;
    json_t *matches = json_array(), *standings = json_array();
    char test[64], verdict[128];
    for (int i = 0; i < c->n_matches; i++)
        json_array_append_new(matches, match_json(&c->matches[i]));
    for (int i = 0; i < c->n_standings; i++) {
        const struct standing *s = &c->standings[i];
        json_array_append_new(standings, json_pack("{s:i, s:s, s:s, s:s, s:s, s:s?, s:s, s:o}", "candidate", i + 1, "spec",
                                                   r->rig->arms[i + 1].spec, "outcome", ab_outcome_name(s->outcome), "verdict",
                                                   ab_verdict(r, i + 1, verdict, sizeof verdict), "why", s->why, "verified",
                                                   r->verified[i + 1], "outputs", ab_outputs_name(s->match->result.outputs),
                                                   "result", ab_result_json(&s->match->result)));
    }
    return json_pack("{s:i, s:s, s:{s:i, s:i, s:i, s:i}, s:b, s:o, s:o, s:o, s:o, s:b, s:f, s:o, s:O?}", "schema_version", 1,
                     "test_name", rig_test_name(r->rig, test, sizeof test), "test", "n_prompt", t->n_prompt, "n_gen", t->n_gen,
                     "n_depth", t->n_depth, "repetitions", t->repeats, "in_process", r->rig->o.in_process, "arms", arms_json(r),
                     "matches", matches, "standings", standings, "noise_floor",
                     c->floor > 0 ? json_real(c->floor) : json_null(), "aa_failed", c->aa_failed, "seconds", r->seconds,
                     "machine_state", machine_change_json(&r->change), "warnings", r->warnings);
}
