/* perplexity.c: see perplexity.h for the formula. A window is fed in two parts: the first half for its cache alone, then the
 * scored half in pieces, so that the logits that lie in memory are 64 MB at most, whatever the window. Each piece's rows are
 * summed up by all threads, a row a thread: with a large vocabulary that is a third of the work. Everything of a row is
 * computed in double from the float logits, on whichever thread, and the rows are added in order: the same bits for any number
 * of threads.
 *
 * A mean over windows weighs all of them equally, as llama.cpp's does; scoring each token once with a sliding window is kinder
 * to the model, costs n_ctx / stride times as much, and gives figures that compare with nobody's. */
#include "lab/perplexity.h"

#include "base/cpu.h"
#include "lab/stats.h"
#include "lab/vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double kl_quantile_at[KL_QUANTILES] = {0, 0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1};
const double agreement_quantile_at[AGREEMENT_QUANTILES] = {0, 0.05, 0.5, 0.95, 1};

enum { PIECE_MAX = 256, PIECE_BYTES = 64 << 20 };

struct row {
    double nll, base_nll;
    struct kl_row kl;
    bool same;
};

struct scorer {
    struct perplexity *p;
    struct hone_session *s;
    const struct perplexity_options *o;
    struct pool *pool;
    struct hone_token *tokens; /* [n_ctx] */
    struct row *rows;          /* of a window */
    int32_t n_vocab, first, n_rows, bos, piece;
    /* The piece at hand, for the pool. */
    const float *logits;
    const int32_t *targets;
    int32_t at, n; /* rows from, of the window; how many */
};

static int32_t first_of(int32_t n_ctx)
{
    return n_ctx / 2;
}

static void score_rows(void *arg, int ith, int nth)
{
    struct scorer *c = arg;
    for (int32_t i = ith; i < c->n; i += nth) {
        const float *x = c->logits + (size_t)i * (size_t)c->n_vocab;
        int32_t top = 0;
        float smallest = x[0];
        double sum = 0;
        for (int32_t v = 1; v < c->n_vocab; v++) {
            top = x[v] > x[top] ? v : top;
            smallest = x[v] < smallest ? x[v] : smallest;
        }
        for (int32_t v = 0; v < c->n_vocab; v++)
            sum += exp((double)x[v] - (double)x[top]);
        double log_sum = (double)x[top] + log(sum);
        struct row *r = &c->rows[c->at + i];
        *r = (struct row){.nll = log_sum - (double)x[c->targets[i]]};
        int64_t row = c->p->done * c->n_rows + c->at + i;
        if (c->o->save)
            kl_base_set(c->o->save, row, x, log_sum, r->nll);
        if (c->o->base) {
            r->kl = kl_base_compare(c->o->base, row, x, log_sum, smallest);
            r->base_nll = (double)c->o->base->nll[row];
            r->same = top == r->kl.top;
        }
    }
}

/* Feeds tokens [from, to) of the window. */
static int feed(struct scorer *c, int32_t from, int32_t to, bool scored, struct hone_error *e)
{
    for (int32_t i = from; i < to; i++)
        c->tokens[i].want_logits = scored;
    return hone_session_eval(c->s, c->tokens + from, (size_t)(to - from), e);
}

static int score_window(struct scorer *c, const int32_t *ids, struct hone_error *e)
{
    int32_t n_ctx = c->o->n_ctx, last = n_ctx - 1;
    for (int32_t i = 0; i < n_ctx; i++)
        c->tokens[i] = (struct hone_token){ids[i], 0, false};
    if (c->bos >= 0)
        c->tokens[0].id = c->bos;
    int rc = hone_session_rewind(c->s, 0, 0, e);
    if (!rc)
        rc = feed(c, 0, c->first, false, e);
    for (int32_t at = c->first; at < last && !rc; at += c->n) {
        c->n = last - at < c->piece ? last - at : c->piece;
        rc = feed(c, at, at + c->n, true, e);
        if (rc)
            break;
        c->at = at - c->first;
        c->logits = hone_session_logits(c->s, 0); /* rows lie one behind the other */
        c->targets = ids + at + 1;
        pool_run(c->pool, score_rows, c);
        float done = ((float)c->p->done + (float)(at + c->n) / (float)n_ctx) / (float)c->p->n_chunks;
        if (c->o->progress && c->o->progress(c->o->user, done))
            rc = err_set(e, HONE_ECANCELED, "cancelled");
    }
    return rc;
}

