/* ab.c: hone ab: options, the order of things, the journal, the exit code: 0 when it was measured, whatever came of it; 1 when
 * the result is not to be trusted (A/A failed, unstable output, something was replaced meanwhile), when the arms differ in what
 * nobody declared, or when --require is not met. */
#include "cmd/ab.h"
#include "cmd/cmd.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "lab/ab_record.h"
#include "lab/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRESH_BLOCKS = 40, SESSION_BLOCKS = 64 };

static const char *spec_a = "base", *require_text;
static char *specs_b;
static bool aa, in_process, no_early, confirm, allow, verify;
static int blocks, n_prompt, n_gen, n_depth, repeats;
static float margin = 0.5f, level = 99, sample_seconds;
static uint64_t seed = 1;
static struct model_args args = {.poll = -1};

static const struct option *options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"--a", OPTION_TEXT, &spec_a, "ARM",
         "the base: recipe, gates, binary, commit or model (see the manual); \"base\": as it is", 0, 0},
        {"--b", OPTION_APPEND, &specs_b, "ARM", "the candidate; repeatable: several are judged together and winners confirmed",
         0, 0},
        {"--aa", OPTION_FLAG, &aa, NULL, "first compare A with itself: the machine's own noise", 0, 0},
        {"--in-process", OPTION_FLAG, &in_process, NULL,
         "a new session a sample, not a new process: faster, for recipes and gates", 0, 0},
        {"-p, --n-prompt", OPTION_INT, &n_prompt, "N", "measure a prompt of N tokens", 0, 65536},
        {"-n, --n-gen", OPTION_INT, &n_gen, "N", "measure N generated tokens (neither -p nor -n: single steps)", 0, 65536},
        {"-d, --n-depth", OPTION_INT, &n_depth, "N", "positions in the context before", 0, 1 << 24},
        {"-r, --repetitions", OPTION_INT, &repeats, "N",
         "runs of the test in a sample, which is their lower decile (0: as many as needed)", 0, 400},
        {"--sample", OPTION_FLOAT, &sample_seconds, "SECONDS",
         "length of a sample where -r leaves it open (0: 0.1, in-process 0.04)", 0, 600},
        {"--blocks", OPTION_INT, &blocks, "N", "blocks of four samples (0: 40, in-process 64)", 0, AB_MAX_BLOCKS},
        {"--margin", OPTION_FLOAT, &margin, "PERCENT", "differences up to this do not matter", 0, 50},
        {"--level", OPTION_FLOAT, &level, "PERCENT", "of the interval that decides", 50, 99.99},
        {"--no-early", OPTION_FLAG, &no_early, NULL, "take all blocks, also when the always-valid sequence has decided", 0, 0},
        {"--confirm", OPTION_FLAG, &confirm, NULL, "measure a winner afresh also where it is the only candidate", 0, 0},
        {"--verify", OPTION_FLAG, &verify, NULL,
         "where a win's or loss's output differs: say by hone verify what the difference is", 0, 0},
        {"--allow-differences", OPTION_FLAG, &allow, NULL, "list differences that nobody declared instead of refusing them", 0,
         0},
        {"--require", OPTION_TEXT, &require_text, "VERDICT",
         "exit with 1 unless every candidate is a win (win), or none is a loss (no-loss)", 0, 0},
        {"--seed", OPTION_U64, &seed, "N", "of the order of blocks and the bootstrap", 0, 0},
        BOTH_OPTIONS(args, "arms"),
        OUTPUT_OPTION,
        LOCK_OPTION,
        JOURNAL_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- while it runs */

struct running {
    struct rig rig;
    struct contest contest;
    struct contest_rules rules;
    struct ab_report report;
    struct recording rec;
    const struct match *match; /* at hand */
    int index;                 /* which of the run */
    int64_t began;
    struct hone_error journal_error;
};

static int stopped(void *user)
{
    (void)user;
    return interrupted();
}

static void session(void *user, struct hone_session *s)
{
    (void)user;
    interrupt_session(s);
}

