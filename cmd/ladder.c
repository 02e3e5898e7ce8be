/* ladder.c: hone ladder: a row a rung as it is done; the last line says whether the whole graph runs locally with no skip flag. */
#include "cmd/cmd.h"

#include "lab/ladder.h"
#include "lab/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int n_texts = 6, prompt_tokens = 32, n_greedy = 32;
static float seconds = 1.0f, kl_bound = 0.01f;
static const char *resume, *jsonl_path;
static bool no_cache;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"--texts", OPTION_INT, &n_texts, "N", "texts that are compared, of 12", 1, N_TEXTS},
        {"--prompt-tokens", OPTION_INT, &prompt_tokens, "N", "tokens of each text at most", 2, 4096},
        {"--greedy", OPTION_INT, &n_greedy, "N", "tokens that the reference goes on by, which are compared", 1, 4096},
        {"--seconds", OPTION_FLOAT, &seconds, "S", "time of each throughput measurement", 0.01, 3600},
        {"--kl", OPTION_FLOAT, &kl_bound, "X", "largest mean KL divergence that is kept", 0, 100},
        {"--jsonl", OPTION_GROWS, &jsonl_path, "FILE", "append a JSON line a rung, to resume from", 0, 0},
        {"--resume", OPTION_GROWS, &resume, "FILE", "take over rungs that FILE has, and append to it", 0, 0},
        {"--no-cache", OPTION_FLAG, &no_cache, NULL, "compute the reference's logits anew", 0, 0},
        OUTPUT_OPTION,
        LOCK_OPTION,
        JOURNAL_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

struct climber {
    FILE *lines;
    double first; /* decode rate of the reference */
    bool header;
    struct machine_state before;
    struct recording rec;
    struct hone_error failed; /* of the journal */
};

static void print_rung(struct climber *c, const struct rung *r)
{
    progress_end();
    if (!c->header && r->devices > 1)
        printf("over %d devices; the last rung is one of them with the threads of all\n", r->devices);
    if (!c->header)
        printf("%-26s %9s %9s %7s %7s %9s  %-16s %s\n", "rung", "decode/s", "prefill/s", "times", "top-1 %", "KL", "verdict", "kernels");
    c->header = true;
    double top = r->right.n ? 100.0 * (double)r->right.equal / (double)r->right.n : 0;
    printf("%-26s %9.1f %9.1f %6.1fx %7.2f %9.2e  %-16s %s%s%s\n", r->name, r->decode, r->prefill, c->first > 0 ? r->decode / c->first : 1, top,
           r->right.kl_mean, r->resumed ? "(earlier)" : r->kept ? compare_class_name(r->right.verdict) : "TAKEN BACK", r->kernels,
           r->why[0] ? (r->kernels[0] ? "; " : "") : "", r->why);
    fflush(stdout);
}

/* A rung that was measured now: its figures, which are medians, and all that was found. */
static int record(struct climber *c, const struct rung *r, json_t *found)
{
    const struct recording *rec = &c->rec;
    char series[100];
    int rc = journal_record(rec->journal, rec->run, "check", found, NULL, &c->failed);
    for (int prefill = 0; prefill < 2 && !rc && !r->resumed; prefill++) {
        double rate = prefill ? r->prefill : r->decode;
        snprintf(series, sizeof series, "rung %s %s t/s", r->name, prefill ? "prefill" : "decode");
        if (rate > 0)
            rc = journal_sample(rec->journal, rec->run, series, rate, NULL, &c->failed);
    }
    return rc;
}

static int each(void *user, const struct rung *r)
{
    struct climber *c = user;
    if (r->kind == RUNG_REFERENCE)
        c->first = r->decode;
    json_t *j = rung_json(r);
    int rc = record(c, r, j);
    if (c->lines && !r->resumed) {
        json_dumpf(j, c->lines, JSON_COMPACT);
        fputc('\n', c->lines);
        fflush(c->lines);
    }
    if (output_json()) {
        output_format = "jsonl";
        output_print(j);
    } else {
        json_decref(j);
        print_rung(c, r);
    }
    return rc || interrupted();
}

static int progress(void *user, const char *what, float done)
{
    (void)user;
    return progress_show(what, done);
}

