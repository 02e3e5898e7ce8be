/* test_ab.c: comparisons on machines that are formulas: what drifts, bursts, jumps or keeps a rhythm must not become an effect,
 * and an effect must be found among it; when a run ends early; several candidates; verdicts from the record alone. */
#include "test.h"

#include "base/rng.h"
#include "lab/ab_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A machine: how long the i-th sample of a run takes. */
struct machine {
    struct rng rng;
    int at;             /* samples so far */
    double noise;       /* share of a sample's time */
    double burst;       /* chance that a neighbour makes a sample half again to thrice as long */
    double drift, bend; /* share a sample by which all gets slower; the same, squared */
    int jump;           /* at this sample it gets 30 % slower; 0: never */
    int period;         /* so many samples after one another have a rhythm of 5 %; 0: none */
    double second;      /* share by which the second of a pair is slower */
    double effect[4];   /* by how much faster arm i is */
    double later[4];    /* from `turn` on */
    int turn;
    int fails_at, stops_at; /* samples; 0: never */
    int begun, ended;
    int odd_output; /* from this sample on arm 1 computes something else; 0: never */
    bool differs;   /* arm 1 computes something else than arm 0 */
};

static int take(void *user, int arm, struct ab_sample *s, struct hone_error *e)
{
    struct machine *m = user;
    int i = m->at++;
    if (m->fails_at && i == m->fails_at)
        return err_set(e, HONE_ERESOURCE, "no memory");
    double effect = m->turn && i >= m->turn ? m->later[arm] : m->effect[arm];
    double t = 0.2e9 * (1 + m->drift * i) * (1 + m->bend * i * i) * exp(m->noise * rng_normal(&m->rng)) / (1 + effect);
    if (rng_uniform(&m->rng) < m->burst)
        t *= 1.5 + 1.5 * rng_uniform(&m->rng);
    if (m->jump && i >= m->jump)
        t *= 1.3;
    if (m->period)
        t *= 1 + 0.05 * sin(2 * M_PI * (i + 0.5) / m->period);
    if (i % 2)
        t *= 1 + m->second;
    s->ns = t;
    snprintf(s->output, sizeof s->output, "%064d",
             (arm == 1 && m->differs) || (m->odd_output && i >= m->odd_output && arm == 1));
    return 0;
}

static int take_ab(void *user, bool candidate, struct ab_sample *s, struct hone_error *e)
{
    return take(user, candidate, s, e);
}

static int each(void *user, const struct ab_sample *s, const struct ab_result *so_far)
{
    const struct machine *m = user;
    assert_true((s->position == AB_BLOCK - 1) == (so_far != NULL));
    return m->stops_at && m->at >= m->stops_at;
}

static struct ab_result compare(struct machine m, const struct ab_rules *rules)
{
    struct ab_result r;
    struct ab_samples s;
    struct hone_error e = {0};
    struct ab_source from = {&m, take_ab, each};
    if (ab_run(&r, &s, rules, &from, &e))
        fail_msg("%s", e.message);
    ab_samples_free(&s);
    return r;
}

struct tally {
    int of[4]; /* by outcome */
    int early;
};

static struct tally repeat(struct machine m, struct ab_rules rules, int times)
{
    struct tally t = {0};
    for (int i = 0; i < times; i++) {
        m.rng = rng_seed((uint64_t)i + 1000);
        rules.seed = (uint64_t)i * 77;
        struct ab_result r = compare(m, &rules);
        t.of[r.outcome]++;
        t.early += r.early;
    }
    return t;
}

static void test_order(void **unused)
{
    (void)unused;
    int opens[2] = {0, 0};
    for (int block = 0; block < 400; block++) {
        bool b = ab_order(9, block, 0), last = ab_order(9, block ^ 1, 0);
        assert_true(ab_order(9, block, 3) == b && ab_order(9, block, 1) != b && ab_order(9, block, 2) != b);
        assert_true(b != last); /* a couple has one block of each kind */
        if (block % 2 == 0)
            opens[b]++;
    }
    assert_false(ab_order(1, 0, 0)); /* every run begins with A B B A */
    assert_false(ab_order(2, 0, 0));
    assert_in_range(opens[1], 70, 130);
}

