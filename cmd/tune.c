/* tune.c: hone tune: times the kernels that fit and writes the fastest as a recipe. */
#include "cmd/cmd.h"

#include "base/cpu.h"
#include "lab/tune.h"

#include <string.h>

static const char *out_path;
static int n_prompt = 64, repeats = 9;
static float margin = 0.02f;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"--out", OPTION_OUTPUT, &out_path, "FILE", "write the recipe there (default: stdout)", 0, 0},
        {"-p, --n-prompt", OPTION_INT, &n_prompt, "N", "tokens of the prefill that is timed", 2, 65536},
        {"-r, --repetitions", OPTION_INT, &repeats, "N", "steps a variant; each node's median counts", 1, 1000},
        {"--margin", OPTION_FLOAT, &margin, "X", "how much faster than the table's own choice another must be", 0, 1},
        OUTPUT_OPTION,
        LOCK_OPTION,
        JOURNAL_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int progress(void *user, float done)
{
    (void)user;
    return progress_show("tune", done);
}

static void print_table(const struct tune *t)
{
    progress_end();
    fprintf(stderr, "%-26s %-8s %5s  %-20s %11s %11s\n", "op", "format", "nodes", "variant", "decode us", "prefill us");
    for (int i = 0; i < t->n; i++)
        for (int v = 0; v < t->choices[i].n_variants; v++) {
            const struct tune_choice *c = &t->choices[i];
            fprintf(stderr, "%-26s %-8s %5d  %-20s %11.1f %11.1f%s\n", v ? "" : op_get(c->op)->name, v ? "" : format_get(c->format)->name,
                    c->nodes, c->variants[v], c->decode_ns[v] / 1e3, c->prefill_ns[v] / 1e3,
                    v == c->best ? (v ? "  <- chosen" : "  <- the table's choice stays") : "");
        }
    fprintf(stderr, "verdict against the reference: %s%s%s\n", compare_class_name(t->right.verdict), t->right.reason[0] ? ": " : "",
            t->right.reason);
}

static json_t *tune_json(const struct tune *t)
{
    json_t *choices = json_array();
    for (int i = 0; i < t->n; i++) {
        const struct tune_choice *c = &t->choices[i];
        json_t *variants = json_array();
        for (int v = 0; v < c->n_variants; v++)
            json_array_append_new(variants, json_pack("{s:s, s:f, s:f}", "variant", c->variants[v], "decode_ns", c->decode_ns[v], "prefill_ns",
                                                      c->prefill_ns[v]));
        json_array_append_new(choices, json_pack("{s:s, s:s, s:i, s:s, s:o}", "op", op_get(c->op)->name, "format", format_get(c->format)->name,
                                                 "nodes", c->nodes, "chosen", c->variants[c->best], "variants", variants));
    }
    return json_pack("{s:i, s:s, s:o, s:o}", "schema_version", 1, "recipe", t->gates, "choices", choices, "correctness",
                     comparison_json(&t->right));
}

static int write_recipe(const struct tune *t)
{
    struct whole w = {.file = stdout};
    int rc = out_path ? files_open(&w, out_path) : 0;
    if (rc)
        return rc;
    fprintf(w.file, "# hone tune: the fastest kernels of %s on %s with %d threads\n%s%s", model_args.model, cpu_name(),
            model_args.n_threads ? model_args.n_threads : cpu_cores(), t->gates,
            strlen(t->gates) > (model_args.set ? strlen(model_args.set) : 0) ? "" : "# the table's own choices are the fastest here\n");
    return out_path ? files_close(&w, 0) : output_flush();
}

