/* verify.c: hone verify: options, what is printed, the journal, the exit code: 0 when the class is at least --require
 * (quality-equal unless given), 1 when it is not. */
#include "cmd/cmd.h"

#include "lab/identity.h"
#include "lab/verify.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *spec_a = "base", *spec_b, *require_text = "quality-equal";
static int n_texts = N_TEXTS, prompt_tokens = 32, n_greedy = 64;
static float kl_bound = (float)VERIFY_KL_BOUND, loss_bound = (float)VERIFY_LOSS_BOUND;
static bool shadow;
static struct model_args args = {.poll = -1};

static const struct option *options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"--a", OPTION_TEXT, &spec_a, "ARM", "the reference: recipe, gates, binary, commit or model, as in hone ab", 0, 0},
        {"--b", OPTION_TEXT, &spec_b, "ARM", "the candidate", 0, 0},
        {"--require", OPTION_TEXT, &require_text, "CLASS",
         "exit with 1 below this: bit-identical, within-tolerance, token-identical or quality-equal", 0, 0},
        {"--texts", OPTION_INT, &n_texts, "N", "texts that are compared, of 12 kinds", 1, N_TEXTS},
        {"--prompt-tokens", OPTION_INT, &prompt_tokens, "N", "tokens of each prompt at most", 2, 4096},
        {"-n, --n-predict", OPTION_INT, &n_greedy, "N", "greedy tokens behind each prompt", 4, 65536},
        {"--kl", OPTION_FLOAT, &kl_bound, "X", "largest mean KL divergence of equal quality, nats", 0, 100},
        {"--loss", OPTION_FLOAT, &loss_bound, "X",
         "largest change of the loss (ln of the ratio of perplexities) of equal quality", 0, 100},
        {"--shadow", OPTION_FLAG, &shadow, NULL,
         "also hold every kernel of both sides to its reference in the running graph: slow", 0, 0},
        BOTH_OPTIONS(args, "sides"),
        OUTPUT_OPTION,
        JOURNAL_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- text */

static void print_weights(const struct verify *v)
{
    printf("%-14s", "weights/token");
    for (int i = 0; i < 2; i++) {
        const struct verify_side *s = &v->side[i];
        printf("%s %s %.0f bytes (", i ? "; " : "", i ? "B" : "A", s->weights_all);
        bool first = true;
        for (int f = 0; f < N_FORMATS; f++)
            if (s->weights[f] > 0) {
                printf("%s%s %.0f", first ? "" : ", ", format_get((enum format_id)f)->name, s->weights[f]);
                first = false;
            }
        printf(")");
    }
    double a = v->side[0].weights_all, b = v->side[1].weights_all;
    if (a > 0 && (b < a || b > a))
        printf("  CHANGED by %+.1f %%", 100 * (b / a - 1));
    putchar('\n');
}

static void print_side(const struct verify *v, int i)
{
    const struct verify_side *s = &v->side[i];
    printf("%-14s %s; %s; KV %s/%s%s\n", i ? "B" : "A", s->arm->spec, s->arm->set.model, s->type_k, s->type_v,
           s->steady ? "" : "; NOT STEADY");
    if (s->tokens_sha[0])
        printf("%-14s tokens %.16s... text %.16s...\n", "", s->tokens_sha, s->text_sha);
}

static void print_node(const char *what, const struct verify_node *n)
{
    printf("%-14s %s: %.9g instead of %.9g at row %lld, column %lld; NMSE %.3g, tolerance %.3g%s\n", what, n->tensor, n->got,
           n->want, (long long)n->row, (long long)n->column, n->nmse, n->tolerance,
           n->same_inputs ? "; it read the same on both sides" : "");
    printf("%-14s %s in A, %s in B\n", "", n->kernel[0], n->kernel[1]);
}

static void print_place(const struct verify *v, const char *what, size_t compared)
{
    int text;
    size_t position;
    if (compared >= v->logits.n)
        return;
    verify_place(v, compared, &text, &position);
    printf("%-14s position %zu of text %d\n", what, position, text);
}