static void tell(void *user, const char *what)
{
    (void)user;
    progress_show(what, 0);
}

static void tell_share(void *user, const char *what, float done)
{
    (void)user;
    progress_show(what, done);
}

static int take_sample(void *user, int arm, struct ab_sample *s, struct hone_error *e)
{
    struct running *r = user;
    int64_t start = clock_ns();
    int rc = rig_sample(&r->rig, arm, s, e);
    r->report.seconds += (double)(clock_ns() - start) / 1e9;
    r->report.samples++;
    return rc;
}

static int begin(void *user, const struct match *m)
{
    struct running *r = user;
    r->match = m;
    return ab_record_match(r->rec.journal, r->rec.run, r->index, m, &r->contest, &r->journal_error);
}

static int each(void *user, const struct ab_sample *s, const struct ab_result *so_far)
{
    struct running *r = user;
    char test[64], line[128], name[16];
    if (ab_record_sample(r->rec.journal, r->rec.run, r->index, r->match, s, rig_test_name(&r->rig, test, sizeof test),
                         r->rig.test.n_prompt + r->rig.test.n_gen, &r->journal_error))
        return 1;
    const char *who = r->match->kind == MATCH_AA ? "A/A" : ab_name(&r->report, r->match->candidate, name, sizeof name);
    if (so_far) {
        snprintf(line, sizeof line, "%s: %d of %d blocks, %.0f s, so far %+.1f %%; done", who, so_far->n_blocks,
                 r->match->rules.blocks, (double)(clock_ns() - r->began) / 1e9, 100 * so_far->gain.centre);
        progress_show(line, (float)so_far->n_blocks / (float)r->match->rules.blocks);
    }
    return interrupted();
}

static int end(void *user, const struct match *m)
{
    struct running *r = user;
    r->index++;
    if (!output_json())
        ab_print_match(&r->report, m);
    return 0;
}

/* ---- before */

static int read_rules(struct contest_rules *r)
{
    struct hone_error e = {0};
    *r = (struct contest_rules){.ab = ab_defaults(), .aa = aa, .confirm = confirm};
    r->ab.blocks = blocks ? blocks : in_process ? SESSION_BLOCKS : FRESH_BLOCKS;
    r->ab.early = !no_early;
    r->ab.level = (double)level / 100;
    r->ab.margin = (double)margin / 100;
    r->ab.seed = seed;
    if (require_text && strcmp(require_text, "win") != 0 && strcmp(require_text, "no-loss") != 0)
        return cmd_refuse(HONE_EUSAGE, "--require %s: win and no-loss are possible", require_text);
    return ab_rules_check(&r->ab, &e) ? cmd_fail(&e) : 0;
}

static struct arm_settings common_settings(void)
{
    return (struct arm_settings){.model = model_args.model,
                                 .recipe = model_args.recipe,
                                 .gates = model_args.set,
                                 .plugins = model_args.plugins,
                                 .type_k = args.type_k,
                                 .type_v = args.type_v,
                                 .mask = model_args.mask,
                                 .split_mode = args.split_mode,
                                 .tensor_split = args.tensor_split,
                                 .devices = args.devices,
                                 .n_batch = args.n_batch,
                                 .n_threads = args.n_threads,
                                 .poll = args.poll,
                                 .strict = model_args.strict};
}

/* Reads what is said of an arm; a commit becomes a binary. */
static int read_arm(struct arm *a, const char *spec)
{
    struct arm_settings common = common_settings();
    struct hone_error e = {0};
    char cache[4096];
    int rc = arm_parse(a, spec, &common, &e);
    if (!rc && a->commit)
        progress_show("building the commit", 0);
    rc = rc ? rc : arm_build(a, cmd_cache_folder(cache, sizeof cache), stopped, NULL, &e);
    progress_end();
    return rc ? cmd_fail(&e) : 0;
}

