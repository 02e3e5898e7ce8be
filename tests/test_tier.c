/* test_tier.c: tiers as text; a journal in which all is well, promoted; and the same with one thing wrong at a time, refused
 * with its reason. */
#include "tests/journal_fixture.h"

#include "lab/ab_record.h"
#include "lab/tier.h"

#include <time.h>

static const char rules[] = "# what is shipped\n"
                            "tier decode\n"
                            "    model smollm2\n"
                            "    bench tg64 t/s median >= 54\n"
                            "    verify token-identical\n"
                            "    ab win\n"
                            "    fallbacks 0\n";
static const char *tier_text = rules; /* that the journal is held to */
static const char recipe_text[] = "fuse.mlp=off\n";

/* What a journal says of the recipe; the fields are what tests spoil. */
struct story {
    const char *commit, *bench_binary, *control_binary, *verify_class, *base_gates, *model;
    double speed, gain, weights_b, kl_bound, margin, level;
    const char *output;                /* what the bench run says of its own */
    const char *reference;             /* gate of verify's side A */
    const char *told_side, *told_base; /* beside the recipe: side B of verify, the base of ab */
    const char *base_mask, *ab_machine;
    int64_t written; /* the program's file, in milliseconds since 1970; 0: the record does not say */
    bool no_ab, no_verify, this_build;
};
static const struct story good = {.commit = "abcdef123456",
                                  .bench_binary = "b1",
                                  .control_binary = "b1",
                                  .verify_class = "token-identical",
                                  .base_gates = "[]",
                                  .model = "smollm2-135m",
                                  .output = "token-identical",
                                  .reference = "kernel=ref",
                                  .base_mask = "avx2",
                                  .ab_machine = "abacus",
                                  .speed = 60,
                                  .gain = 0.05,
                                  .weights_b = 1000,
                                  .kl_bound = 0.01,
                                  .margin = 0.005,
                                  .level = 0.99,
                                  .this_build = true};

static int64_t begin_run(struct journal *j, const char *kind, const struct story *s, const char *binary, const char *gates)
{
    struct hone_error e = {0};
    int64_t run;
    struct journal_run r = {.kind = kind,
                            .build = json_pack("{s:s, s:s}", "commit", s->commit, "binary", binary),
                            .machine = json_pack("{s:s}", "cpu", strcmp(kind, "ab") ? "abacus" : s->ab_machine),
                            .model = json_pack("{s:s, s:s}", "name", s->model, "sha256", s->model),
                            .recipe = gates ? json_pack("{s:[s], s:s, s:s}", "gates", gates, "type_k", "f16", "type_v", "f16")
                                            : json_pack("{s:[]}", "gates"),
                            .state = s->written ? json_pack("{s:I}", "binary_written", (json_int_t)s->written) : NULL,
                            .expected_gain = NAN};
    if (journal_run_begin(j, &r, &run, &e))
        fail_msg("%s", e.message);
    json_decref(r.build);
    json_decref(r.machine);
    json_decref(r.model);
    json_decref(r.recipe);
    json_decref(r.state);
    return run;
}

static void note(struct journal *j, int64_t run, const char *kind, json_t *body)
{
    struct hone_error e = {0};
    assert_non_null(body);
    if (journal_record(j, run, kind, body, NULL, &e))
        fail_msg("%s", e.message);
    json_decref(body);
}

static void end_with(struct journal *j, int64_t run, json_t *outcome)
{
    struct hone_error e = {0};
    assert_non_null(outcome);
    assert_int_equal(journal_run_end(j, run, outcome, &e), 0);
    json_decref(outcome);
}

static void write_bench(struct journal *j, const struct story *s)
{
    int64_t run = begin_run(j, "bench", s, s->bench_binary, "fuse.mlp=off");
    for (int i = -2; i <= 2; i++)
        sample_ok(j, run, "tg64 t/s", s->speed + i);
    end_with(j, run, json_pack("{s:s, s:{s:[], s:s}}", "status", "done", "row", "fallbacks", "verdict", s->output));
}