static void print_logits(const struct verify *v)
{
    const struct comparison *c = &v->logits;
    printf("%-14s %zu of %zu positions (%.2f %%), %zu near-ties, %zu wrong\n", "same top", c->equal, c->n,
           100.0 * (double)c->equal / (double)c->n, c->excused, c->wrong);
    printf("%-14s mean %.3g, p99 %.3g, max %.3g nats (mean allowed: %.3g)\n", "KL", c->kl_mean, c->kl_p99, c->kl_max,
           v->o.kl_bound);
    printf("%-14s %.5f in A, %.5f in B, %+.5f +/- %.5f (allowed: %.3g)\n", "loss", v->loss[0], v->loss[1],
           v->loss[1] - v->loss[0], v->loss_error, v->o.loss_bound);
    printf("%-14s largest %.4g; NMSE mean %.3g, max %.3g\n", "logit error", c->largest_error, c->nmse, c->nmse_max);
    print_place(v, "other bits", v->first_bits);
    print_place(v, "other token", v->first_token);
    printf("%-14s %d of %d texts of %zu tokens are the same in A and B", "greedy", v->arrays_equal, v->o.n_texts,
           v->o.n_greedy);
    printf(v->n_degenerate ? "; %d are degenerate and prove nothing\n" : "\n", v->n_degenerate);
}

static void print_nodes(const struct verify *v)
{
    const struct verify_nodes *n = &v->nodes;
    if (!n->looked)
        return;
    printf("%-14s step %zu of text %d: %d values that both have, %d differ in bits\n", "nodes", n->step, n->text, n->n_common,
           n->n_different);
    if (n->first.tensor[0])
        print_node("first", &n->first);
    if (n->beyond.tensor[0] && strcmp(n->beyond.tensor, n->first.tensor) != 0)
        print_node("beyond", &n->beyond);
}

static void print_text(const struct verify *v)
{
    print_side(v, 0);
    print_side(v, 1);
    print_weights(v);
    if (v->compared) {
        print_logits(v);
        print_nodes(v);
    }
    for (size_t i = 0; i < json_array_size(v->tokenizer); i++)
        printf("%-14s %s\n", "tokenizer", json_string_value(json_array_get(v->tokenizer, i)));
    for (int i = 0; i < v->n_notes; i++)
        printf("%-14s %s\n", "note", v->notes[i]);
    for (int i = 0; i < v->n_reasons; i++)
        printf("%-14s %s\n", "reason", v->reasons[i]);
    printf("%-14s %s\n", "verdict", verify_class_name(v->verdict));
}

/* ---- the run */

static int stopped(void *user)
{
    (void)user;
    return interrupted();
}

static void tell(void *user, const char *what, float done)
{
    (void)user;
    progress_show(what, done);
}

static int read_arms(struct arm arms[2])
{
    struct arm_settings common = {.model = model_args.model,
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
    struct hone_error e = {0};
    char cache[4096];
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++)
        rc = arm_parse(&arms[i], i ? spec_b : spec_a, &common, &e);
    for (int i = 0; i < 2 && !rc; i++) {
        if (arms[i].commit)
            progress_show("building", 0);
        rc = arm_build(&arms[i], cmd_cache_folder(cache, sizeof cache), stopped, NULL, &e);
    }
    progress_end();
    return rc ? cmd_fail(&e) : 0;
}

/* Who the sides are, for whoever judges by the journal: a path can come to stand for another recipe. */
static int note_sides(struct recording *rec, const struct arm arms[2], struct hone_error *e)
{
    json_t *sides = json_array(), *note = json_pack("{s:o}", "sides", sides);
    int rc = note ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a record");
    for (int i = 0; i < 2 && !rc; i++) {
        const struct arm_settings *s = &arms[i].set;
        bool own = !arms[i].binary && !arms[i].commit && !arms[i].env;
        json_t *recipe = identity_recipe(s->recipe, s->gates, s->type_k, s->type_v, s->plugins, e);
        if (!recipe)
            rc = e->code;
        else if (json_array_append_new(sides, json_pack("{s:o, s:b, s:o}", "recipe", recipe, "this_build", own, "said", arm_said(&arms[i]))))
            rc = err_set(e, HONE_ERESOURCE, "no memory for a record");
    }
    rc = rc ? rc : journal_record(rec->journal, rec->run, "note", note, NULL, e);
    json_decref(note);
    return rc;
}