/* The arms: A, then each line of specs_b. */
static int read_arms(struct arm **arms, int *n_arms)
{
    *arms = calloc(CONTEST_MAX + 1, sizeof **arms);
    if (!*arms)
        return cmd_refuse(HONE_ERESOURCE, "no memory for arms");
    int rc = read_arm(&(*arms)[(*n_arms)++], spec_a);
    for (char *line = specs_b, *next; !rc && line && *line; line = next) {
        next = strchr(line, '\n') + 1;
        next[-1] = 0;
        if (*n_arms > CONTEST_MAX)
            rc = cmd_refuse(HONE_EUSAGE, "more than %d candidates", CONTEST_MAX);
        else
            rc = read_arm(&(*arms)[(*n_arms)++], line);
    }
    return rc;
}

static int open_rig(struct running *r, struct arm *arms, int n_arms)
{
    struct hone_error e = {0};
    char cache[4096];
    struct rig_options o = {.in_process = in_process,
                            .test = {n_prompt, n_gen, n_depth, repeats},
                            .sample_s = (double)sample_seconds,
                            .cache = cmd_cache_folder(cache, sizeof cache),
                            .cancelled = stopped,
                            .session = session,
                            .tell = tell,
                            .user = r};
    struct machine_state before;
    machine_look(&before, "");
    int rc = rig_open(&r->rig, arms, n_arms, &o, &e);
    r->rig.o.cache = NULL;
    progress_end();
    if (!rc)
        cmd_warn_busy(&before, "before the first sample: a busy machine hides small differences");
    if (!verbose) /* what a session says at its start was said at its first */
        log_to(NULL, NULL, LOG_WARN);
    return rc ? cmd_fail(&e) : 0;
}

/* Refused before anything is measured. */
static int compare_identities(struct running *r)
{
    for (int i = 1; i < r->rig.n_arms; i++) {
        int undeclared;
        json_t *d = r->report.differences[i] = arm_differences(&r->rig.arms[0], &r->rig.arms[i], &undeclared);
        if (!d)
            return cmd_refuse(HONE_ERESOURCE, "no memory for identities");
        size_t k;
        json_t *one;
        json_array_foreach(d, k, one)
        {
            const char *a = json_string_value(json_object_get(one, "a")), *b = json_string_value(json_object_get(one, "b"));
            if (!strcmp(json_string_value(json_object_get(one, "status")), "undeclared"))
                fprintf(stderr, "hone: %s: arms '%s' and '%s' differ in %s, which neither declares: %.100s | %.100s\n",
                        allow ? "warning" : "refused", r->rig.arms[0].spec, r->rig.arms[i].spec,
                        json_string_value(json_object_get(one, "what")), a ? a : "(none)", b ? b : "(none)");
        }
        if (undeclared && !allow)
            return cmd_refuse(
                HONE_ECHECK,
                "a comparison of more than one thing tells nothing of any; --allow-differences lists them and goes on");
        if (!json_array_size(d) && !allow)
            fprintf(stderr, "hone: warning: the arms '%s' and '%s' are the same: this is an A/A comparison\n",
                    r->rig.arms[0].spec, r->rig.arms[i].spec);
    }
    return 0;
}

static int open_journal(struct running *r)
{
    char test[64];
    json_t *specs = json_array(), *identities = json_array(), *said = json_array();
    for (int i = 0; i < r->rig.n_arms; i++) {
        json_array_append_new(specs, json_string(r->rig.arms[i].spec));
        json_array_append(identities, r->rig.arms[i].identity);
        json_array_append_new(said, arm_said(&r->rig.arms[i]));
    }
    json_t *config = json_pack("{s:s, s:i, s:b, s:o, s:f}", "test", rig_test_name(&r->rig, test, sizeof test), "repetitions",
                               r->rig.test.repeats, "in_process", in_process, "arms", specs, "margin", r->rules.ab.margin);
    struct hone_error e = {0};
    int rc = cmd_journal_begin(&r->rec, "ab", r->rig.model, config);
    json_t *note = json_pack("{s:o, s:o}", "identities", identities, "said", said);
    if (!rc && journal_record(r->rec.journal, r->rec.run, "note", note, NULL, &e))
        rc = cmd_fail(&e);
    json_decref(note);
    return rc;
}