static void write_verify(struct journal *j, const struct story *s)
{
    int64_t run = begin_run(j, "verify", s, "b1", NULL);
    json_t *told = s->told_side ? json_pack("[s]", s->told_side) : json_array();
    note(j, run, "note",
         json_pack("{s:[{s:{s:[s]}, s:b, s:[]}, {s:{s:[s]}, s:b, s:o}]}", "sides", "recipe", "gates", s->reference,
                   "this_build", 1, "said", "recipe", "gates", "fuse.mlp=off", "this_build", s->this_build, "said", told));
    note(j, run, "verdict",
         json_pack("{s:s, s:[s], s:{s:{s:i}}, s:{s:{s:f}}, s:{s:f, s:f}}", "verdict", s->verify_class, "reasons",
                   "token 3 of text 1 differs", "a", "weights_per_token", "bytes", 1000, "b", "weights_per_token", "bytes",
                   s->weights_b, "bounds", "kl", s->kl_bound, "loss", 0.02));
    end_with(j, run, json_pack("{s:s}", "status", "done"));
}

static void write_ab(struct journal *j, const struct story *s)
{
    struct hone_error e = {0};
    struct match m = {.kind = MATCH_TRIAL, .candidate = 1, .rules = ab_defaults()};
    struct contest c = {.n_candidates = 1};
    int64_t run = begin_run(j, "ab", s, "b1", NULL);
    m.rules.blocks = 20;
    m.rules.margin = s->margin;
    m.rules.level = s->level;
    json_t *told = s->told_base ? json_pack("[s]", s->told_base) : json_array();
    note(j, run, "note",
         json_pack("{s:[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s}], s:[o, []]}", "identities", "build.binary",
                   s->control_binary, "recipe.gates", s->base_gates, "type_k", "f16", "machine.features", s->base_mask,
                   "build.binary", "b1", "recipe.gates", "[\"fuse.mlp=off\"]", "type_k", "f16", "machine.features", "avx2",
                   "said", told));
    assert_int_equal(ab_record_match(j, run, 0, &m, &c, &e), 0);
    for (int block = 0; block < 20; block++)
        for (int p = 0; p < AB_BLOCK; p++) {
            struct ab_sample one = {.block = block, .position = p, .candidate = ab_order(m.rules.seed, block, p)};
            one.ns = 1e8 * (1 + 0.0003 * ((block * 7 + p * 3) % 5)) / (one.candidate ? 1 + s->gain : 1);
            assert_int_equal(ab_record_sample(j, run, 0, &m, &one, "tg64", 64, &e), 0);
        }
    end_with(j, run, json_pack("{s:s}", "status", "done"));
}

static struct journal *write_story(const struct story *s)
{
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    write_bench(j, s);
    if (!s->no_verify)
        write_verify(j, s);
    if (!s->no_ab)
        write_ab(j, s);
    return j;
}

/* In text: each rule's answer and why. */
static bool checks(struct journal *j, const struct tier_claim *claim, char text[4000], int64_t *promoted)
{
    struct tiers t;
    struct recipe r;
    struct tier_result result;
    struct hone_error e = {0};
    if (tiers_parse(&t, tier_text, "tiers", &e) || recipe_parse(&r, recipe_text, "my.recipe", &e))
        fail_msg("%s", e.message);
    int rc = tier_check(&result, &t.list[0], &r, j, claim, &e);
    bool passes = !rc && result.passes;
    int n = rc ? snprintf(text, 4000, "%s", e.message) : 0;
    for (int i = 0; i < result.n && n < 3500; i++)
        n += snprintf(text + n, 4000 - (size_t)n, "%s|%s|%s\n", tier_answer_name(result.rules[i].answer), result.rules[i].rule,
                      result.rules[i].why);
    if (promoted) {
        int p = tier_promote(j, &t.list[0], &r, &result, "boss", 7, promoted, &e);
        assert_int_equal(p, passes ? 0 : HONE_ECHECK);
    }
    tier_result_free(&result);
    recipe_free(&r);
    tiers_free(&t);
    return passes;
}

static void refused(const struct story *s, const struct tier_claim *claim, const char *why)
{
    char text[4000];
    fresh(NULL);
    struct journal *j = write_story(s);
    if (checks(j, claim, text, &(int64_t){0}))
        fail_msg("it passes: %s", text);
    if (!strstr(text, why))
        fail_msg("'%s' lacks '%s'", text, why);
    journal_close(j);
}

static const struct tier_claim promote = {.promote = true};