/* Without noise the effect comes out exactly, whatever drifts. */
static void test_exact(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    rules.early = false;
    struct ab_result r = compare((struct machine){.effect = {0, 0.05}}, &rules);
    assert_int_equal(r.outcome, AB_WIN);
    assert_true(fabs(r.gain.centre - 0.05) < 1e-12 && fabs(r.gain.lo - 0.05) < 1e-9 && fabs(r.position.centre) < 1e-12);
    assert_true(r.signed_rank < 1e-4 && r.p <= 0.01 && r.n_blocks == 16 && !r.early && r.more_blocks == 0);
    r = compare((struct machine){.effect = {0, -0.05}, .second = 0.02}, &rules);
    assert_int_equal(r.outcome, AB_LOSS);
    assert_true(fabs(r.gain.centre + 0.05) < 1e-12 && fabs(r.position.centre - 0.02) < 1e-12);
    r = compare((struct machine){.drift = 0.01}, &rules);
    assert_int_equal(r.outcome, AB_SAME);
    assert_true(fabs(r.gain.centre) < 1e-4 && r.drift > 0.2);
}

static void test_false_verdicts_are_rare(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        struct machine m;
    } machines[] = {
        {"quiet", {.noise = 0.01}},
        {"noisy", {.noise = 0.06}},
        {"bursts", {.noise = 0.02, .burst = 0.15}},
        {"drift", {.noise = 0.02, .drift = 0.01}},
        {"growing load", {.noise = 0.02, .burst = 0.1, .bend = 0.0002}},
        {"a jump", {.noise = 0.02, .jump = 30}},
        {"rhythm of 4", {.noise = 0.02, .period = 4}},
        {"rhythm of 2", {.noise = 0.02, .period = 2}},
        {"second slower", {.noise = 0.02, .second = 0.03}},
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct ab_rules rules = ab_defaults();
        struct tally t = repeat(machines[i].m, rules, 50);
        print_message("%-14s A/A: %d wins, %d losses, %d no difference, %d unclear\n", machines[i].name, t.of[AB_WIN],
                      t.of[AB_LOSS], t.of[AB_SAME], t.of[AB_UNCLEAR]);
        assert_in_range(t.of[AB_WIN] + t.of[AB_LOSS], 0, 2);
    }
    /* The worst that there is: a rhythm of the couples of blocks themselves. In a fixed order every run would see an effect of
     * 2 %. */
    struct ab_rules rules = ab_defaults();
    struct tally t = repeat((struct machine){.noise = 0.02, .period = 8}, rules, 60);
    assert_in_range(t.of[AB_WIN] + t.of[AB_LOSS], 0, 6);
}

static void test_effects_are_found(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    struct tally t = repeat((struct machine){.noise = 0.012, .burst = 0.01, .drift = 0.003, .effect = {0, -0.03}}, rules, 60);
    print_message("3 %% slower: %d losses of 60, %d early\n", t.of[AB_LOSS], t.early);
    assert_in_range(t.of[AB_LOSS], 54, 60);
    t = repeat((struct machine){.noise = 0.015, .effect = {0, 0.002}}, rules, 60);
    print_message("0.2 %% faster: %d wins, %d losses\n", t.of[AB_WIN], t.of[AB_LOSS]);
    assert_in_range(t.of[AB_WIN] + t.of[AB_LOSS], 0, 1);
    rules.blocks = 60;
    t = repeat((struct machine){.noise = 0.005, .effect = {0, 0.001}}, rules, 30);
    assert_in_range(t.of[AB_SAME], 25, 30); /* on a quiet machine one can say that there is none */
}

