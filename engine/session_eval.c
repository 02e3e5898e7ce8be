/* session_eval.c: tokens in, logits out.
 *
 * An eval is cut into chunks of at most n_batch tokens, and each is one step: cells and slots are taken, the plan of its size is
 * run on all ranks, the logits that are wanted are copied out. All of it or nothing: on failure every sequence is cut back to
 * where it stood, so whoever called may go on or try again. Ids, sequences and room are checked before anything changes. */
#include "engine/session.h"

#include "base/clock.h"
#include "engine/follow.h"
#include "graph/weights.h"
#include "model/sampler.h"

#include <stdlib.h>
#include <string.h>

/* Progress is asked for at most ten times a second, from inside the run, on thread 0. */
struct progress {
    struct hone_session *s;
    const struct observer *inner;
    size_t done, now, total; /* tokens before this chunk, in it, in all */
    int64_t last;
};

static int progress_before(void *user, const struct plan *plan, int step)
{
    struct progress *p = user;
    return p->inner && p->inner->before ? p->inner->before(p->inner->user, plan, step) : 0;
}

static int progress_after(void *user, const struct plan *plan, int step, int64_t ns)
{
    struct progress *p = user;
    int rc = p->inner && p->inner->after ? p->inner->after(p->inner->user, plan, step, ns) : 0;
    int64_t t = clock_ns();
    if (rc || t - p->last < 100000000)
        return rc;
    p->last = t;
    double share = ((double)p->done + (double)p->now * (step + 1) / plan->n_steps) / (double)p->total;
    return p->s->params.progress(p->s->params.progress_user, (float)share) ? HONE_ECANCELED : 0;
}

static void inputs_set(struct hone_session *s, const struct step_inputs *in, const struct hone_token *tokens, const int32_t *positions,
                       int32_t n)
{
    int32_t *ids = in->tokens->data, *pos = in->positions->data, *seqs = in->sequences->data, *cells = in->cells->data,
            *outputs = in->outputs->data; /* one that no node reads has no place: of a rank that runs some of the layers */
    if (in->slots && in->slots->data)
        memcpy(in->slots->data, s->states.slots, 2 * (size_t)s->states.n_seq * sizeof *s->states.slots);
    if (outputs)
        outputs[0] = n - 1; /* of a chunk whose logits nobody wants */
    for (int32_t i = 0, o = 0; i < n; i++) {
        if (ids)
            ids[i] = tokens[i].id;
        if (pos)
            pos[i] = positions[i];
        if (seqs)
            seqs[i] = tokens[i].seq;
        if (cells)
            cells[i] = s->kv.map[(int64_t)tokens[i].seq * s->kv.n_ctx + positions[i]];
        if (outputs && tokens[i].want_logits)
            outputs[o++] = i;
    }
}

/* debug.spin; a cancel ends it. */
static void spin_until(struct hone_session *s, int64_t ns)
{
    while (clock_ns() < ns && !atomic_load_explicit(&s->cancel, memory_order_relaxed))
        ;
}

/* One chunk: at most n_batch tokens, whose cells are appended already. whole: it is the whole eval. */
static int eval_chunk(struct hone_session *s, const struct hone_token *tokens, const int32_t *positions, int32_t n, bool whole,
                      struct progress *progress, struct hone_error *e)
{
    int32_t n_outputs = 0;
    for (int32_t i = 0; i < n; i++)
        n_outputs += tokens[i].want_logits;
    struct planned *p; /* a chunk without wanted logits runs with one output: without any would be another shape to plan and test */
    int rc = planned_take(s, n, n_outputs ? n_outputs : 1, &p, e);
    if (rc)
        return rc;
    inputs_set(s, &p->in, tokens, positions, n);
    for (int i = 0; s->ranks && i < s->ranks->n_others; i++)
        inputs_set(s, &p->others[i].in, tokens, positions, n);
    struct observer with_progress = {progress, progress_before, progress_after};
    bool watched = progress && !p->plan->placement; /* nodes of a device are not waited for one by one, only to say how far they are */
    struct run run = {.pool = s->pool, .scratch = s->room.scratch, .scratch_stride = s->room.scratch_stride, .cancel = &s->cancel,
                      .observer = watched ? &with_progress : s->observer};
    s->graphs++;
    int64_t start = clock_ns();
    rc = kv_upload(&s->kv, e);
    if (!rc)
        rc = s->ranks ? ranks_run(s->ranks, p->plan, &run, p->others, e) : plan_run(p->plan, &run, e);
    if (!rc && progress && !watched &&
        s->params.progress(s->params.progress_user, (float)(progress->done + progress->now) / (float)progress->total))
        rc = err_set(e, HONE_ECANCELED, "cancelled");
    if (s->spin > 0)
        spin_until(s, start + (int64_t)((double)(clock_ns() - start) * (1 + s->spin)));
    if (!rc && n_outputs) {
        size_t row = (size_t)s->model->n_vocab;
        if (s->ranks)
            ranks_logits(s->ranks, &p->graph, p->others, n_outputs, (int64_t)row, s->logits + s->n_logits * row);
        else if (p->plan->placement && whole) /* a step of a small model on a device takes less than ten times this copy */
            s->view = p->graph.logits->data;
        else
            memcpy(s->logits + s->n_logits * row, p->graph.logits->data, (size_t)n_outputs * row * sizeof(float));
        s->n_logits += (size_t)n_outputs;
    }
    weights_release();
    return rc;
}