static void what_is_right_is_promoted(void **state)
{
    (void)state;
    char text[4000];
    struct hone_error e = {0};
    int64_t run;
    json_t *best;
    struct journal *j = write_story(&good);
    if (!checks(j, &promote, text, &run))
        fail_msg("%s", text);
    assert_int_equal(recipe_best(j, "decode", "smollm2", &best, &e), 0);
    assert_string_equal(json_string_value(json_object_get(best, "text")), recipe_text);
    assert_int_equal(json_integer_value(json_object_get(best, "task")), 7);
    json_decref(best);
    verify_ok(j);
    assert_true(checks(j, &promote, text, NULL)); /* the best again */
    journal_close(j);
}

static void rules_fail_with_figures(void **state)
{
    (void)state;
    struct story s = good;
    s.speed = 40;
    refused(&s, &promote, "fail|bench tg64 t/s median >= 54|40 of 5 samples");
    s = good;
    s.gain = 0;
    refused(&s, &promote, "fail|ab win|no difference");
    s.gain = -0.05;
    refused(&s, &promote, "fail|ab win|loss");
    s = good;
    s.model = "gemma";
    refused(&s, &promote, "no record|bench"); /* nothing is recorded of the tier's model */
}

static void fast_but_wrong(void **state)
{
    (void)state;
    struct story s = good;
    s.verify_class = "different";
    refused(&s, &promote, "wrong, however fast: the output is different: token 3");
    s.verify_class = "quality-equal";
    refused(&s, &promote, "fail|verify token-identical");
    s.kl_bound = 5;
    refused(&s, &promote, "its bounds were widened: 5 nats");
    s = good;
    s.no_verify = true;
    refused(&s, &promote, "the output is not verified");
}

/* The bench run held its output to the reference's, whatever a verify of another side said. */
static void the_bench_s_own_word(void **state)
{
    (void)state;
    struct story s = good;
    s.output = "different";
    refused(&s, &promote, "fail|bench output|wrong, however fast");
    s.output = "unverified";
    refused(&s, &promote, "no record|bench output|a speed without a verdict");
}

static void verified_against_nothing_that_is_right(void **state)
{
    (void)state;
    char text[4000];
    struct story s = good;
    s.reference = "fuse.mlp=off";
    refused(&s, &promote, "fail|verify reference|it was verified against itself");
    s.reference = "kernel.attention=window";
    refused(&s, &promote, "fail|verify reference|side A is neither");
    s.reference = "kernel.attention=ref";
    s.told_side = "machine.features";
    refused(&s, &promote, "fail|verify sides|side B was told more than a recipe: machine.features");
    s.told_side = NULL;
    fresh(NULL);
    struct journal *j = write_story(&s);
    if (!checks(j, &promote, text, NULL))
        fail_msg("%s", text);
    journal_close(j);
}

static void a_base_with_a_handicap(void **state)
{
    (void)state;
    struct story s = good;
    s.base_mask = "sse2";
    refused(&s, &promote, "fail|arms alike|they differ in machine.features: sse2 in the base, avx2 in the candidate");
    s = good;
    s.told_base = "n_threads"; /* whatever it was told, also if it were the same */
    refused(&s, &promote, "fail|arms alike|the base was told more than a recipe: n_threads");
    s = good;
    s.base_gates = "[\"debug.spin=50\"]";
    refused(&s, &promote, "fail|arms alike|the base has diagnostics");
    s = good;
    s.margin = 0.5;
    refused(&s, &promote, "fail|ab win|decided at 99 % with a margin of 50 %");
    s.margin = 0.005;
    s.level = 0.5;
    refused(&s, &promote, "fail|ab win|decided at 50 %");
    s = good;
    s.told_base = "model";
    refused(&s, &promote, "fail|arms alike|the base was told more than a recipe: model");
}

static void measured_elsewhere(void **state)
{
    (void)state;
    struct story s = good;
    s.ab_machine = "slide rule";
    refused(&s, &promote, "fail|one machine|its machine is another");
}

static void changed_weights(void **state)
{
    (void)state;
    struct story s = good;
    s.weights_b = 500;
    refused(&s, &promote, "the weights themselves were changed");
}

static void no_control_of_the_same_build(void **state)
{
    (void)state;
    struct story s = good;
    s.no_ab = true;
    refused(&s, &promote, "no record|same-build control");
    s = good;
    s.control_binary = "b0";
    refused(&s, &promote, "fail|same-build control|the comparison's base is another program");
    s = good;
    s.bench_binary = "b0";
    refused(&s, &promote, "fail|one build");
    s = good;
    s.this_build = false;
    refused(&s, &promote, "fail|one build|what was verified is another program");
}