/* The model that the journal's run is of: A's. */
static int begin_record(struct recording *rec, const struct arm arms[2])
{
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    if (journal_args.off)
        return 0;
    if (!arms[0].set.model)
        return cmd_refuse(HONE_EUSAGE, "which model? give -m FILE");
    if (hone_model_open(&m, arms[0].set.model, &e))
        return cmd_fail(&e);
    int rc = cmd_journal_begin(rec, "verify", m,
                               json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:f}", "a", arms[0].spec, "b", arms[1].spec, "texts",
                                         n_texts, "prompt_tokens", prompt_tokens, "greedy", n_greedy, "kl_bound",
                                         (double)kl_bound, "loss_bound", (double)loss_bound));
    hone_model_close(m);
    return rc ? rc : note_sides(rec, arms, &e) ? cmd_fail(&e) : 0;
}

static int finish(const struct verify *v, const struct recording *rec, enum verify_class required)
{
    struct hone_error e = {0};
    json_t *j = verify_json(v);
    int rc = 0;
    progress_end();
    if (!j)
        return cmd_refuse(HONE_ERESOURCE, "no memory for the result");
    if (journal_record(rec->journal, rec->run, "verdict", j, NULL, &e))
        rc = cmd_fail(&e);
    if (output_json()) {
        int printed = output_print(j);
        rc = rc ? rc : printed;
    } else {
        json_decref(j);
        print_text(v);
        rc = rc ? rc : output_flush();
    }
    return rc ? rc : v->verdict > required ? -HONE_ECHECK : 0;
}

static int run(int n_args, char **words)
{
    struct arm arms[2] = {{.file = -1}, {.file = -1}};
    struct verify v = {0};
    struct recording rec = {0};
    struct hone_error e = {0};
    enum verify_class required;
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "verify: '%s' is no option; the sides are given by --a and --b", words[0]);
    if (!spec_b)
        return cmd_refuse(HONE_EUSAGE, "verify: what is to be compared? give --b ARM");
    if (cmd_alone(
            "verify",
            "compare groups of threads (-sm tensor -ts 1/1, without mpirun), whose logits are the bits of as many processes"))
        return -HONE_EUSAGE;
    if (verify_class_find(require_text, &required))
        return cmd_refuse(HONE_EUSAGE,
                          "--require %s: bit-identical, within-tolerance, token-identical and quality-equal are possible",
                          require_text);
    interrupt_session(NULL);
    int rc = read_arms(arms);
    if (!rc)
        rc = begin_record(&rec, arms);
    if (!rc) {
        struct verify_options o = {.n_texts = n_texts,
                                   .prompt_tokens = (size_t)prompt_tokens,
                                   .n_greedy = (size_t)n_greedy,
                                   .kl_bound = (double)kl_bound,
                                   .loss_bound = (double)loss_bound,
                                   .shadow = shadow,
                                   .cancelled = stopped,
                                   .tell = tell};
        rc = verify_run(&v, &arms[0], &arms[1], &o, &e) ? cmd_fail(&e) : finish(&v, &rec, required);
    }
    rc = cmd_journal_end(&rec, rc, v.compared ? json_pack("{s:s}", "verdict", verify_class_name(v.verdict)) : NULL);
    verify_free(&v);
    arm_free(&arms[0]);
    arm_free(&arms[1]);
    return rc;
}

const struct command command_verify = {
    "verify",
    "do two recipes, builds or models say the same? tokens, logits and nodes compared",
    "",
    "hone verify -m model.gguf --b mine.recipe\n  hone verify -m model.gguf --a kernel=ref --b base --require token-identical\n"
    "  hone verify -m model.gguf --a git=HEAD~1 --b base --require bit-identical\n  hone verify --a model=q8.gguf --b "
    "model=q4.gguf",
    options,
    run,
    NULL,
};
