/* iterate_call.c: a step as a command line, and the lease that is kept while it runs.
 *
 * The lease is renewed from here, not by the step: a measurement must not be disturbed, and a program that hangs would renew
 * for ever. What is asked for each time is a third of a lease's length before its end, so two tries may fail. */
#include "lab/iterate.h"

#include "base/clock.h"
#include "lab/program.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_LIMIT = 64 << 20 };

const char *iterate_step_name(enum iterate_step s)
{
    static const char *const names[] = {
#define X(name, limit) #name,
        ITERATE_STEPS(X)
#undef X
    };
    return names[s];
}

int iterate_step_find(const char *name, size_t n, enum iterate_step *s)
{
    for (*s = 0; *s < ITERATE_N_STEPS; ++*s)
        if (strlen(iterate_step_name(*s)) == n && !strncmp(iterate_step_name(*s), name, n))
            return 0;
    return -1;
}

double iterate_step_limit(enum iterate_step s)
{
    static const double limits[] = {
#define X(name, limit) limit,
        ITERATE_STEPS(X)
#undef X
    };
    return limits[s];
}

const char *decision_word(enum decision d)
{
    static const char *const words[] = {
#define X(name, word) word,
        DECISIONS(X)
#undef X
    };
    return words[d];
}

int iterate_decide(struct iteration *it, enum decision d, const char *format, ...)
{
    va_list ap;
    it->decision = d;
    va_start(ap, format);
    vsnprintf(it->why, sizeof it->why, format, ap);
    va_end(ap);
    return ITERATE_DECIDED;
}

/* ---- lines */

void call_add(struct iteration *it, struct call *l, const char *word)
{
    char *own = arena_strdup(&it->memory, word);
    if (own && l->n + 1 < (int)(sizeof l->list / sizeof *l->list))
        l->list[l->n++] = own;
}

void call_pair(struct iteration *it, struct call *l, const char *flag, const char *value)
{
    if (!value || !*value)
        return;
    call_add(it, l, flag);
    call_add(it, l, value);
}

void call_words(struct iteration *it, struct call *l, const char *words)
{
    for (const char *p = words ? words + strspn(words, " ") : ""; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        char *one = arena_strndup(&it->memory, p, n);
        if (one)
            call_add(it, l, one);
        p += n;
    }
}

static void call_plugins(struct iteration *it, struct call *l, const char *paths)
{
    for (const char *p = paths; p && *p;) {
        size_t n = strcspn(p, "\n");
        char *one = n ? arena_strndup(&it->memory, p, n) : NULL;
        call_pair(it, l, "--plugin", one);
        p += n + (p[n] == '\n');
    }
}

void call_model(struct iteration *it, struct call *l)
{
    const json_t *gain = json_object_get(it->task, "expected_gain");
    char percent[32];
    call_pair(it, l, "-m", it->o->model);
    call_pair(it, l, "--journal", it->o->journal_path);
    call_pair(it, l, "--hypothesis", json_string_value(json_object_get(it->task, "hypothesis")));
    snprintf(percent, sizeof percent, "%g", 100 * json_number_value(gain));
    call_pair(it, l, "--expect", json_is_number(gain) ? percent : NULL);
    call_plugins(it, l, it->o->plugins);
    call_plugins(it, l, it->plugins);
}

/* ---- the lease */

static void renew(struct iteration *it)
{
    struct hone_error e = {0};
    it->renewed = clock_ns();
    int rc = queue_renew(it->queue, it->id, it->token, it->o->lease_s, &e);
    if (!rc)
        it->lease_until = it->renewed + it->o->lease_s * 1000000000;
    else if (rc == HONE_ECHECK || it->renewed > it->lease_until) { /* a file that is busy for a moment is asked again */
        it->lost = !strstr(e.message, "budget");
        snprintf(it->stop, sizeof it->stop, "%.190s", e.message);
    }
}

int iterate_tick(void *user)
{
    struct iteration *it = user;
    int asked = it->o->cancelled ? it->o->cancelled(it->o->user) : 0;
    if (asked && !it->stop[0])
        snprintf(it->stop, sizeof it->stop, "interrupted");
    if (!it->stop[0] && clock_ns() - it->renewed > it->o->lease_s * 1000000000 / 3)
        renew(it);
    return asked > 1 ? asked : it->stop[0] != 0;
}

