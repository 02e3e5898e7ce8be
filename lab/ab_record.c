/* ab_record.c: what a comparison leaves in the journal is its samples and, before them, the rules by which they are judged. The
 * verdict is recorded too, for lists, but never believed: whoever asks gets it from the samples, so a record cannot say "win"
 * where they do not. */
#include "lab/ab_record.h"

#include "lab/identity.h"

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

int ab_record_match(struct journal *j, int64_t run, int index, const struct match *m, const struct contest *of,
                    struct hone_error *e)
{
    json_t *body =
        json_pack("{s:i, s:s, s:i, s:i, s:b, s:o}", "match", index, "match_kind", match_kind_name(m->kind), "candidate",
                  m->candidate, "candidates", of->n_candidates, "confirm", of->confirm, "rules", ab_rules_json(&m->rules));
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
    struct contest contest;
    size_t room[CONTEST_MATCHES];
    struct hone_error *e;
};

static int read_match(struct contest *c, const json_t *body, struct hone_error *e)
{
    int index, candidate, confirm;
    const char *kind;
    json_t *rules;
    size_t arm;
    json_t *identity;
    json_array_foreach(json_object_get(body, "identities"), arm, identity)
    {
        if (arm < 64 && identity_text_diagnostic(json_string_value(json_object_get(identity, "recipe.gates"))))
            c->diagnostics |= (uint64_t)1 << arm;
    }
    if (!json_object_get(body, "match"))
        return 0; /* another note */
    if (json_unpack((json_t *)body, "{s:i, s:s, s:i, s:i, s:b, s:o}", "match", &index, "match_kind", &kind, "candidate",
                    &candidate, "candidates", &c->n_candidates, "confirm", &confirm, "rules", &rules) ||
        index != c->n_matches || index >= CONTEST_MATCHES || c->n_candidates < 0 || c->n_candidates > CONTEST_MAX)
        return err_set(e, HONE_EINPUT, "match %d of the comparison: its record is not as `hone ab` writes it", c->n_matches);
    struct match *m = &c->matches[c->n_matches++];
    *m = (struct match){.candidate = candidate};
    c->confirm = confirm;
    while (m->kind < MATCH_CONFIRM && strcmp(kind, match_kind_name(m->kind)) != 0)
        m->kind++;
    return ab_rules_parse(&m->rules, rules, e);
}

static int read_sample(void *user, const struct journal_sample *js)
{
    struct reading *r = user;
    struct ab_sample s;
    json_t *index = json_object_get(js->more, "match");
    json_int_t i = json_integer_value(index);
    if (!json_is_integer(index))
        return 0; /* a series of another kind */
    if (i < 0 || i >= r->contest.n_matches)
        return err_set(r->e, HONE_EINPUT, "a sample of match %lld, which never began", (long long)i);
    int rc = ab_sample_parse(&s, js->more, r->e);
    struct ab_samples *to = &r->contest.matches[i].samples;
    if (!rc && to->n == r->room[i]) {
        size_t room = r->room[i] ? 2 * r->room[i] : 64;
        struct ab_sample *list = reallocarray(to->list, room, sizeof *list);
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

/* Whether what was measured of a candidate, or of the base by itself, is no result. */
static bool is_diagnostic(const struct contest *c, int candidate)
{
    return c->diagnostics & 1 || (candidate > 0 && candidate < 64 && c->diagnostics >> candidate & 1);
}

static json_t *result_json(const struct contest *c, const struct ab_result *result, int candidate)
{
    json_t *j = ab_result_json(result);
    if (is_diagnostic(c, candidate))
        json_object_set_new(j, "verdict", json_string("diagnostic"));
    return j;
}

json_t *ab_record_verdict(const struct contest *c)
{
    char text[400];
    json_t *matches = json_array(), *standings = json_array();
    for (int i = 0; i < c->n_matches; i++) {
        const struct match *m = &c->matches[i];
        json_array_append_new(matches, json_pack("{s:s, s:i, s:i, s:b, s:o}", "match_kind", match_kind_name(m->kind),
                                                 "candidate", m->candidate, "samples", (int)m->samples.n, "whole", m->whole,
                                                 "result", result_json(c, &m->result, m->candidate)));
    }
    for (int i = 0; i < c->n_standings; i++) {
        const struct standing *s = &c->standings[i];
        json_array_append_new(standings,
                              json_pack("{s:i, s:s, s:s, s:o}", "candidate", i + 1, "outcome",
                                        is_diagnostic(c, i + 1) ? "diagnostic" : ab_outcome_name(s->outcome), "why", s->why,
                                        "result", result_json(c, &s->match->result, i + 1)));
    }
    return json_pack("{s:s, s:o, s:o}", "verdict", c->diagnostics ? "diagnostic" : contest_verdict(c, text, sizeof text), "matches", matches, "standings",
                     standings);
}

int ab_record_derive(struct journal *j, int64_t run, json_t **derived, struct hone_error *e)
{
    struct reading *r = calloc(1, sizeof *r);
    json_t *notes = NULL, *note;
    size_t i;
    *derived = NULL;
    if (!r || !(r->contest.matches = calloc(CONTEST_MATCHES, sizeof *r->contest.matches))) {
        free(r);
        return err_set(e, HONE_ERESOURCE, "no memory for a comparison");
    }
    struct contest *c = &r->contest;
    r->e = e;
    int rc = journal_records(j, run, "note", &notes, e);
    json_array_foreach(notes, i, note)
    {
        rc = rc ? rc : read_match(c, json_object_get(note, "body"), e);
    }
    rc = rc ? rc : journal_each_sample(j, run, read_sample, r, e);
    for (int k = 0; k < c->n_matches && !rc; k++) {
        struct match *m = &c->matches[k];
        rc = ab_judge(&m->result, m->samples.list, m->samples.n, &m->rules, e);
        m->whole = m->result.early || m->result.n_blocks == m->rules.blocks;
    }
    if (!rc) {
        contest_judge(c);
        *derived = ab_record_verdict(c);
        rc = *derived ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a verdict");
    }
    contest_free(c);
    free(r);
    json_decref(notes);
    return rc;
}
