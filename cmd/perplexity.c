/* perplexity.c: hone perplexity: a text's perplexity window by window as it comes, and the KL divergence from a base that an
 * earlier run saved. What was finished when Ctrl-C came is printed, and saved, with exit code 130. */
#include "cmd/cmd.h"

#include "base/hash.h"
#include "lab/perplexity.h"
#include "lab/vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_path, *save_path, *base_path;
static int n_chunks, top = 64;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"-f, --file", OPTION_INPUT, &text_path, "FILE", "the text; - is stdin", 0, 0},
        {"--chunks", OPTION_INT, &n_chunks, "N",
         "windows at most (0: all of the text); a window is -c tokens, 512 unless given", 0, 1 << 30},
        {"--kl-base-save", OPTION_OUTPUT, &save_path, "FILE", "save what the model says of each position, for --kl-base", 0, 0},
        {"--kl-base", OPTION_INPUT, &base_path, "FILE", "KL divergence from that base; its own text is used if there is no -f",
         0, 0},
        {"--kl-top", OPTION_INT, &top, "N", "logits of each position that are saved", 1, 1 << 24},
        SESSION_OPTIONS,
        JOURNAL_OPTIONS,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

struct teller {
    struct recording rec;
    bool with_base;
    char series[64];
    int rc; /* of the journal */
};

/* Six digits of a divergence that rounds to nothing have no sign. */
static double unsigned_zero(double x)
{
    return fabs(x) < 5e-7 ? 0 : x;
}

static int each(void *user, const struct perplexity *p)
{
    struct teller *t = user;
    struct hone_error e = {0};
    bool with_base = t->with_base;
    progress_end();
    if (journal_sample(t->rec.journal, t->rec.run, t->series, log(p->chunk), NULL, &e))
        t->rc = cmd_fail(&e);
    if (!output_json() && p->done == 1)
        printf("%6s %10s %10s\n", "window", "its own", "perplexity");
    if (!strcmp(output_format, "jsonl"))
        output_print(json_pack("{s:I, s:I, s:f, s:f, s:f}", "chunk", (json_int_t)p->done, "chunks", (json_int_t)p->n_chunks,
                               "chunk_perplexity", p->chunk, "perplexity", p->value, "perplexity_error", p->error));
    else if (!output_json() && with_base)
        printf("%6lld %10.4f %10.4f +/- %8.5f   KL %9.6f +/- %8.6f   same top %7.3f %%\n", (long long)p->done, p->chunk,
               p->value, p->error, unsigned_zero(p->kl), p->kl_error, 100 * p->agreement);
    else if (!output_json())
        printf("%6lld %10.4f %10.4f +/- %8.5f\n", (long long)p->done, p->chunk, p->value, p->error);
    fflush(stdout);
    return interrupted() || ferror(stdout) || t->rc;
}

static int progress(void *user, float done)
{
    (void)user;
    return progress_show("perplexity", done);
}

static void print_kl(const struct perplexity *p, const struct kl_base *b)
{
    printf("base        %.5f  (%s)\n", p->base_value, b->model);
    printf("ln ratio    %.6f +/- %.6f\n", p->ratio, p->ratio_error);
    printf("mean KL     %.6f +/- %.6f nats; certainly from %.6f to %.4f\n", unsigned_zero(p->kl), p->kl_error, p->kl_lower, p->kl_upper);
    printf("            (the base has the %d largest logits of each position; %.3f %% of its probability lies outside of them, "
           "at most %.2f %%)\n",
           b->top, 100 * p->outside, 100 * p->outside_max);
    printf("KL          ");
    for (int i = 0; i < KL_QUANTILES; i++)
        printf(" %g%%: %.6f", 100 * kl_quantile_at[i], unsigned_zero(p->kl_quantiles[i]));
    printf("\nsame top    %.3f +/- %.3f %%; over windows ", 100 * p->agreement, 100 * p->agreement_error);
    for (int i = 0; i < AGREEMENT_QUANTILES; i++)
        printf(" %g%%: %.2f", 100 * agreement_quantile_at[i], 100 * p->agreement_quantiles[i]);
    printf("\nshift       %+.5f mean, %.5f RMS, of the probability of the token that came\n", p->shift, p->shift_rms);
}

static void print_end(const struct perplexity *p, const struct kl_base *b)
{
    printf("perplexity  %.5f +/- %.5f  (%lld positions of %lld windows%s; %lld tokens at the end not used)\n", p->value,
           p->error, (long long)p->n, (long long)p->done, p->done < p->n_chunks ? ", interrupted" : "", (long long)p->n_unused);
    if (b)
        print_kl(p, b);
}

/* The ids: of the text, or else the base's own. */
static int read_ids(const struct hone_model *m, const struct kl_base *b, int32_t **ids, size_t *n)
{
    struct hone_error e = {0};
    char *text = NULL;
    size_t size = 0;
    if (!text_path) {
        *n = (size_t)b->n_chunks * (size_t)b->n_ctx;
        *ids = malloc(*n * sizeof **ids);
        if (!*ids)
            return cmd_refuse(HONE_ERESOURCE, "no memory for %zu tokens", *n);
        memcpy(*ids, b->tokens, *n * sizeof **ids);
        return 0;
    }
    int rc = file_read(&text, &size, text_path, &e);
    if (!rc)
        rc = hone_tokenize(m, text, size, true, false, ids, n, &e);
    free(text);
    return rc ? cmd_fail(&e) : 0;
}