static void test_more_blocks_tell(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    rules.early = false;
    int unclear = 0, told = 0;
    for (int i = 0; i < 60; i++) {
        struct machine m = {.rng = rng_seed((uint64_t)i), .noise = 0.02, .effect = {0, 0.02}};
        rules.blocks = 12;
        struct ab_result r = compare(m, &rules);
        if (r.outcome != AB_UNCLEAR)
            continue;
        assert_true(r.more_blocks >= 1);
        rules.blocks = 12 + (int)fmin(200, 1.5 * r.more_blocks);
        m.rng = rng_seed((uint64_t)i + 500);
        unclear++;
        told += compare(m, &rules).outcome == AB_WIN;
    }
    print_message("%d unclear; half as many blocks again as said told %d\n", unclear, told);
    assert_true(unclear >= 10 && told >= unclear * 6 / 10);
}

static void test_early_end(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    rules.blocks = 100;
    struct ab_result r = compare((struct machine){.rng = rng_seed(1), .noise = 0.01, .effect = {0, 0.1}}, &rules);
    assert_int_equal(r.outcome, AB_WIN);
    assert_true(r.early && r.n_blocks == 11 && r.sequence.lo > 0.005 && r.p <= 0.01);
    rules.early = false;
    assert_int_equal(compare((struct machine){.rng = rng_seed(1), .noise = 0.01, .effect = {0, 0.1}}, &rules).n_blocks, 100);
    rules.early = true;
    struct tally t = repeat((struct machine){.noise = 0.03, .burst = 0.1, .drift = 0.001}, rules, 50);
    assert_in_range(t.early, 0, 2);
}

/* The candidate turns from faster to slower in the middle of the run: no one figure says it. */
static void test_moved(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    rules.blocks = 80;
    rules.early = false;
    struct ab_result r = compare(
        (struct machine){.rng = rng_seed(4), .noise = 0.005, .effect = {0, 0.1}, .later = {0, -0.1}, .turn = 80}, &rules);
    assert_true(r.moved && r.outcome == AB_UNCLEAR);
    assert_false(compare((struct machine){.rng = rng_seed(4), .noise = 0.005, .effect = {0, 0.1}}, &rules).moved);
}

static void test_outputs(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    assert_int_equal(compare((struct machine){.noise = 0.01}, &rules).outputs, AB_OUTPUTS_EQUAL);
    assert_int_equal(compare((struct machine){.noise = 0.01, .differs = true}, &rules).outputs, AB_OUTPUTS_DIFFER);
    assert_int_equal(compare((struct machine){.noise = 0.01, .odd_output = 20}, &rules).outputs, AB_OUTPUTS_UNSTABLE);
    struct ab_sample s[32];
    for (int i = 0; i < 32; i++)
        s[i] = (struct ab_sample){.block = i / 4, .position = i % 4, .candidate = ab_order(1, i / 4, i % 4), .ns = 1e6};
    struct ab_result r;
    assert_int_equal(ab_judge(&r, s, 32, &rules, NULL), 0);
    assert_int_equal(r.outputs, AB_OUTPUTS_UNKNOWN);
}

static void test_broken_off(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults();
    struct machine m = {.rng = rng_seed(3), .noise = 0.01, .effect = {0, 0.5}, .fails_at = 39};
    struct ab_source from = {&m, take_ab, each};
    struct ab_result r;
    struct ab_samples s;
    struct hone_error e = {0};
    assert_int_equal(ab_run(&r, &s, &rules, &from, &e), HONE_ERESOURCE);
    assert_true(s.n == 39 && r.n_blocks == 9 && r.outcome == AB_WIN);
    ab_samples_free(&s);
    m = (struct machine){.rng = rng_seed(3), .noise = 0.01, .effect = {0, 0.5}, .stops_at = 13};
    e = (struct hone_error){0};
    assert_int_equal(ab_run(&r, &s, &rules, &from, &e), HONE_ECANCELED);
    assert_true(s.n == 13 && r.n_blocks == 3 && r.outcome == AB_UNCLEAR && r.more_blocks == 5 && isinf(r.gain.hi));
    json_t *j = ab_result_json(&r);
    assert_non_null(j); /* infinite ends are null */
    assert_true(json_is_null(json_object_get(json_object_get(j, "gain"), "hi")));
    json_decref(j);
    ab_samples_free(&s);
}