/* Ids, sequences and room, before anything changes; and the room for the logits. */
static int eval_check(struct hone_session *s, const struct hone_token *tokens, size_t n, struct hone_error *e)
{
    if (n > INT32_MAX)
        return err_set(e, HONE_EUSAGE, "%zu tokens in one call", n);
    size_t outputs = 0;
    int32_t more[64] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct hone_token *t = &tokens[i];
        if (t->id < 0 || t->id >= s->model->n_vocab)
            return err_set(e, HONE_EINPUT, "token %zu has id %d; the vocabulary has 0 to %d", i, t->id, s->model->n_vocab - 1);
        if (t->seq < 0 || t->seq >= s->kv.n_seq)
            return err_set(e, HONE_EUSAGE, "token %zu is of sequence %d; the session has %d", i, t->seq, s->kv.n_seq);
        if (s->kv.length[t->seq] + ++more[t->seq] > s->kv.n_ctx)
            return err_set(e, HONE_EINPUT, "sequence %d would grow to more than its context of %d positions (-c)", t->seq,
                           s->kv.n_ctx);
        outputs += t->want_logits;
    }
    if (outputs > s->cap_logits) {
        size_t bytes;
        if (__builtin_mul_overflow(outputs, (size_t)s->model->n_vocab * sizeof(float), &bytes))
            return err_set(e, HONE_EUSAGE, "logits of %zu tokens", outputs);
        float *logits = realloc(s->logits, bytes);
        if (!logits)
            return err_set(e, HONE_ERESOURCE, "no memory for the logits of %zu tokens: %.1f MiB", outputs, (double)bytes / 0x1p20);
        s->logits = logits;
        s->cap_logits = outputs;
    }
    return 0;
}

/* The cells of a chunk's tokens, and for each sequence in it a slot to write; which sequences those are goes to `seen`. */
static void chunk_begin(struct hone_session *s, const struct hone_token *tokens, size_t n, int32_t *positions, bool *moving, bool *seen)
{
    memset(seen, 0, (size_t)s->kv.n_seq * sizeof *seen);
    for (size_t j = 0; j < n; j++) {
        int32_t seq = tokens[j].seq;
        positions[j] = s->kv.length[seq];
        kv_append(&s->kv, seq);
        if (!moving[seq])
            states_begin(&s->states, seq);
        moving[seq] = seen[seq] = true;
    }
}

static void eval_end(struct hone_session *s, const bool *moving, const int32_t *before, bool failed)
{
    if (failed)
        s->n_logits = 0;
    for (int32_t q = 0; q < s->kv.n_seq; q++) {
        if (failed)
            kv_truncate(&s->kv, q, before[q]);
        if (moving[q] && failed)
            states_abort(&s->states, q);
        else if (moving[q])
            states_commit(&s->states, q, s->kv.length[q]);
    }
}

int hone_session_eval(struct hone_session *s, const struct hone_token *tokens, size_t n, struct hone_error *e)
{
    struct hone_error own = {0};
    INVARIANT(!s->dry);
    int rc = eval_check(s, tokens, n, &own);
    int32_t before[64], few[64], *positions = few; /* a step of few tokens asks nobody for memory */
    bool moving[64] = {false}, seen[64], ordered = false;
    if (!rc && n > sizeof few / sizeof *few) {
        positions = malloc(n * sizeof *positions);
        rc = positions ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for %zu tokens", n);
    }
    if (!rc) {
        rc = follow_eval(s->followed, tokens, n, &own);
        ordered = !rc;
    }
    if (!rc) {
        memcpy(before, s->kv.length, (size_t)s->kv.n_seq * sizeof *before);
        s->n_logits = 0;
        s->view = NULL;
        struct progress progress = {.s = s, .inner = s->observer, .total = n, .last = clock_ns()};
        for (size_t i = 0; i < n && !rc; i += progress.now) {
            progress.done = i;
            progress.now = n - i < (size_t)s->params.n_batch ? n - i : (size_t)s->params.n_batch;
            chunk_begin(s, tokens + i, progress.now, positions + i, moving, seen);
            rc = eval_chunk(s, tokens + i, positions + i, (int32_t)progress.now, progress.now == n,
                            s->params.progress && n > 1 ? &progress : NULL, &own);
            for (int32_t q = 0; q < s->kv.n_seq; q++)
                if (seen[q])
                    states_next(&s->states, q);
        }
        eval_end(s, moving, before, rc != 0);
        if (rc == HONE_ECANCELED)
            atomic_store(&s->cancel, 0);
    }
    if (ordered)
        follow_done(s->followed);
    if (positions != few)
        free(positions);
    if (e)
        *e = own;
    return rc;
}

const float *hone_session_logits(const struct hone_session *s, size_t i)
{
    return i < s->n_logits ? (s->view ? s->view : s->logits) + i * (size_t)s->model->n_vocab : NULL;
}

int32_t hone_greedy(const struct hone_session *s)
{
    const float *logits = s->n_logits ? hone_session_logits(s, s->n_logits - 1) : NULL;
    return logits ? sampler_argmax(logits, s->model->n_vocab) : -1;
}

void hone_session_cancel(struct hone_session *s)
{
    atomic_store(&s->cancel, 1);
}
