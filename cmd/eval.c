/* eval.c: hone eval: the logits of given tokens, for comparing engines number by number. */
#include "cmd/conversation.h"

#include "lab/eval_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *token_text, *token_file, *logits_path, *jobs_path;
static int n_greedy;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"--tokens", OPTION_TEXT, &token_text, "LIST", "token ids, e.g. 1,2,3", 0, 0},
        {"-f, --file", OPTION_INPUT, &token_file, "FILE", "token ids from a file; - is stdin", 0, 0},
        {"--logits-out", OPTION_OUTPUT, &logits_path, "FILE", "raw little-endian f32, a row of n_vocab for each position", 0, 0},
        {"--greedy", OPTION_INT, &n_greedy, "N", "then N greedy tokens", 0, 1 << 24},
        SESSION_FILE_OPTIONS,
        {"--jobs", OPTION_INPUT, &jobs_path, "FILE", "a JSON object a line (lab/eval_job.h), each answered by a line; - is stdin", 0, 0},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* The logits are written beside their name and renamed once everything is done, so that a failure or an interruption leaves what was
 * there. */
static struct whole logits;

static int write_logits(const struct hone_session *s, size_t rows, size_t n_vocab, struct hone_error *e)
{
    int rc = whole_begin(&logits, logits_path, e);
    if (!rc && fwrite(hone_session_logits(s, 0), sizeof(float), rows * n_vocab, logits.file) != rows * n_vocab) /* rows lie one behind the other */
        rc = err_set(e, HONE_ERESOURCE, "%s: %s", logits_path, strerror(errno));
    return rc;
}

/* c: what was said before; its last token, if the session does not hold it, comes first, and its logits are nobody's. */
static int evaluate(struct hone_session *s, const struct hone_model *m, struct conversation *c, const int32_t *ids, size_t n, json_t *greedy,
                    struct hone_error *e)
{
    size_t n_vocab = (size_t)hone_model_n_vocab(m), before = c->unfed >= 0;
    struct hone_token *tokens = calloc(before + n, sizeof *tokens);
    if (!tokens)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", n);
    if (before)
        tokens[0] = (struct hone_token){c->unfed, 0, false};
    for (size_t i = 0; i < n; i++)
        tokens[before + i] = (struct hone_token){ids[i], 0, logits_path || i + 1 == n};
    int rc = hone_session_eval(s, tokens, before + n, e);
    free(tokens);
    conversation_clear(c);
    c->plain = true;
    size_t rows = logits_path ? n : 1;
    if (!rc && logits_path)
        rc = write_logits(s, rows, n_vocab, e);
    for (int i = 0; i < n_greedy && !rc; i++) {
        int32_t id = sampler_argmax(hone_session_logits(s, rows - 1), (int32_t)n_vocab);
        json_array_append_new(greedy, json_integer(id));
        rows = 1;
        c->unfed = id;
        if (i + 1 < n_greedy && !(rc = hone_session_eval(s, &(struct hone_token){id, 0, true}, 1, e)))
            c->unfed = -1;
    }
    return rc;
}

/* Files that a job writes, as those of options. */
static int check_job(const json_t *job)
{
    const char *const paths[] = {json_string_value(json_object_get(job, "logits")),
                                 json_string_value(json_object_get(json_object_get(job, "nodes"), "file"))};
    int rc = 0;
    for (size_t i = 0; i < 2 && !rc; i++)
        if (paths[i] && *paths[i])
            rc = files_check_output(paths[i], i ? "file" : "logits");
    return rc;
}

