/* verify_side.c: one side's processes. A program that knows `eval --jobs` opens its model once for many texts. An older one is
 * run once a text with what every hone has (--tokens, --greedy, --logits-out): slower, a text either as one prefill or token by
 * token, and no look at nodes.
 *
 * Running the sides as two sessions in this process was the alternative: quicker by the starts, but weights have one layout a
 * process, so each side would repack the other's; and another build or another environment needs a process anyway. */
#include "lab/verify.h"

#include "base/hash.h"
#include "base/mmap.h"
#include "lab/eval_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *name_of(int i)
{
    return i ? "B" : "A";
}

/* The exit code of a child as an error, with what it said. */
static int child_failed(int i, const struct child_output *o, struct hone_error *e)
{
    const char *said = !strncmp(o->said, "hone: ", 6) ? o->said + 6 : o->said;
    int code = o->exit_code == 130 ? HONE_ECANCELED : o->exit_code >= 1 && o->exit_code <= 5 ? -o->exit_code : HONE_EINPUT;
    return err_set(e, code, "side %s: %s", name_of(i), *said ? said : "it failed and said nothing");
}

static int run_side(struct verify *v, int i, const char *command, const char *const *more, bool settings,
                    struct child_output *out, struct hone_error *e)
{
    int rc = arm_command(v->side[i].arm, command, settings, more, out, v->o.cancelled, v->o.user, e);
    if (rc && rc != HONE_ECANCELED)
        err_prefix(e, "side %s", name_of(i));
    return rc;
}

static int ask_for_jobs(struct verify *v, int i, struct hone_error *e)
{
    static const char *const help[] = {"--help", NULL};
    struct child_output out;
    int rc = run_side(v, i, "eval", help, false, &out, e);
    if (rc)
        return rc;
    v->side[i].has_jobs = strstr(out.out, "--jobs") != NULL;
    bool known = out.exit_code == 0 && strstr(out.out, "--logits-out");
    child_output_free(&out);
    return known ? 0 : err_set(e, HONE_EINPUT, "side %s: %s is no hone that has `eval`", name_of(i), v->side[i].arm->spec);
}

int side_open(struct verify *v, int i, struct arm *arm, struct hone_error *e)
{
    struct verify_side *s = &v->side[i];
    struct stat a, b;
    *s = (struct verify_side){.arm = arm, .shadow_faults = -1, .steady = true};
    if (!arm->set.model)
        return err_set(e, HONE_EUSAGE, "side %s has no model: give -m FILE, or model=FILE in the arm", name_of(i));
    int rc = arm_open(arm, e);
    if (!rc)
        rc = ask_for_jobs(v, i, e);
    if (rc)
        return rc;
    const char *first = v->side[0].arm->set.model;
    if (i && stat(first, &a) == 0 && stat(arm->set.model, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
        s->model = v->side[0].model;
        v->same_file = true;
        return 0;
    }
    rc = hone_model_open(&s->model, arm->set.model, e);
    s->owns_model = !rc;
    return rc ? err_prefix(e, "side %s", name_of(i)) : 0;
}

void side_close(struct verify_side *s)
{
    json_decref(s->kernels);
    if (s->owns_model)
        hone_model_close(s->model);
    *s = (struct verify_side){0};
}

/* ---- jobs */

/* Positions that the longest job needs. */
static size_t context_of(const json_t *jobs)
{
    size_t i, most = 2;
    json_t *job;
    json_array_foreach(jobs, i, job)
    {
        size_t n = json_array_size(json_object_get(job, "tokens")) + (size_t)json_integer_value(json_object_get(job, "greedy"));
        most = n > most ? n : most;
    }
    return most;
}

static int write_jobs(const json_t *jobs, const char *path, struct hone_error *e)
{
    FILE *f = fopen(path, "wbe");
    bool ok = f != NULL;
    size_t i;
    json_t *job;
    json_array_foreach(jobs, i, job)
    {
        ok = ok && !json_dumpf(job, f, JSON_COMPACT) && fputc('\n', f) != EOF;
    }
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok ? 0 : err_set(e, HONE_ERESOURCE, "%s: %s", path, strerror(errno));
}

/* The lines of out: the first is *about, the others the answers. */
static int read_answers(int i, char *out, json_t *answers, json_t **about, struct hone_error *e)
{
    for (char *line; (line = strsep(&out, "\n"));) {
        json_error_t why;
        if (!*line)
            continue;
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(j)) {
            json_decref(j);
            return err_set(e, HONE_EINPUT, "side %s: an answer of `eval` that is no JSON object: %s", name_of(i), why.text);
        }
        if (!*about)
            *about = j;
        else
            json_array_append_new(answers, j);
    }
    return 0;
}

static int jobs_together(struct verify *v, int i, const json_t *jobs, json_t *answers, json_t **about, struct hone_error *e)
{
    char path[4200], context[24];
    struct child_output out;
    snprintf(path, sizeof path, "%s/jobs-%s", v->o.scratch, name_of(i));
    snprintf(context, sizeof context, "%zu", context_of(jobs));
    const char *const more[] = {"--jobs", path, "-c", context, NULL};
    int rc = write_jobs(jobs, path, e);
    if (!rc)
        rc = run_side(v, i, "eval", more, true, &out, e);
    if (rc)
        return rc;
    rc = out.exit_code ? child_failed(i, &out, e) : read_answers(i, out.out, answers, about, e);
    child_output_free(&out);
    return rc;
}