static void an_edited_record(void **state)
{
    (void)state;
    char text[4000];
    struct journal *j = write_story(&good);
    journal_close(j);
    edit(db, "UPDATE record SET value = value * 2 WHERE kind = 'sample' AND name = 'tg64 t/s'");
    j = open_ok(db, JOURNAL_READ);
    assert_false(checks(j, &promote, text, NULL));
    if (!strstr(text, "record"))
        fail_msg("%s", text);
    journal_close(j);
}

static int made_tomorrow(void *user, const char *commit, int64_t *at)
{
    (void)user;
    assert_non_null(strstr(commit, "abcdef1"));
    *at = (int64_t)time(NULL) + 86400;
    return 0;
}

static void a_stale_build(void **state)
{
    (void)state;
    struct tier_claim claim = {.promote = true, .commit = "0123456789abcdef0123456789abcdef01234567"};
    refused(&good, &claim, "stale: its program was built from abcdef123456, not from 0123456789ab");
    claim.commit = "abcdef1234567890abcdef1234567890abcdef12";
    struct story s = good;
    s.commit = "abcdef123456-dirty";
    refused(&s, &claim, "changes that are not in");
    s.commit = "";
    refused(&s, &claim, "stale: its program was built from an unknown commit");
    claim.commit_time = made_tomorrow;
    refused(&good, &claim, "stale: it ran before the commit");
    claim.commit = NULL;
    refused(&good, &claim, "stale: it ran before the commit");
}

static int made_yesterday(void *user, const char *commit, int64_t *at)
{
    (void)user;
    (void)commit;
    *at = (int64_t)time(NULL) - 86400;
    return 0;
}

/* It says a commit that was not there when its file was written. */
static void a_program_file_older_than_its_commit(void **state)
{
    (void)state;
    char text[4000];
    struct tier_claim claim = {.promote = true, .commit_time = made_yesterday};
    struct story s = good;
    s.written = ((int64_t)time(NULL) - 2 * 86400) * 1000;
    refused(&s, &claim, "fail|build|stale: its program file is of ");
    s.written = ((int64_t)time(NULL) - 3600) * 1000;
    fresh(NULL);
    struct journal *j = write_story(&s);
    if (!checks(j, &claim, text, NULL))
        fail_msg("%s", text);
    journal_close(j);
}

static void the_best_must_have_been_beaten(void **state)
{
    (void)state;
    char text[4000];
    struct story s = good;
    struct journal *j = write_story(&good);
    int64_t run = begin_run(j, "tier", &good, "b1", NULL);
    note(j, run, "decision", json_pack("{s:s, s:s, s:s}", "decision", "promoted", "tier", "decode", "text", "fuse.linear=off"));
    end_with(j, run, json_pack("{s:s}", "status", "done"));
    assert_false(checks(j, &promote, text, NULL));
    assert_non_null(strstr(text, "fail|against the best|the comparison's base is not the recipe"));
    s.base_gates = "[\"fuse.linear=off\"]";
    write_ab(j, &s);
    if (!checks(j, &promote, text, NULL))
        fail_msg("%s", text);
    journal_close(j);
}

/* Over a base that is slow enough anything wins: what the first has to beat the tier says. */
static void the_first_beats_what_the_tier_says(void **state)
{
    (void)state;
    char text[4000], with_base[400];
    struct story s = good;
    s.base_gates = "[\"kernel=ref\"]";
    refused(&s, &promote,
            "fail|against the base|nothing was promoted yet, and the comparison's base is not what hone does by itself");
    snprintf(with_base, sizeof with_base, "%s    base kernel=ref\n", rules);
    tier_text = with_base;
    refused(&good, &promote,
            "fail|against the base|nothing was promoted yet, and the comparison's base is not the tier's, kernel=ref");
    fresh(NULL);
    struct journal *j = write_story(&s);
    bool passes = checks(j, &promote, text, NULL);
    journal_close(j);
    tier_text = rules;
    if (!passes)
        fail_msg("%s", text);
    assert_non_null(strstr(text, "pass|against the base|the comparison's base is the tier's"));
}

static void the_newest_run_counts(void **state)
{
    (void)state;
    char text[4000];
    struct story s = good;
    struct journal *j = write_story(&good);
    s.speed = 41;
    write_bench(j, &s);
    assert_false(checks(j, &promote, text, NULL));
    assert_non_null(strstr(text, "41 of 5 samples"));
    journal_close(j);
}