/* Of each variant that ran: the sums of its nodes' medians. */
static int record(const struct recording *rec, const struct tune *t, struct hone_error *e)
{
    json_t *found = tune_json(t), *verdict = json_pack("{s:s, s:s}", "verdict", compare_class_name(t->right.verdict), "recipe", t->gates);
    char series[160];
    int rc = journal_record(rec->journal, rec->run, "check", found, NULL, e);
    for (int i = 0; i < t->n; i++)
        for (int v = 0; v < 2 * t->choices[i].n_variants && !rc; v++) {
            const struct tune_choice *c = &t->choices[i];
            double ns = (v % 2 ? c->prefill_ns : c->decode_ns)[v / 2];
            snprintf(series, sizeof series, "%s %s %s %s us", op_get(c->op)->name, format_get(c->format)->name, c->variants[v / 2],
                     v % 2 ? "prefill" : "decode");
            if (ns > 0)
                rc = journal_sample(rec->journal, rec->run, series, ns / 1e3, NULL, e);
        }
    rc = rc ? rc : journal_record(rec->journal, rec->run, "verdict", verdict, NULL, e);
    json_decref(found);
    json_decref(verdict);
    return rc;
}

static void session_runs(void *user, struct hone_session *s)
{
    (void)user;
    interrupt_session(s);
}

/* Which nodes there are is the user's to say, which kernels run them is what tune finds out. */
static int check_set(void)
{
    for (const char *gate = model_args.set; gate && *gate; gate = strchr(gate, '\n') + 1)
        if (strncmp(gate, "fuse", 4) != 0)
            return cmd_refuse(HONE_EUSAGE, "tune: it chooses kernels itself; --set takes fusions alone here (fuse=off, fuse.mlp=off)");
    return 0;
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    struct tune t = {0};
    struct recording rec = {0};
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "tune: '%s' is no option", args[0]);
    if (model_args.recipe)
        return cmd_refuse(HONE_EUSAGE, "tune: it sets gates itself; --recipe has no place here");
    if (strcmp(model_args.flash, "on") == 0)
        return cmd_refuse(HONE_EUSAGE, "tune: it tries every kernel of attention itself; -fa on has no place here");
    interrupt_session(NULL);
    int rc = check_set();
    if (!rc)
        rc = cmd_lock_machine();
    if (!rc)
        rc = cmd_refuse_split("tune", "it times the kernels of a whole model");
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc)
        rc = cmd_journal_begin(&rec, "tune", m, json_pack("{s:i, s:i, s:f, s:i}", "n_prompt", n_prompt, "repetitions", repeats, "margin",
                                                          (double)margin, "threads", model_args.n_threads));
    if (!rc) {
        struct tune_options o = {.session = hone_session_defaults(), .prefill = n_prompt, .repeats = repeats, .margin = (double)margin,
                                 .session_runs = session_runs,
                                 .n_threads = model_args.n_threads ? model_args.n_threads : cpu_cores()};
        o.session.n_ctx = model_args.n_ctx ? model_args.n_ctx : n_prompt + 128;
        o.session.n_threads = model_args.n_threads;
        o.session.poll = model_args.poll;
        o.session.devices = model_args.devices;
        o.session.n_gpu_layers = model_args.n_gpu_layers;
        o.session.type_k = model_args.type_k;
        o.session.type_v = model_args.type_v;
        o.base = model_args.set ? model_args.set : "";
        interrupt_session(NULL);
        if (tune_run(&t, m, &o, progress, NULL, &e) || record(&rec, &t, &e))
            rc = cmd_fail(&e);
        progress_end();
    }
    if (!rc && !output_json())
        print_table(&t);
    if (!rc && t.right.verdict == CLASS_DIFFERENT)
        rc = cmd_refuse(HONE_ECHECK, "the recipe is not right: %s", t.right.reason);
    if (!rc)
        rc = output_json() ? output_print(tune_json(&t)) : write_recipe(&t);
    tune_free(&t);
    hone_model_close(m);
    return cmd_journal_end(&rec, rc, NULL);
}

const struct command command_tune = {
    "tune", "time the kernels that fit here and write the fastest as a recipe", "", "hone tune -m model.gguf --out fast.recipe", options, run, NULL,
};