/* An old program wrote the logits of all positions: the file keeps those from `from` on, as a job has them. */
static int keep_tail(const json_t *job, size_t n_vocab, struct hone_error *e)
{
    const char *path = json_string_value(json_object_get(job, "logits"));
    size_t from = (size_t)json_integer_value(json_object_get(job, "from")), row = n_vocab * sizeof(float);
    struct mapping m;
    int rc = mapping_open(&m, path, e);
    if (rc)
        return rc;
    char partial[4300];
    snprintf(partial, sizeof partial, "%s.tail", path);
    FILE *f = m.size >= from * row ? fopen(partial, "wbe") : NULL;
    bool ok = f && fwrite(m.data + from * row, 1, m.size - from * row, f) == m.size - from * row;
    if (f)
        ok = fclose(f) == 0 && ok;
    ok = ok && rename(partial, path) == 0;
    mapping_close(&m);
    return ok ? 0 : err_set(e, HONE_ERESOURCE, "%s: %s", path, strerror(errno));
}

/* For programs without --jobs. */
static int job_alone(struct verify *v, int i, const json_t *job, json_t *answers, json_t **about, struct hone_error *e)
{
    const json_t *tokens = json_object_get(job, "tokens");
    const char *logits = json_string_value(json_object_get(job, "logits"));
    struct child_output out;
    char context[24], greedy[24];
    char *list = json_dumps(tokens, JSON_COMPACT);
    json_t *one = json_pack("[O]", job);
    snprintf(context, sizeof context, "%zu", context_of(one));
    snprintf(greedy, sizeof greedy, "%lld", (long long)json_integer_value(json_object_get(job, "greedy")));
    json_decref(one);
    const char *more[16] = {"--tokens", list, "-c", context, "--greedy", greedy, "-o", "jsonl"};
    int n = 8;
    if (json_integer_value(json_object_get(job, "prefill")) == 1) { /* all of it one by one */
        more[n++] = "-b";
        more[n++] = "1";
    }
    if (logits) {
        more[n++] = "--logits-out";
        more[n++] = logits;
    }
    int rc = list ? run_side(v, i, "eval", more, true, &out, e) : err_set(e, HONE_ERESOURCE, "no memory for a token list");
    free(list);
    if (rc)
        return rc;
    json_error_t why;
    json_t *j = out.exit_code ? NULL : json_loads(out.out, 0, &why);
    if (out.exit_code)
        rc = child_failed(i, &out, e);
    else if (!json_is_object(j))
        rc = err_set(e, HONE_EINPUT, "side %s: an answer of `eval` that is no JSON object", name_of(i));
    else
        json_array_append(answers, j);
    if (!rc && !*about)
        *about = json_incref(j);
    json_decref(j);
    child_output_free(&out);
    return rc || !logits ? rc : keep_tail(job, (size_t)hone_model_n_vocab(v->side[i].model), e);
}

int side_jobs(struct verify *v, int i, const json_t *jobs, json_t **answers, json_t **about, struct hone_error *e)
{
    size_t k;
    json_t *job, *who = NULL;
    int rc = 0;
    *answers = json_array();
    if (v->side[i].has_jobs) {
        rc = jobs_together(v, i, jobs, *answers, &who, e);
    } else {
        json_array_foreach(jobs, k, job)
        {
            rc = rc ? rc : job_alone(v, i, job, *answers, &who, e);
        }
    }
    if (!rc && json_array_size(*answers) != json_array_size(jobs))
        rc = err_set(e, HONE_EINPUT, "side %s: %zu answers to %zu jobs", name_of(i), json_array_size(*answers),
                     json_array_size(jobs));
    if (rc) {
        json_decref(*answers);
        *answers = NULL;
    }
    if (about && !rc)
        *about = json_incref(who);
    json_decref(who);
    return rc;
}

int side_shadow(struct verify *v, int i, struct hone_error *e)
{
    static const char *const more[] = {"--shadow", "--n-prefill", "16", "--n-decode", "2", "-o", "json", "--no-journal", NULL},
                             *const older[] = {"--shadow", "--n-prefill", "16", "--n-decode", "2", "-o", "json", NULL};
    struct child_output out;
    int rc = run_side(v, i, "check", more, true, &out, e);
    if (!rc && out.exit_code == -HONE_EUSAGE) { /* it may be from before there was a journal */
        child_output_free(&out);
        rc = run_side(v, i, "check", older, true, &out, e);
    }
    if (rc)
        return rc;
    json_t *j = out.exit_code > 1 ? NULL : json_loads(out.out, 0, NULL), *faults = json_object_get(j, "faults");
    if (!json_is_object(j) || !json_is_array(faults)) {
        rc = child_failed(i, &out, e);
    } else {
        json_t *first = json_array_get(faults, 0);
        const char *node = json_string_value(json_object_get(first, "node")),
                   *kernel = json_string_value(json_object_get(first, "kernel")),
                   *message = json_string_value(json_object_get(first, "message"));
        v->side[i].shadow_faults = (int)json_integer_value(json_object_get(j, "n_faults"));
        if (first)
            snprintf(v->side[i].shadow_first, sizeof v->side[i].shadow_first, "%s, node %s: %s", kernel ? kernel : "?",
                     node ? node : "?", message ? message : "");
    }
    json_decref(j);
    child_output_free(&out);
    return rc;
}