/* Who answers, then an answer a job; each line is flushed, so that what was done is there if a later job fails. */
static int answer_jobs(struct hone_session *s, const struct hone_model *m, char *text)
{
    struct hone_error e = {0};
    const char *k, *v;
    output_format = "jsonl";
    if (session_kv_formats(s, &k, &v, &e))
        return cmd_fail(&e);
    int rc = output_print(json_pack("{s:s, s:s, s:i, s:s, s:s, s:o}", "build", hone_build(), "model", m->model->gguf->path, "n_vocab",
                                    (int)m->model->n_vocab, "type_k", k, "type_v", v, "kernels", kernels_json(s)));
    int number = 0;
    for (char *rest = text, *line; !rc && (line = strsep(&rest, "\n"));) {
        json_error_t why;
        json_t *answer = NULL;
        number++;
        if (!line[strspn(line, " \t\r")])
            continue;
        json_t *job = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        rc = job ? check_job(job) : cmd_refuse(HONE_EINPUT, "%s: line %d is no JSON: %s", jobs_path, number, why.text);
        if (!rc && eval_job_run(s, m, job, &answer, &e)) {
            err_prefix(&e, "%s: line %d", jobs_path, number);
            rc = cmd_fail(&e);
        } else if (!rc) {
            rc = output_print(answer);
        }
        json_decref(job);
    }
    return rc;
}

static int run_jobs(void)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    char *text = NULL;
    size_t size;
    int rc = token_text || token_file || logits_path || n_greedy || session_files.load || session_files.save
                 ? cmd_refuse(HONE_EUSAGE, "eval: --jobs says by itself what is fed and what is wanted")
                 : 0;
    if (!rc && file_read(&text, &size, jobs_path, &e))
        rc = cmd_fail(&e);
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc) {
        interrupt_session(s);
        rc = answer_jobs(s, m, text);
    }
    free(text);
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

/* Without -c the context is what these tokens need: a model whose rope goes by the length that is allowed (phi3) is then asked what it
 * says of this text, not of 4,096 positions. */
static void fit_context(const struct hone_model *m, size_t n)
{
    size_t need = (n + (size_t)n_greedy + 63) / 64 * 64, most = (size_t)hone_model_n_ctx_train(m);
    if (!model_args.n_ctx && !session_files.load) /* whose length is not known yet */
        model_args.n_ctx = (int)(need < most ? need : most);
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    struct conversation c;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, size;
    json_t *greedy = json_array();
    conversation_init(&c);
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "eval: '%s' is no option; the tokens come with --tokens", args[0]);
    if (jobs_path) {
        json_decref(greedy);
        return run_jobs();
    }
    if (!token_text == !token_file)
        return cmd_refuse(HONE_EUSAGE, "eval: give the tokens by --tokens LIST or by -f FILE");
    int rc = 0;
    if (token_file && file_read(&text, &size, token_file, &e))
        rc = cmd_fail(&e);
    if (!rc && tokens_parse(&ids, &n, token_text ? token_text : text, &e))
        rc = cmd_fail(&e);
    if (!rc && n == 0)
        rc = cmd_refuse(HONE_EINPUT, "eval: the token list is empty");
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc) {
        fit_context(m, n);
        rc = cmd_open_session(&s, m, NULL);
    }
    if (!rc)
        rc = session_files_load(&c, s, m);
    if (!rc) {
        interrupt_session(s);
        if (evaluate(s, m, &c, ids, n, greedy, &e))
            rc = cmd_fail(&e);
        if (!rc)
            rc = session_files_save(&c, s);
        rc = files_close(&logits, rc);
    }
    if (!rc) {
        json_t *fed = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(fed, json_integer(ids[i]));
        if (!output_json())
            output_format = "jsonl"; /* the answer is JSON in any case */
        rc = output_print(json_pack("{s:s, s:i, s:o, s:O, s:s, s:o}", "model", m->model->gguf->path, "n_vocab", (int)m->model->n_vocab,
                                    "tokens", fed, "greedy", greedy, "recipe", model_args.set ? model_args.set : "", "kernels",
                                    kernels_json(s)));
    }
    conversation_free(&c);
    json_decref(greedy);
    free(ids);
    free(text);
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

const struct command command_eval = {
    "eval", "logits of given token ids", "",
    "hone eval -m model.gguf --tokens 1,2,3 --logits-out logits.f32 --greedy 8\n"
    "  hone eval -m model.gguf --tokens 1,2,3 --save-session three.session\n"
    "  hone eval -m model.gguf --load-session three.session --tokens 4 --greedy 8", options, run,
};