/* The standard error of the mean of n values with these sums. */
static double error_of(double sum, double sum2, int64_t count)
{
    double n = (double)count, variance = sum2 / n - (sum / n) * (sum / n);
    return n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

static int add_window(struct scorer *c, struct hone_error *e)
{
    struct perplexity *p = c->p;
    struct perplexity_sums *s = &p->sums;
    double before = s->nll;
    int64_t same = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        const struct row *r = &c->rows[i];
        if (!isfinite(r->nll) || (c->o->base && !isfinite(r->kl.estimate)))
            return err_set(e, HONE_ECHECK, "window %lld, position %d: a logit that is no number", (long long)p->done + 1,
                           c->first + i);
        s->nll += r->nll;
        s->nll2 += r->nll * r->nll;
        if (!c->o->base)
            continue;
        double d = r->nll - r->base_nll, shift = exp(-r->nll) - exp(-r->base_nll);
        s->kl += r->kl.estimate;
        s->kl2 += r->kl.estimate * r->kl.estimate;
        s->kl_lower += r->kl.lower;
        s->kl_upper += r->kl.upper;
        s->outside += r->kl.outside;
        s->base_nll += r->base_nll;
        s->ratio += d;
        s->ratio2 += d * d;
        s->shift += shift;
        s->shift2 += shift * shift;
        same += r->same;
        p->kls[p->n + i] = r->kl.estimate;
        p->outside_max = fmax(p->outside_max, r->kl.outside);
    }
    p->chunk = exp((s->nll - before) / c->n_rows);
    s->same += same;
    if (c->o->base)
        p->agreements[p->done] = (double)same / c->n_rows;
    p->n += c->n_rows;
    p->done++;
    return 0;
}

static void sum_up(struct perplexity *p, bool with_base)
{
    const struct perplexity_sums *s = &p->sums;
    double n = (double)p->n;
    p->nll = s->nll / n;
    p->nll_error = error_of(s->nll, s->nll2, p->n);
    p->value = exp(p->nll);
    p->error = p->value * p->nll_error;
    if (!with_base)
        return;
    p->kl = s->kl / n;
    p->kl_error = error_of(s->kl, s->kl2, p->n);
    p->kl_lower = s->kl_lower / n;
    p->kl_upper = s->kl_upper / n;
    p->outside = s->outside / n;
    p->base_value = exp(s->base_nll / n);
    p->ratio = s->ratio / n;
    p->ratio_error = error_of(s->ratio, s->ratio2, p->n);
    p->agreement = (double)s->same / n;
    p->agreement_error = error_of((double)s->same, (double)s->same, p->n);
    p->shift = s->shift / n;
    p->shift_rms = sqrt(s->shift2 / n);
}

static void find_quantiles(struct perplexity *p)
{
    stats_sort(p->kls, (size_t)p->n);
    for (int i = 0; i < KL_QUANTILES; i++)
        p->kl_quantiles[i] = stats_quantile(p->kls, (size_t)p->n, kl_quantile_at[i]);
    stats_sort(p->agreements, (size_t)p->done);
    for (int i = 0; i < AGREEMENT_QUANTILES; i++)
        p->agreement_quantiles[i] = stats_quantile(p->agreements, (size_t)p->done, agreement_quantile_at[i]);
}

int perplexity_base_fits(const struct kl_base *b, const struct hone_model *m, const int32_t *ids, size_t n,
                         struct hone_error *e)
{
    const char *path = b->file ? b->file->path : "the base";
    if (b->n_vocab != hone_model_n_vocab(m))
        return err_set(e, HONE_EINPUT, "%s is of a vocabulary of %d tokens, the model has %d", path, b->n_vocab,
                       hone_model_n_vocab(m));
    if (b->vocabulary != vocabulary_hash(m->model->gguf))
        return err_set(e, HONE_EINPUT, "%s is of another tokenizer (it was made with %.200s)", path, b->model);
    if (!ids)
        return 0;
    size_t held = (size_t)b->n_chunks * (size_t)b->n_ctx, k = n < held ? n : held;
    for (size_t i = 0; i < k; i++)
        if (ids[i] != b->tokens[i])
            return err_set(e, HONE_EINPUT, "%s is of another text: id %zu is %d there and %d here", path, i, b->tokens[i],
                           ids[i]);
    return 0;
}

/* What the options and the text ask for, in whole windows. */
static int windows(struct perplexity *p, struct hone_session *s, size_t n, const struct perplexity_options *o,
                   struct hone_error *e)
{
    if (o->n_ctx < 4 || o->n_ctx > hone_session_n_ctx(s))
        return err_set(e, HONE_EUSAGE, "windows of %d tokens; 4 to the context's %d are possible", o->n_ctx,
                       hone_session_n_ctx(s));
    if (n < (size_t)o->n_ctx)
        return err_set(e, HONE_EINPUT, "the text is %zu tokens, less than one window of %d: give a longer text%s", n, o->n_ctx,
                       n >= 4 ? ", or shorter windows with -c" : "");
    p->n_chunks = (int64_t)(n / (size_t)o->n_ctx);
    if (o->n_chunks && o->n_chunks < p->n_chunks)
        p->n_chunks = o->n_chunks;
    if (o->base && o->base->n_ctx != o->n_ctx)
        return err_set(e, HONE_EINPUT, "the base is of windows of %d tokens, not %d", o->base->n_ctx, o->n_ctx);
    if (o->base && o->base->n_chunks < p->n_chunks)
        p->n_chunks = o->base->n_chunks;
    p->n_unused = (int64_t)n - p->n_chunks * o->n_ctx;
    return 0;
}