static int open_lines(struct climber *c)
{
    const char *path = resume ? resume : jsonl_path;
    if (!path)
        return 0;
    if (resume && access(resume, R_OK) != 0)
        return cmd_refuse(HONE_EINPUT, "%s: %s", resume, strerror(errno));
    c->lines = fopen(path, "ae");
    return c->lines ? 0 : cmd_refuse(HONE_ERESOURCE, "%s: %s", path, strerror(errno));
}

static int climb(struct climber *c, const struct hone_model *m, bool *all_local)
{
    char cache[4096];
    struct hone_error e = {0};
    struct ladder_options o = {.session = hone_session_defaults(),
                               .n_texts = n_texts,
                               .prompt_tokens = (size_t)prompt_tokens,
                               .n_greedy = (size_t)n_greedy,
                               .seconds = (double)seconds,
                               .kl_bound = (double)kl_bound,
                               .cache = no_cache ? NULL : cmd_cache_folder(cache, sizeof cache),
                               .resume = resume};
    o.session.n_ctx = model_args.n_ctx ? model_args.n_ctx : prompt_tokens + n_greedy + 512;
    o.session.n_threads = model_args.n_threads;
    o.session.n_batch = model_args.n_batch;
    o.session.poll = model_args.poll;
    o.session.split_mode = model_args.split_mode;
    o.session.tensor_split = model_args.tensor_split;
    o.session.devices = model_args.devices;
    o.session.n_gpu_layers = model_args.n_gpu_layers;
    o.session.n_snapshots = model_args.n_snapshots;
    o.session.strict = model_args.strict;
    o.session.gates = model_args.set; /* below the ladder's own: which kernel an op takes once it may */
    interrupt_session(NULL);
    machine_look(&c->before, "");
    int rc = ladder_run(m, &o, each, progress, c, all_local, &e);
    cmd_warn_busy(&c->before, "meanwhile: small steps between rungs may be noise, the verdicts are not");
    if (c->failed.code)
        return cmd_fail(&c->failed);
    if (rc)
        return cmd_fail(&e);
    json_t *verdict = json_pack("{s:s}", "verdict", *all_local ? "all local" : "not all local");
    rc = journal_record(c->rec.journal, c->rec.run, "verdict", verdict, NULL, &e) ? cmd_fail(&e) : 0;
    json_decref(verdict);
    return rc;
}

/* What the run is of, for the journal: a split only where there is one, so that earlier runs on one device stay its history. */
static json_t *config_json(void)
{
    json_t *j = json_pack("{s:i, s:i, s:i, s:f, s:f, s:i, s:i}", "texts", n_texts, "prompt_tokens", prompt_tokens, "greedy",
                          n_greedy, "seconds", (double)seconds, "kl_bound", (double)kl_bound, "threads", model_args.n_threads,
                          "n_batch", model_args.n_batch);
    return cmd_split_config(j);
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct climber c = {0};
    bool all_local = false;
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "ladder: '%s' is no option", args[0]);
    if (model_args.recipe || model_args.type_k || model_args.type_v)
        return cmd_refuse(HONE_EUSAGE, "ladder: it sets gates and KV types itself; --recipe, -ctk and -ctv have no place here");
    if (strcmp(model_args.flash, "on") == 0)
        return cmd_refuse(HONE_EUSAGE, "ladder: it begins with attention on its reference; -fa on has no place here");
    if (jsonl_path && resume && strcmp(jsonl_path, resume) != 0)
        return cmd_refuse(HONE_EUSAGE, "ladder: --resume FILE appends to FILE; --jsonl names another");
    interrupt_session(NULL);
    int rc = cmd_lock_machine();
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc)
        rc = open_lines(&c);
    if (!rc)
        rc = cmd_journal_begin(&c.rec, "ladder", m, config_json());
    if (!rc)
        rc = climb(&c, m, &all_local);
    if (!rc) {
        if (!output_json())
            printf("%s\n", all_local ? "all local: the whole graph runs on fast kernels, with no skip flag, no fallback and no decline"
                                     : "NOT all local: see the rungs that were taken back, and the nodes left on references");
        rc = all_local ? output_flush() : -HONE_ECHECK;
    }
    if (c.lines)
        fclose(c.lines);
    hone_model_close(m);
    return cmd_journal_end(&c.rec, rc, NULL);
}

const struct command command_ladder = {
    "ladder", "from all-reference to all-local, one change a rung, each measured and judged", "",
    "hone ladder -m model.gguf --jsonl rungs.jsonl\nhone ladder -m model.gguf --plugin ./mine.so --set kernel.mul_mat.q4_0=mine", options, run, NULL,
};