/* ---- after */

/* hone verify's word on a candidate whose output is not the base's. */
static int verify_one(struct running *r, int candidate)
{
    struct arm sides[2] = {{.file = -1}, {.file = -1}};
    struct verify v = {0};
    struct hone_error e = {0};
    struct verify_options o = {.n_texts = N_TEXTS, /* as hone verify does unless it is told otherwise */
                               .prompt_tokens = 32,
                               .n_greedy = 64,
                               .kl_bound = VERIFY_KL_BOUND,
                               .loss_bound = VERIFY_LOSS_BOUND,
                               .cancelled = stopped,
                               .tell = tell_share};
    int rc = read_arm(&sides[0], r->rig.arms[0].spec);
    rc = rc ? rc : read_arm(&sides[1], r->rig.arms[candidate].spec);
    if (!rc)
        rc = verify_run(&v, &sides[0], &sides[1], &o, &e) ? cmd_fail(&e) : 0;
    progress_end();
    if (!rc) {
        json_t *check = verify_json(&v);
        r->report.verified[candidate] = verify_class_name(v.verdict);
        rc = journal_record(r->rec.journal, r->rec.run, "check", check, NULL, &e) ? cmd_fail(&e) : 0;
        json_decref(check);
    }
    verify_free(&v);
    arm_free(&sides[0]);
    arm_free(&sides[1]);
    return rc;
}

static int verify_outputs(struct running *r)
{
    int rc = 0;
    for (int i = 0; i < r->contest.n_standings && !rc; i++) {
        const struct standing *s = &r->contest.standings[i];
        bool same = s->match->result.outputs == AB_OUTPUTS_EQUAL || s->match->result.outputs == AB_OUTPUTS_UNSTABLE;
        if ((s->outcome == AB_WIN || s->outcome == AB_LOSS) && !same)
            rc = verify_one(r, i + 1);
    }
    return rc;
}

static int judge_exit(const struct running *r)
{
    char verdict[128], name[16];
    int rc = r->contest.aa_failed ? -HONE_ECHECK : 0;
    for (int i = 0; i < r->contest.n_matches; i++)
        if (r->contest.matches[i].result.outputs == AB_OUTPUTS_UNSTABLE)
            rc = -HONE_ECHECK;
    for (int i = 0; i < r->contest.n_standings && require_text; i++) {
        ab_verdict(&r->report, i + 1, verdict, sizeof verdict);
        bool met = strcmp(require_text, "win") ? !strcmp(verdict, "win") || !strcmp(verdict, "no difference")
                                               : !strcmp(verdict, "win");
        if (!met)
            rc = cmd_refuse(HONE_ECHECK, "--require %s: %s is '%s'", require_text,
                            ab_name(&r->report, i + 1, name, sizeof name), verdict);
    }
    return rc;
}

/* What became of what was expected. */
static json_t *outcome_json(const struct running *r)
{
    json_t *list = json_array();
    char verdict[128];
    for (int i = 0; i < r->contest.n_standings; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:f}", "spec", r->rig.arms[i + 1].spec, "verdict",
                                              ab_verdict(&r->report, i + 1, verdict, sizeof verdict), "gain",
                                              r->contest.standings[i].match->result.gain.centre));
    return json_pack("{s:o}", "standings", list);
}

static int finish(struct running *r, int rc)
{
    struct machine here;
    machine_describe(&here, "");
    r->report.warnings =
        machine_warnings(&here, &r->report.change, hone_build(), args.n_threads ? args.n_threads : cpu_cores());
    size_t i;
    json_t *w;
    progress_end();
    json_array_foreach(r->report.warnings, i, w) fprintf(stderr, "hone: warning: %s\n", json_string_value(w));
    if (output_json()) {
        int printed = output_print(ab_report_json(&r->report));
        rc = rc ? rc : printed;
    } else {
        if (rc && r->contest.n_matches > r->index) /* broken off: what the whole blocks say */
            ab_print_match(&r->report, &r->contest.matches[r->contest.n_matches - 1]);
        ab_print_end(&r->report);
    }
    return rc ? rc : judge_exit(r);
}