/* The verdict from a journal's records is that of the run. */
static void test_from_records(void **unused)
{
    (void)unused;
    struct ab_rules rules = ab_defaults(), again;
    struct machine m = {.rng = rng_seed(8), .noise = 0.02, .effect = {0, 0.04}};
    struct ab_source from = {&m, take_ab, NULL};
    struct ab_result r, derived;
    struct ab_samples s;
    struct hone_error e = {0};
    assert_int_equal(ab_run(&r, &s, &rules, &from, &e), 0);
    json_t *j = ab_rules_json(&rules);
    assert_int_equal(ab_rules_parse(&again, j, &e), 0);
    json_decref(j);
    struct ab_sample *read = calloc(s.n, sizeof *read);
    assert_non_null(read);
    for (size_t i = 0; i < s.n; i++) {
        j = ab_sample_json(&s.list[i]);
        char *text = json_dumps(j, 0);
        json_t *parsed = json_loads(text, 0, NULL);
        assert_int_equal(ab_sample_parse(&read[i], parsed, &e), 0);
        json_decref(j);
        json_decref(parsed);
        free(text);
    }
    assert_int_equal(ab_judge(&derived, read, s.n, &again, &e), 0);
    assert_memory_equal(&derived, &r, sizeof r);
    read[5].candidate = !read[5].candidate;
    assert_int_equal(ab_judge(&derived, read, s.n, &again, &e), HONE_EINPUT);
    read[5].candidate = !read[5].candidate;
    read[7].ns = NAN;
    assert_int_equal(ab_judge(&derived, read, s.n, &again, &e), HONE_EINPUT);
    ab_samples_free(&s);
    free(read);
}

static void test_records_refused(void **unused)
{
    (void)unused;
    static const char too_long[] = "{\"block\":0,\"position\":0,\"arm\":\"a\",\"ns\":1,\"output\":"
                                   "\"00000000000000000000000000000000000000000000000000000000000000000\"}";
    static const char *const samples[] = {
        "{}",
        "[]",
        "{\"block\":0,\"position\":0,\"arm\":\"c\",\"ns\":1.5,\"output\":\"\"}",
        "{\"block\":0,\"position\":0,\"arm\":\"a\",\"ns\":\"1\",\"output\":\"\"}",
        too_long,
    };
    struct hone_error e;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct ab_sample s;
        json_t *j = json_loads(samples[i], 0, NULL);
        e.code = 0;
        assert_int_equal(ab_sample_parse(&s, j, &e), HONE_EINPUT);
        json_decref(j);
    }
    struct ab_rules r = ab_defaults();
    r.blocks = 7;
    e.code = 0;
    assert_int_equal(ab_rules_check(&r, &e), HONE_EUSAGE);
    json_t *j = ab_rules_json(&r);
    e.code = 0;
    assert_int_equal(ab_rules_parse(&r, j, &e), HONE_EINPUT);
    json_decref(j);
}

/* ---- several candidates */

static int begin(void *user, const struct match *m)
{
    (void)m;
    return ((struct machine *)user)->begun++ < 0;
}

static int end(void *user, const struct match *m)
{
    (void)m;
    return ((struct machine *)user)->ended++ < 0;
}

static int contest(struct contest *c, struct machine *m, const struct contest_rules *rules, int n)
{
    struct hone_error e = {0};
    struct contest_source from = {m, begin, end, take, each};
    return contest_run(c, rules, n, &from, &e);
}

