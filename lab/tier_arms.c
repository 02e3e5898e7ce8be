/* tier_arms.c: whether two arms of a comparison, or two sides of a verification, differ in their recipes and in nothing else. A
 * win over a base that was told to be slow is none, and an output that equals a wrong one is wrong. What each was told beside
 * its recipe is in the record (arm_said), in words: from identities alone a thread less could be a recipe's setting or a
 * handicap. Identities are compared all the same, for what reaches one arm unsaid.
 *
 * Whose word a reference is: hone without gates, its own reference, or the best of the tier, which was verified before. A
 * recipe that a task starts from is anybody's, and two wrong recipes may well agree. */
#include "lab/tier_judging.h"

#include <stdio.h>
#include <string.h>

/* Whether a recipe does nothing but to take the reference instead of what hone chooses by itself, if it does anything. */
static bool is_reference(const json_t *recipe)
{
    json_t *gate;
    size_t i;
    struct recipe none = {0};
    struct hone_error ignored = {0};
    bool is = true;
    json_array_foreach(json_object_get(recipe, "gates"), i, gate)
    {
        struct gates one = {0};
        is = is && json_is_string(gate) && !gates_parse(&one, json_string_value(gate), "record", &ignored);
        for (int k = 0; k < one.n && is; k++)
            is = (one.list[k].kind == GATE_KERNEL && !strcmp(one.list[k].variant, "ref")) ||
                 (one.list[k].kind == GATE_FUSE && !strcmp(one.list[k].variant, "off"));
        gates_free(&one);
    }
    json_t *types = json_copy((json_t *)recipe);
    is = is && types && !json_object_set_new(types, "gates", json_array()) && !recipe_parse(&none, "", "nothing", &ignored) &&
         recipe_is(&none, types);
    recipe_free(&none);
    json_decref(types);
    return is;
}

/* The reference must be one: what was verified against itself, or against another doubtful recipe, is not verified. */
static int check_reference(struct judging *g, const json_t *sides)
{
    static const char rule[] = "verify reference";
    const json_t *run = g->runs[VERIFY], *a = json_object_get(json_array_get(sides, 0), "recipe");
    bool promoted = g->best && recipe_is(&g->best_recipe, a);
    if (recipe_is(g->recipe, a) && !(promoted && !strcmp(g->best_recipe.hash, g->recipe->hash)))
        return tier_say(g, TIER_FAIL, run, rule,
                        "it was verified against itself, which proves nothing: give verify another --a, or none");
    if (promoted)
        return tier_say(g, TIER_PASS, run, rule, "side A is the best of the tier, of run %lld",
                        (long long)json_integer_value(json_object_get(g->best, "run")));
    if (is_reference(a))
        return tier_say(g, TIER_PASS, run, rule, "side A is what hone does by itself, or its reference");
    return tier_say(g, TIER_FAIL, run, rule,
                    "side A is neither what hone does by itself, nor its reference, nor the best of the tier: "
                    "give verify no --a, or --a kernel=ref");
}

/* A side is told its recipe and gates, and nothing that the other is not. */
int tier_check_sides(struct judging *g)
{
    static const char *const names[] = {"A", "B"};
    json_t *sides = NULL;
    const json_t *run = g->claim->promote || g->tier->has_verify ? g->runs[VERIFY] : NULL;
    int rc = run ? tier_noted(g, run, "sides", &sides) : 0;
    bool told = false;
    for (size_t i = 0; i < 2 && run && !rc && !told; i++) {
        const json_t *said = json_object_get(json_array_get(sides, i), "said");
        const char *first = json_string_value(json_array_get(said, 0));
        if ((told = first || !json_is_array(said)))
            rc = said ? tier_say(g, TIER_FAIL, run, "verify sides", "side %s was told more than a recipe: %.60s", names[i],
                                 first)
                      : tier_say(g, TIER_NONE, run, "verify sides", "the record does not say what side %s was told", names[i]);
    }
    if (run && !rc)
        rc = check_reference(g, sides);
    json_decref(sides);
    return rc;
}

/* What a recipe's words may make different, and what follows from them. */
static bool differs_by_recipe(const char *what)
{
    static const char *const names[] = {"recipe.gates", "recipe.threads", "type_k",      "type_v",   "n_threads", "kernels",
                                        "fallbacks",    "declines",       "gates_unfit", "backends", "gpu_info"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(what, names[i]))
            return true;
    return false;
}

/* The arms of the comparison differ in their recipes alone: a base that is told to be slow is beaten by anything. What each arm
 * was told beside its recipe is in the record, since a thread less may be a recipe's setting or a handicap; the rest of who
 * they were is compared too, for what reaches one arm unsaid. */
int tier_check_arms(struct judging *g)
{
    static const char rule[] = "arms alike";
    const json_t *run = g->runs[AB], *a = json_array_get(g->arms, 0), *b = json_array_get(g->arms, (size_t)g->candidate);
    json_t *said = NULL, *both = NULL, *value;
    const char *what;
    if (!run || !(g->claim->promote || g->tier->has_ab))
        return 0;
    int rc = tier_noted(g, run, "said", &said);
    if (!rc && !said) {
        rc = tier_say(g, TIER_NONE, run, rule, "the record does not say what the arms were told beside their recipes");
        goto done;
    }
    for (int i = 0; i < 2 && !rc; i++) {
        const char *first = json_string_value(json_array_get(json_array_get(said, i ? (size_t)g->candidate : 0), 0));
        if (first) {
            rc =
                tier_say(g, TIER_FAIL, run, rule, "the %s was told more than a recipe: %.60s", i ? "candidate" : "base", first);
            goto done;
        }
    }
    if (!rc && (strstr(text_of(a, "recipe.gates"), "\"debug.") || strstr(text_of(a, "recipe.gates"), "\"decline."))) {
        rc = tier_say(g, TIER_FAIL, run, rule, "the base has diagnostics among its gates: %.200s", text_of(a, "recipe.gates"));
        goto done;
    }
    both = rc ? NULL : json_copy((json_t *)a);
    if (!rc && (!both || json_object_update(both, (json_t *)b)))
        rc = err_set(g->e, HONE_ERESOURCE, "no memory for a tier");
    json_object_foreach(both, what, value)
    {
        const json_t *x = json_object_get(a, what), *y = json_object_get(b, what);
        if (rc || (x && y && json_equal(x, y)) || differs_by_recipe(what))
            continue;
        rc = tier_say(g, TIER_FAIL, run, rule, "they differ in %.60s: %.80s in the base, %.80s in the candidate", what,
                      x ? json_string_value(x) : "nothing", y ? json_string_value(y) : "nothing");
        goto done;
    }
    rc = rc ? rc : tier_say(g, TIER_PASS, run, rule, "they differ in their recipes alone");
done:
    json_decref(said);
    json_decref(both);
    return rc;
}