static int usage(int n_args, char **args)
{
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "perplexity: '%s' is no option; the text comes with -f", args[0]);
    if (!text_path && !base_path)
        return cmd_refuse(HONE_EUSAGE, "perplexity: give a text with -f FILE");
    if (save_path && base_path)
        return cmd_refuse(HONE_EUSAGE, "perplexity: --kl-base-save and --kl-base are two runs");
    return 0;
}

/* A window's length: -c, or the base's, or 512 where the model was trained on as much. */
static int32_t window(const struct hone_model *m, const struct kl_base *b)
{
    int32_t most = hone_model_n_ctx_train(m);
    if (model_args.n_ctx)
        return model_args.n_ctx;
    return b ? b->n_ctx : most < 512 ? most : 512;
}

static json_t *result_json(const struct perplexity *p, const struct kl_base *base)
{
    json_t *j = perplexity_json(p, base != NULL);
    json_object_set_new(j, "model", json_string(model_args.model));
    json_object_set_new(j, "n_ctx", json_integer(model_args.n_ctx));
    json_object_set_new(j, "interrupted", json_boolean(p->done < p->n_chunks));
    if (base)
        json_object_set_new(json_object_get(j, "kl"), "kept", json_integer(base->top));
    return j;
}

/* What was finished is printed, saved and recorded, however it ended. */
static int finish(const struct perplexity *p, const struct teller *t, struct kl_base *save, const struct kl_base *base, int rc)
{
    struct hone_error e = {0};
    progress_end();
    if (t->rc)
        rc = t->rc;
    if (!p->done)
        return rc;
    bool saved = save && !kl_base_write(save, save_path, &e);
    if (save && !saved)
        rc = cmd_fail(&e);
    json_t *j = result_json(p, base);
    if (journal_record(t->rec.journal, t->rec.run, "verdict", j, NULL, &e))
        rc = cmd_fail(&e);
    if (output_json()) {
        int printed = output_print(j);
        return rc ? rc : printed;
    }
    json_decref(j);
    print_end(p, base);
    if (saved)
        printf("base        %lld positions to %s\n", (long long)save->n_rows, save_path);
    return rc;
}

/* What is asked: another text, or windows of another length, is another history. */
static json_t *config_of(const int32_t *ids, size_t n, const struct kl_base *base)
{
    struct sha256 text = {""};
    struct hone_error e = {0};
    hash_sha256(&text, ids, n * sizeof *ids, &e);
    return json_pack("{s:i, s:i, s:s, s:I, s:s?}", "n_ctx", model_args.n_ctx, "chunks", n_chunks, "text", text.hex, "tokens",
                     (json_int_t)n, "kl_base", base ? base->model : NULL);
}

struct subject { /* what a run opens */
    struct hone_model *m;
    struct hone_session *s;
    struct kl_base *save, *base;
    int32_t *ids;
    size_t n;
};

static int prepare(struct subject *r)
{
    struct hone_error e = {0};
    int rc = cmd_open_model(&r->m);
    if (!rc && base_path && (kl_base_open(&r->base, base_path, &e) || perplexity_base_fits(r->base, r->m, NULL, 0, &e)))
        rc = cmd_fail(&e);
    if (!rc)
        rc = read_ids(r->m, r->base, &r->ids, &r->n);
    if (!rc) {
        model_args.n_ctx = window(r->m, r->base);
        rc = cmd_open_session(&r->s, r->m, NULL);
    }
    if (!rc && save_path &&
        kl_base_create(&r->save, model_args.n_ctx, model_args.n_ctx / 2, hone_model_n_vocab(r->m), top,
                       vocabulary_hash(r->m->model->gguf), r->m->model->gguf->path, &e))
        rc = cmd_fail(&e);
    return rc;
}

static int run(int n_args, char **args)
{
    struct subject r = {0};
    struct perplexity p = {0};
    struct hone_error e = {0};
    struct teller t = {.with_base = base_path != NULL};
    int rc = usage(n_args, args);
    if (!rc)
        rc = prepare(&r);
    if (!rc)
        rc = cmd_journal_begin(&t.rec, "perplexity", r.m, config_of(r.ids, r.n, r.base));
    if (!rc) {
        struct perplexity_options o = {.n_ctx = model_args.n_ctx,
                                       .n_chunks = n_chunks,
                                       .n_threads = model_args.n_threads,
                                       .save = r.save,
                                       .base = r.base,
                                       .each = each,
                                       .progress = progress,
                                       .user = &t};
        snprintf(t.series, sizeof t.series, "loss c%d nats", model_args.n_ctx);
        interrupt_session(r.s);
        if (perplexity_run(&p, r.s, r.m, r.ids, r.n, &o, &e))
            rc = cmd_fail(&e);
        rc = finish(&p, &t, r.save, r.base, rc);
    }
    rc = cmd_journal_end(&t.rec, rc, NULL);
    perplexity_free(&p);
    kl_base_close(r.save);
    kl_base_close(r.base);
    free(r.ids);
    hone_session_free(r.s);
    hone_model_close(r.m);
    return rc;
}

const struct command command_perplexity = {
    "perplexity",
    "how surprised the model is by a text, and KL divergence from a saved base",
    "",
    "hone perplexity -m model.gguf -f text.txt\n  hone perplexity -m f16.gguf -f text.txt --kl-base-save base.kl\n"
    "  hone perplexity -m q4.gguf --kl-base base.kl",
    options,
    run,
    NULL,
};
