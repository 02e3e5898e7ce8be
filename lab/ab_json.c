/* ab_json.c: rules, samples and verdicts of a comparison as JSON, for output and journal, and back: a journal's verdict is
 * always derived again from its samples. What JSON cannot say, an end that nothing bounds, is null. */
#include "lab/ab.h"

#include <math.h>
#include <string.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *span_json(const struct ab_span *s)
{
    return json_pack("{s:o, s:o, s:o}", "centre", number(s->centre), "lo", number(s->lo), "hi", number(s->hi));
}

json_t *ab_result_json(const struct ab_result *r)
{
    json_t *sequence = json_pack("{s:o, s:o}", "lo", number(r->sequence.lo), "hi", number(r->sequence.hi));
    return json_pack("{s:s, s:i, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "verdict",
                     ab_outcome_name(r->outcome), "blocks", r->n_blocks, "early", r->early, "moved", r->moved, "gain",
                     span_json(&r->gain), "sequence", sequence, "p", number(r->p), "signed_rank_p", number(r->signed_rank), "position",
                     span_json(&r->position), "drift", number(r->drift), "block_noise", number(r->noise), "more_blocks",
                     number(r->more_blocks), "a_ns", number(r->a_ns), "b_ns", number(r->b_ns), "outputs", ab_outputs_name(r->outputs));
}

json_t *ab_rules_json(const struct ab_rules *r)
{
    return json_pack("{s:i, s:b, s:f, s:f, s:f, s:I}", "blocks", r->blocks, "early", r->early, "level", r->level, "early_alpha",
                     r->early_alpha, "margin", r->margin, "seed", (json_int_t)r->seed);
}

json_t *ab_sample_json(const struct ab_sample *s)
{
    return json_pack("{s:i, s:i, s:s, s:f, s:s}", "block", s->block, "position", s->position, "arm", s->candidate ? "b" : "a",
                     "ns", s->ns, "output", s->output);
}

int ab_rules_parse(struct ab_rules *r, const json_t *j, struct hone_error *e)
{
    json_error_t why;
    int early;
    json_int_t seed;
    *r = ab_defaults();
    if (json_unpack_ex((json_t *)j, &why, 0, "{s:i, s:b, s:F, s:F, s:F, s:I}", "blocks", &r->blocks, "early", &early, "level",
                       &r->level, "early_alpha", &r->early_alpha, "margin", &r->margin, "seed", &seed))
        return err_set(e, HONE_EINPUT, "rules of a comparison: %s", why.text);
    r->early = early;
    r->seed = (uint64_t)seed;
    return ab_rules_check(r, e) ? e->code = HONE_EINPUT : 0;
}

int ab_sample_parse(struct ab_sample *s, const json_t *j, struct hone_error *e)
{
    json_error_t why;
    const char *arm, *output;
    *s = (struct ab_sample){0};
    if (json_unpack_ex((json_t *)j, &why, 0, "{s:i, s:i, s:s, s:F, s:s}", "block", &s->block, "position", &s->position, "arm",
                       &arm, "ns", &s->ns, "output", &output))
        return err_set(e, HONE_EINPUT, "sample of a comparison: %s", why.text);
    bool known = !strcmp(arm, "a") || !strcmp(arm, "b");
    if (!known || strlen(output) >= sizeof s->output)
        return err_set(e, HONE_EINPUT, "sample of a comparison: %s",
                       known ? "its output is no SHA-256" : "its arm is neither a nor b");
    s->candidate = *arm == 'b';
    memcpy(s->output, output, strlen(output) + 1);
    return 0;
}