static int measure(struct running *r)
{
    struct hone_error e = {0};
    struct machine_state before, after;
    struct contest_source from = {r, begin, end, take_sample, each};
    if (!output_json())
        ab_print_arms(&r->report);
    ab_tell_duration(&r->report);
    machine_look(&before, "");
    r->began = clock_ns();
    int rc = contest_run(&r->contest, &r->rules, r->rig.n_arms - 1, &from, &e);
    machine_look(&after, "");
    r->report.change = machine_between(&before, &after);
    if (rc && r->journal_error.code)
        e = r->journal_error;
    if (!rc)
        rc = rig_check(&r->rig, &e);
    if (!rc || rc == HONE_ECANCELED) { /* of what was measured; a replaced file has no verdict */
        for (int i = 0; i < r->rig.n_arms && i < 64; i++)
            r->contest.diagnostics |= (uint64_t)(rig_diagnostic(&r->rig.arms[i]) != NULL) << i;
        json_t *verdict = ab_record_verdict(&r->contest);
        int failed = journal_record(r->rec.journal, r->rec.run, "verdict", verdict, NULL, rc ? &r->journal_error : &e);
        rc = rc ? rc : failed;
        json_decref(verdict);
    }
    rc = rc ? cmd_fail(&e) : verify ? verify_outputs(r) : 0;
    return finish(r, rc);
}

static int run(int n_args, char **words)
{
    struct running r = {0};
    struct arm *arms = NULL;
    json_t *differences[CONTEST_MAX + 1] = {NULL}, *outcome = NULL;
    int n_arms = 0;
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "ab: '%s' is no option; arms are given by --a and --b", words[0]);
    if (!specs_b && !aa)
        return cmd_refuse(HONE_EUSAGE, "ab: what is to be compared? give --b ARM, or --aa for the machine's own noise");
    if (!in_process &&
        cmd_alone("ab", "--in-process compares sessions over them (-sm=tensor in an arm) with each other and with one device"))
        return -HONE_EUSAGE;
    interrupt_session(NULL);
    int rc = read_rules(&r.rules);
    if (!rc)
        rc = read_arms(&arms, &n_arms);
    if (!rc && in_process) {
        struct hone_error e = {0};
        rc = model_args.mask && cpu_mask(model_args.mask, &e) ? cmd_fail(&e) : cmd_load_plugins();
    }
    if (!rc)
        rc = cmd_lock_machine();
    if (!rc)
        rc = open_rig(&r, arms, n_arms);
    r.report = (struct ab_report){.rig = &r.rig, .contest = &r.contest, .rules = &r.rules, .differences = differences};
    if (!rc)
        rc = compare_identities(&r);
    if (!rc)
        rc = open_journal(&r);
    if (!rc) {
        rc = measure(&r);
        outcome = outcome_json(&r);
    }
    rc = cmd_journal_end(&r.rec, rc, outcome);
    contest_free(&r.contest);
    rig_close(&r.rig);
    json_decref(r.report.warnings);
    for (int i = 0; i < n_arms; i++) {
        json_decref(differences[i]);
        arm_free(&arms[i]);
    }
    free(arms);
    return rc;
}

const struct command command_ab = {
    "ab",
    "compare two ways of running a model: paired, interleaved, with an interval and a verdict",
    "",
    "hone ab -m model.gguf --aa --b fuse.mlp=off\nhone ab -m model.gguf --a best.recipe --b mine.recipe --in-process\n"
    "hone ab -m model.gguf --a git=HEAD~1 --b git=HEAD --hypothesis 'one barrier less a layer' --expect 1",
    options,
    run,
    NULL,
};