static void text_with_a_fault_names_its_line(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"bench tg t/s median >= 1", "t:1: the first statement"},
        {"tier a b", "t:1: a tier has a name"},
        {"tier a\nab win\ntier a\nab win", "t:3: a tier of this name"},
        {"tier a\n# nothing\nmodel x", "t:1: tier a asks for nothing"},
        {"tier a\ntier b\nab win", "t:1: tier a asks for nothing"},
        {"tier a\nbench tg64 t/s median => 4", "t:2: bench: >="},
        {"tier a\nbench tg64 t/s mean >= 4", "t:2: bench: median"},
        {"tier a\nbench tg64 t/s p100 >= 4", "t:2: bench: median"},
        {"tier a\nbench tg64 t/s median >= nan", "t:2: bench: the bound"},
        {"tier a\nbench median >= 4", "t:2: bench SERIES"},
        {"tier a\nbench", "t:2: bench SERIES"},
        {"tier a\nbench tg64 t/s median 4", "t:2: bench SERIES"},
        {"tier a\nbench tg64 t/s median >= ", "t:2: bench: the bound"},
        {"tier a\nbench tg64 t/s median =< 4", "t:2: bench: >="},
        {"tier a\nab win\ntier \xff\nab win", "t:3: no UTF-8"},
        {"tier a\nverify different", "t:2: a statement is"},
        {"tier a\nverify bit-identical\nverify quality-equal", "t:3: verify stands twice"},
        {"tier a\nmodel x\nmodel y\nab win", "t:3: model stands twice"},
        {"tier a\nfallbacks 0\nfallbacks 0", "t:3: fallbacks stands twice"},
        {"tier a\nab lose", "t:2: a statement is"},
        {"tier a\nab win\nbase", "t:3: a statement is"},
        {"tier a\nab win\nbase warp=on", "t:3: base:1: "},
        {"tier a\nab win\nbase fuse=off\nbase fuse=on", "t:4: base stands twice"},
        {"tier a\nfallbacks 1", "t:2: a statement is"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tiers t;
        struct hone_error e = {0};
        int rc = tiers_parse(&t, bad[i][0], "t", &e);
        if (rc != HONE_EINPUT || !strstr(e.message, bad[i][1]))
            fail_msg("'%s': code %d, '%s' lacks '%s'", bad[i][0], rc, e.message, bad[i][1]);
        tiers_free(&t);
    }
}

/* With spaces about the operator or without, and said as it was written. */
static void a_bench_rule_is_said_as_it_was_written(void **state)
{
    (void)state;
    static const char *const lines[][2] = {{"bench tg64 t/s median>=54", "bench tg64 t/s median >= 54"},
                                           {"bench tg64 @ d4096 t/s p10 <1.5", "bench tg64 @ d4096 t/s p10 < 1.5"},
                                           {"bench pp512 t/s min> 2", "bench pp512 t/s min > 2"},
                                           {"bench *ms max <= 1e3", "bench *ms max <= 1000"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct tiers t;
        struct hone_error e = {0};
        char text[200];
        snprintf(text, sizeof text, "tier a\n%s\n", lines[i][0]);
        if (tiers_parse(&t, text, "t", &e))
            fail_msg("%s: %s", lines[i][0], e.message);
        assert_string_equal(tier_bench_text(&t.list[0].benches[0], text, sizeof text), lines[i][1]);
        tiers_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_right_is_promoted, fresh),
        cmocka_unit_test(rules_fail_with_figures),
        cmocka_unit_test(fast_but_wrong),
        cmocka_unit_test(the_bench_s_own_word),
        cmocka_unit_test(verified_against_nothing_that_is_right),
        cmocka_unit_test(a_base_with_a_handicap),
        cmocka_unit_test(measured_elsewhere),
        cmocka_unit_test(changed_weights),
        cmocka_unit_test(no_control_of_the_same_build),
        cmocka_unit_test_setup(an_edited_record, fresh),
        cmocka_unit_test(a_stale_build),
        cmocka_unit_test(a_program_file_older_than_its_commit),
        cmocka_unit_test_setup(the_best_must_have_been_beaten, fresh),
        cmocka_unit_test(the_first_beats_what_the_tier_says),
        cmocka_unit_test_setup(the_newest_run_counts, fresh),
        cmocka_unit_test(text_with_a_fault_names_its_line),
        cmocka_unit_test(a_bench_rule_is_said_as_it_was_written),
    };
    return cmocka_run_group_tests_name("tiers", tests, NULL, clean);
}