static void test_contest(void **unused)
{
    (void)unused;
    struct contest_rules rules = {.ab = ab_defaults(), .aa = true};
    struct machine m = {.rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05, 0, -0.05}};
    struct contest c;
    assert_int_equal(contest(&c, &m, &rules, 3), 0);
    assert_true(c.n_matches == 5 && m.begun == 5 && m.ended == 5 && !c.aa_failed && c.floor > 0.002 && c.floor < 0.03);
    assert_int_equal(c.standings[0].outcome, AB_WIN);
    assert_int_equal(c.standings[0].match->kind, MATCH_CONFIRM); /* the figures are of samples that did not choose it */
    assert_true(c.standings[1].outcome != AB_WIN && c.standings[1].outcome != AB_LOSS);
    assert_int_equal(c.standings[2].outcome, AB_LOSS);
    contest_free(&c);

    m = (struct machine){.rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05}}; /* alone: no confirmation unless asked for */
    rules.aa = false;
    assert_int_equal(contest(&c, &m, &rules, 1), 0);
    assert_true(c.n_matches == 1 && c.standings[0].outcome == AB_WIN && c.floor == 0);
    contest_free(&c);
    rules.confirm = true;
    assert_int_equal(contest(&c, &m, &rules, 1), 0);
    assert_true(c.n_matches == 2 && c.standings[0].match->kind == MATCH_CONFIRM);
    contest_free(&c);
}

static void test_confirmation_takes_back(void **unused)
{
    (void)unused;
    struct contest_rules rules = {.ab = ab_defaults(), .confirm = true};
    rules.ab.early = false;
    struct machine m = {
        .rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05}, .turn = 64}; /* it was luck: gone after the trial */
    struct contest c;
    assert_int_equal(contest(&c, &m, &rules, 1), 0);
    assert_int_equal(c.standings[0].outcome, AB_UNCLEAR);
    assert_non_null(strstr(c.standings[0].why, "confirmation"));
    contest_free(&c);
    m = (struct machine){.rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05}, .fails_at = 90}; /* or was never confirmed */
    assert_int_equal(contest(&c, &m, &rules, 1), HONE_ERESOURCE);
    assert_int_equal(c.standings[0].outcome, AB_UNCLEAR);
    contest_free(&c);
    m = (struct machine){
        .rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05, 0.05}, .stops_at = 100}; /* Ctrl-C in the second trial */
    assert_int_equal(contest(&c, &m, &rules, 2), HONE_ECANCELED);
    assert_true(c.n_standings == 1 && c.standings[0].outcome == AB_UNCLEAR && c.matches[1].samples.n == 36);
    contest_free(&c);
}

static void test_holm_takes_back(void **unused)
{
    (void)unused;
    struct contest_rules rules = {.ab = ab_defaults()};
    rules.ab.early = false;
    int taken_back = 0;
    for (int i = 0; i < 40 && !taken_back; i++) { /* an effect that passes alone about every other time */
        struct machine m = {.rng = rng_seed((uint64_t)i), .noise = 0.012, .effect = {0, 0.015, 0, 0}};
        struct contest c;
        assert_int_equal(contest(&c, &m, &rules, 3), 0);
        if (strstr(c.standings[0].why, "Holm")) {
            assert_true(c.standings[0].match->result.outcome == AB_WIN && c.standings[0].outcome == AB_UNCLEAR);
            taken_back++;
        }
        contest_free(&c);
    }
    assert_int_equal(taken_back, 1);
}

/* A machine on which the base beats itself: the arms are told apart by something else than what they are. */
static int crooked(void *user, int arm, struct ab_sample *s, struct hone_error *e)
{
    int rc = take(user, arm, s, e);
    s->ns *= s->candidate ? 0.9 : 1;
    return rc;
}

static void test_aa_fails(void **unused)
{
    (void)unused;
    struct contest_rules rules = {.ab = ab_defaults(), .aa = true};
    struct machine m = {.rng = rng_seed(5), .noise = 0.01};
    struct contest_source from = {&m, NULL, NULL, crooked, NULL};
    struct contest c;
    assert_int_equal(contest_run(&c, &rules, 0, &from, NULL), 0);
    assert_true(c.aa_failed && c.n_matches == 1 && c.matches[0].result.n_blocks == 16);
    contest_free(&c);
    rules.aa = false;
    assert_int_equal(contest_run(&c, &rules, 0, &from, NULL), HONE_EUSAGE);
    contest_free(&c);
}

