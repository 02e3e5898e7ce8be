/* ab_record.c: what a comparison leaves in the journal is its samples and, before them, the rules by which they are judged. The
 * verdict is recorded too, for lists, but never believed: whoever asks gets it from the samples, so a record cannot say "win"
 * where they do not. */
#include "lab/ab_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *label(const struct match *m, char *text, size_t size)
{
    if (m->kind == MATCH_AA)
        snprintf(text, size, "aa");
    else
        snprintf(text, size, "b%d%s", m->candidate, m->kind == MATCH_CONFIRM ? " confirm" : "");
    return text;
}

int ab_record_match(struct journal *j, int64_t run, int index, const struct match *m, struct hone_error *e)
{
    json_t *body = json_pack("{s:i, s:s, s:i, s:o}", "match", index, "match_kind", match_kind_name(m->kind), "candidate",
                             m->candidate, "rules", ab_rules_json(&m->rules));
    int rc = body ? journal_record(j, run, "note", body, NULL, e) : err_set(e, HONE_ERESOURCE, "no memory for a record");
    json_decref(body);
    return rc;
}

int ab_record_sample(struct journal *j, int64_t run, int index, const struct match *m, const struct ab_sample *s,
                     const char *test, double tokens, struct hone_error *e)
{
    char series[200], name[32];
    json_t *more = ab_sample_json(s);
    snprintf(series, sizeof series, "%s %s %s t/s", label(m, name, sizeof name), s->candidate ? "b" : "a", test);
    int rc = more && !json_object_set_new(more, "match", json_integer(index))
                 ? journal_sample(j, run, series, 1e9 * tokens / s->ns, more, e)
                 : err_set(e, HONE_ERESOURCE, "no memory for a record");
    json_decref(more);
    return rc;
}

/* ---- reading */

struct reading {
    struct match list[2 * CONTEST_MAX + 1];
    size_t room[2 * CONTEST_MAX + 1];
    int n;
    struct hone_error *e;
};

static int read_match(struct reading *r, const json_t *body, struct hone_error *e)
{
    int index, candidate;
    const char *kind;
    json_t *rules;
    if (!json_object_get(body, "match"))
        return 0; /* another note */
    if (json_unpack((json_t *)body, "{s:i, s:s, s:i, s:o}", "match", &index, "match_kind", &kind, "candidate", &candidate,
                    "rules", &rules) ||
        index != r->n || r->n == (int)(sizeof r->list / sizeof *r->list))
        return err_set(e, HONE_EINPUT, "match %d of the comparison: its record is not as `hone ab` writes it", r->n);
    struct match *m = &r->list[r->n++];
    *m = (struct match){.candidate = candidate};
    while (m->kind < MATCH_CONFIRM && strcmp(kind, match_kind_name(m->kind)) != 0)
        m->kind++;
    return ab_rules_parse(&m->rules, rules, e);
}

static int read_sample(void *user, const struct journal_sample *js)
{
    struct reading *r = user;
    struct ab_sample s;
    json_t *index = json_object_get(js->more, "match");
    int i = (int)json_integer_value(index);
    if (!json_is_integer(index))
        return 0; /* a series of another kind */
    if (i < 0 || i >= r->n)
        return err_set(r->e, HONE_EINPUT, "a sample of match %d, which never began", i);
    int rc = ab_sample_parse(&s, js->more, r->e);
    struct ab_samples *to = &r->list[i].samples;
    if (!rc && to->n == r->room[i]) {
        size_t room = r->room[i] ? 2 * r->room[i] : 64;
        struct ab_sample *list = realloc(to->list, room * sizeof *list);
        rc = list ? 0 : err_set(r->e, HONE_ERESOURCE, "no memory for samples");
        if (!rc) {
            to->list = list;
            r->room[i] = room;
        }
    }
    if (!rc)
        to->list[to->n++] = s;
    return rc;
}

static int derive(struct reading *r, json_t *out, struct hone_error *e)
{
    int rc = 0;
    for (int i = 0; i < r->n && !rc; i++) {
        struct match *m = &r->list[i];
        rc = ab_judge(&m->result, m->samples.list, m->samples.n, &m->rules, e);
        if (!rc && json_array_append_new(out, json_pack("{s:i, s:s, s:i, s:i, s:o}", "match", i, "match_kind",
                                                        match_kind_name(m->kind), "candidate", m->candidate, "samples",
                                                        (int)m->samples.n, "result", ab_result_json(&m->result))))
            rc = err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    }
    return rc;
}

int ab_record_derive(struct journal *j, int64_t run, json_t **matches, struct hone_error *e)
{
    struct reading *r = calloc(1, sizeof *r);
    json_t *notes = NULL, *note;
    size_t i;
    *matches = json_array();
    int rc =
        r && *matches ? journal_records(j, run, "note", &notes, e) : err_set(e, HONE_ERESOURCE, "no memory for a comparison");
    json_array_foreach(notes, i, note)
    {
        rc = rc ? rc : read_match(r, json_object_get(note, "body"), e);
    }
    if (!rc) {
        r->e = e;
        rc = journal_each_sample(j, run, read_sample, r, e);
    }
    if (!rc)
        rc = derive(r, *matches, e);
    for (int k = 0; r && k < r->n; k++)
        ab_samples_free(&r->list[k].samples);
    free(r);
    json_decref(notes);
    if (rc) {
        json_decref(*matches);
        *matches = NULL;
    }
    return rc;
}