static int scorer_open(struct scorer *c, const struct hone_model *m, struct hone_error *e)
{
    const struct tokenizer *t = m->model->tokenizer;
    int64_t rows = PIECE_BYTES / ((int64_t)hone_model_n_vocab(m) * (int64_t)sizeof(float));
    c->n_vocab = hone_model_n_vocab(m);
    c->first = first_of(c->o->n_ctx);
    c->n_rows = c->o->n_ctx - 1 - c->first;
    c->piece = rows < 16 ? 16 : rows > PIECE_MAX ? PIECE_MAX : (int32_t)rows;
    c->bos = tokenizer_size(t) && tokenizer_add_bos(t) ? tokenizer_bos(t) : -1;
    c->tokens = calloc((size_t)c->o->n_ctx, sizeof *c->tokens);
    c->rows = calloc((size_t)c->n_rows, sizeof *c->rows);
    bool ok = c->tokens && c->rows;
    if (ok && c->o->base) {
        c->p->kls = calloc((size_t)(c->p->n_chunks * c->n_rows), sizeof *c->p->kls);
        c->p->agreements = calloc((size_t)c->p->n_chunks, sizeof *c->p->agreements);
        ok = c->p->kls && c->p->agreements;
    }
    if (!ok)
        return err_set(e, HONE_ERESOURCE, "no memory for %lld windows", (long long)c->p->n_chunks);
    c->pool = pool_create(c->o->n_threads > 0 ? c->o->n_threads : cpu_cores(), 0, e);
    return c->pool ? 0 : HONE_ERESOURCE;
}

int perplexity_run(struct perplexity *p, struct hone_session *s, const struct hone_model *m, const int32_t *ids, size_t n,
                   const struct perplexity_options *o, struct hone_error *e)
{
    struct hone_error own = {0};
    struct scorer c = {.p = p, .s = s, .o = o};
    *p = (struct perplexity){0};
    int rc = windows(p, s, n, o, &own);
    if (!rc && o->base)
        rc = perplexity_base_fits(o->base, m, ids, n, &own);
    if (!rc)
        rc = scorer_open(&c, m, &own);
    while (!rc && p->done < p->n_chunks) {
        const int32_t *window = ids + p->done * o->n_ctx;
        rc = o->save ? kl_base_add(o->save, window, &own) : 0;
        if (rc)
            break;
        rc = score_window(&c, window, &own);
        if (!rc)
            rc = add_window(&c, &own);
        if (rc && o->save)
            kl_base_drop(o->save);
        if (rc)
            break;
        sum_up(p, o->base != NULL);
        if (o->each && o->each(o->user, p))
            rc = p->done < p->n_chunks ? err_set(&own, HONE_ECANCELED, "cancelled") : 0;
    }
    if (p->done && o->base)
        find_quantiles(p);
    pool_free(c.pool);
    free(c.tokens);
    free(c.rows);
    if (rc && rc != HONE_ECANCELED)
        perplexity_free(p);
    if (e)
        *e = own;
    return rc;
}

void perplexity_free(struct perplexity *p)
{
    free(p->kls);
    free(p->agreements);
    *p = (struct perplexity){0};
}

static json_t *quantiles_json(const double *at, const double *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[f, f]", at[i], x[i]));
    return list;
}

json_t *perplexity_json(const struct perplexity *p, bool with_base)
{
    json_t *j = json_pack("{s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "schema_version", 1, "chunks",
                          (json_int_t)p->n_chunks, "done", (json_int_t)p->done, "tokens_unused", (json_int_t)p->n_unused,
                          "scored", (json_int_t)p->n, "nll", p->nll, "nll_error", p->nll_error, "perplexity", p->value,
                          "perplexity_error", p->error, "last_chunk", p->chunk);
    if (j && with_base)
        json_object_set_new(j, "kl",
                            json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "mean",
                                      p->kl, "mean_error", p->kl_error, "mean_lower", p->kl_lower, "mean_upper", p->kl_upper,
                                      "outside", p->outside, "outside_max", p->outside_max, "base_perplexity", p->base_value,
                                      "log_ratio", p->ratio, "log_ratio_error", p->ratio_error, "top1", p->agreement,
                                      "top1_error", p->agreement_error, "probability_shift", p->shift, "probability_shift_rms",
                                      p->shift_rms, "quantiles", quantiles_json(kl_quantile_at, p->kl_quantiles, KL_QUANTILES),
                                      "top1_quantiles_of_chunks",
                                      quantiles_json(agreement_quantile_at, p->agreement_quantiles, AGREEMENT_QUANTILES)));
    return j;
}