/* ---- in the journal */

struct recorder {
    struct machine machine;
    struct journal *journal;
    int64_t run;
    struct contest *contest;
    const struct match *match;
    int index;
};

static int record_begin(void *user, const struct match *m)
{
    struct recorder *r = user;
    r->match = m;
    return ab_record_match(r->journal, r->run, r->index, m, r->contest, NULL);
}

static int record_end(void *user, const struct match *m)
{
    (void)m;
    ((struct recorder *)user)->index++;
    return 0;
}

static int record_take(void *user, int arm, struct ab_sample *s, struct hone_error *e)
{
    return take(&((struct recorder *)user)->machine, arm, s, e);
}

static int record_each(void *user, const struct ab_sample *s, const struct ab_result *so_far)
{
    struct recorder *r = user;
    return ab_record_sample(r->journal, r->run, r->index, r->match, s, "tg8", 8, NULL) || each(&r->machine, s, so_far);
}

/* Fights, records, and derives; what is derived, and what was seen. */
static int derive_again(struct machine m, int n, json_t **derived, json_t **seen)
{
    char folder[] = "/tmp/hone-test-ab-XXXXXX", path[64];
    struct contest c;
    struct contest_rules rules = {.ab = ab_defaults(), .aa = true, .confirm = true};
    struct recorder r = {.machine = m, .contest = &c};
    struct contest_source from = {&r, record_begin, record_end, record_take, record_each};
    struct hone_error e = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/j.db", folder);
    assert_int_equal(journal_open(&r.journal, path, JOURNAL_WRITE, &e), 0);
    assert_int_equal(journal_run_begin(r.journal, &(struct journal_run){.kind = "ab", .expected_gain = 0.05}, &r.run, &e), 0);
    int rc = contest_run(&c, &rules, n, &from, &e);
    *seen = ab_record_verdict(&c);
    e = (struct hone_error){0};
    if (ab_record_derive(r.journal, r.run, derived, &e))
        fail_msg("%s", e.message);
    journal_close(r.journal);
    contest_free(&c);
    static const char *const files[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/j.db%s", folder, files[i]);
        remove(path);
    }
    remove(folder);
    return rc;
}

static void test_derived_from_the_journal(void **unused)
{
    (void)unused;
    json_t *derived, *seen;
    struct machine m = {.rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.05, 0, -0.05}};
    assert_int_equal(derive_again(m, 3, &derived, &seen), 0);
    assert_true(json_equal(derived, seen));
    assert_string_equal(json_string_value(json_object_get(derived, "verdict")), "win, unclear, loss");
    assert_int_equal(json_array_size(json_object_get(derived, "matches")), 5);
    json_decref(derived);
    json_decref(seen);
    m = (struct machine){
        .rng = rng_seed(5), .noise = 0.01, .effect = {0, 0.5}, .stops_at = 64 + 44 + 30}; /* in the confirmation */
    assert_int_equal(derive_again(m, 1, &derived, &seen), HONE_ECANCELED);
    assert_true(json_equal(derived, seen));
    assert_string_equal(json_string_value(json_object_get(derived, "verdict")), "unclear");
    json_decref(derived);
    json_decref(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_false_verdicts_are_rare),
        cmocka_unit_test(test_effects_are_found),
        cmocka_unit_test(test_more_blocks_tell),
        cmocka_unit_test(test_early_end),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_broken_off),
        cmocka_unit_test(test_from_records),
        cmocka_unit_test(test_records_refused),
        cmocka_unit_test(test_contest),
        cmocka_unit_test(test_confirmation_takes_back),
        cmocka_unit_test(test_holm_takes_back),
        cmocka_unit_test(test_aa_fails),
        cmocka_unit_test(test_derived_from_the_journal),
    };
    return cmocka_run_group_tests_name("ab", tests, NULL, NULL);
}