/* What the step may take: its own limit, and what is left of the task's budget. */
double iterate_limit(const struct iteration *it, enum iterate_step s)
{
    double budget = json_number_value(json_object_get(it->task, "budget")), limit = it->o->limits[s];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double spent = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-3 * (double)it->began;
    double left = fmax(budget - spent - 1, 0.1); /* a second to hand in */
    return budget > 0 && left < limit ? left : limit;
}

/* ---- a step */

static int stopped(struct iteration *it, struct hone_error *e)
{
    if (!strcmp(it->stop, "interrupted"))
        return err_set(e, HONE_ECANCELED, "cancelled");
    return iterate_decide(it, DECISION_FAILED, "%s", it->stop);
}

static void tell_waiting(void *user, const char *who)
{
    struct iteration *it = user;
    char text[300];
    snprintf(text, sizeof text, "%.250s measures on this machine", who);
    if (it->o->tell)
        it->o->tell(it->o->user, it->id, "waits", 0, text);
}

/* A machine that has no place for the lock is no reason to do nothing. */
int iterate_take_machine(struct iteration *it, enum iterate_step s, struct hone_error *e)
{
    struct hone_error why = {0};
    struct machine_wait w = {iterate_tick, tell_waiting, it};
    if (it->o->no_lock ||
        (s != ITERATE_build && s != ITERATE_check && s != ITERATE_verify && s != ITERATE_bench && s != ITERATE_ab))
        return 0;
    int rc = machine_lock_take(&it->machine, &w, &why);
    if (rc == HONE_ECANCELED)
        return stopped(it, e);
    if (rc && it->o->tell)
        it->o->tell(it->o->user, it->id, iterate_step_name(s), 0, why.message);
    return 0;
}

int iterate_run(struct iteration *it, enum iterate_step s, const struct call *l, const char *binary, const char *const *env,
                const char *folder, const char *out, int *exit_code, char said[400], struct hone_error *e)
{
    const char *name = iterate_step_name(s);
    char log[4300], out_path[4400], text[500];
    struct call *own = arena_alloc(&it->memory, sizeof *own);
    if (!own)
        return err_set(e, HONE_ERESOURCE, "no memory for a step");
    *own = *l;
    own->list[own->n] = NULL;
    int rc = iterate_take_machine(it, s, e);
    if (rc)
        return rc;
    snprintf(log, sizeof log, "%s/%s.log", it->folder, name);
    snprintf(out_path, sizeof out_path, "%s/%s", it->folder, out ? out : "");
    struct program step = {.argv = own->list,
                           .binary = binary,
                           .env = env,
                           .folder = folder,
                           .log = log,
                           .out = out ? out_path : NULL,
                           .limit_s = iterate_limit(it, s),
                           .log_limit = LOG_LIMIT,
                           .tick = iterate_tick,
                           .user = it};
    struct program_result r;
    rc = iterate_tick(it) ? 0 : program_run(&r, &step, e);
    machine_lock_drop(&it->machine);
    if (rc)
        return rc;
    if (it->stop[0])
        return stopped(it, e);
    program_describe(&step, &r, text, sizeof text);
    bool ran = r.end == PROGRAM_EXITED && (r.exit_code == 0 || r.exit_code == 1);
    if (it->o->tell)
        it->o->tell(it->o->user, it->id, name, r.seconds, r.end == PROGRAM_EXITED && !r.exit_code ? "" : text);
    if (!ran)
        return iterate_decide(it, DECISION_FAILED, "%s: %s", name, text);
    *exit_code = r.exit_code;
    snprintf(said, 400, "%s", r.said);
    return 0;
}

int iterate_hone(struct iteration *it, enum iterate_step s, const struct call *l, const char *out, int *exit_code,
                 char said[400], struct hone_error *e)
{
    return iterate_run(it, s, l, it->binary, NULL, NULL, out, exit_code, said, e);
}
