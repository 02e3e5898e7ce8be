/* recipe.c: hone recipe: what a recipe says, how two differ, what is wrong with one, which is the best. */
#include "cmd/loop.h"

#include "cmd/journal.h"

#include "model/utf8.h"

#include <string.h>

static const char *tier, *model;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        DENYLIST_OPTION,
        PLUGIN_OPTION,
        {"--tier", OPTION_TEXT, &tier, "NAME", "best: of this tier (default: whichever was promoted last)", 0, 0},
        {"--model", OPTION_TEXT, &model, "TEXT", "best: for models with this in the name, or at the start of the hash", 0, 0},
        JOURNAL_OPTION,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- show */

static json_t *recipe_json(const struct recipe *r)
{
    json_t *gates = json_array();
    for (int i = 0; i < r->gates.n; i++) {
        int over = recipe_overridden(r, i);
        json_array_append_new(gates, json_pack("{s:s, s:i, s:o}", "gate", r->gates.list[i].text, "line", r->lines[i],
                                               "overridden_in_line", over < 0 ? json_null() : json_integer(r->lines[over])));
    }
    return json_pack("{s:i, s:s, s:s, s:O, s:o}", "schema_version", 1, "file", r->path, "hash", r->hash, "content", r->content,
                     "gates", gates);
}

static int show(const struct recipe *r)
{
    if (output_json())
        return output_print(recipe_json(r));
    printf("recipe   %s\nhash     %s\n", r->path, r->hash);
    if (r->settings.type_k[0])
        printf("type_k   %s\n", r->settings.type_k);
    if (r->settings.type_v[0])
        printf("type_v   %s\n", r->settings.type_v);
    if (r->settings.n_threads)
        printf("threads  %d\n", r->settings.n_threads);
    for (int i = 0; i < r->gates.n; i++) {
        int over = recipe_overridden(r, i);
        printf("%7d  ", r->lines[i]);
        journal_put(r->gates.list[i].text, 200, false);
        if (over >= 0)
            printf("   (no effect: line %d)", r->lines[over]);
        putchar('\n');
    }
    return output_flush();
}

/* ---- diff */

static int diff(const struct recipe *a, const struct recipe *b)
{
    json_t *list = recipe_diff(a, b), *one;
    size_t i;
    if (!list)
        return cmd_refuse(HONE_ERESOURCE, "no memory for a difference");
    if (output_json())
        return output_print(list);
    json_array_foreach(list, i, one)
    {
        const char *x = json_string_value(json_object_get(one, "a")), *y = json_string_value(json_object_get(one, "b"));
        journal_put(json_string_value(json_object_get(one, "what")), 40, true);
        putchar(' ');
        journal_put(x ? x : "-", 28, true);
        printf(" -> ");
        journal_put(y ? y : "-", 28, false);
        putchar('\n');
    }
    if (!json_array_size(list))
        printf("%s\n", strcmp(a->hash, b->hash) ? "the same words in another order" : "no difference");
    json_decref(list);
    return output_flush();
}

/* ---- lint */

/* A file that cannot be read as a recipe is a finding too, each word of it: lint goes on with the next. */
static int lint_file(const char *path, struct journal *j, json_t *all, bool *bad)
{
    struct recipe r;
    struct recipe_findings f = {0};
    struct hone_error e = {0};
    char name[4200];
    int rc = 0;
    if (!recipe_read(&r, path, &e))
        rc = cmd_lint_recipe(&r, j, &f);
    else if (recipe_faults(path, &f, &e))
        rc = cmd_fail(&e);
    else if (!f.n) /* whatever it was, it is not right */
        rc = recipe_find(&f, 0, true, &e, "%s", e.message) ? cmd_fail(&e) : 0;
    utf8_shown(path, name, sizeof name);
    for (size_t i = 0; i < f.n; i++) {
        json_array_append_new(all, json_pack("{s:s, s:o, s:s, s:s}", "file", name, "line",
                                             f.list[i].line ? json_integer(f.list[i].line) : json_null(), "level",
                                             f.list[i].error ? "error" : "warning", "text", f.list[i].text));
        *bad = *bad || f.list[i].error;
    }
    recipe_findings_free(&f);
    recipe_free(&r);
    return rc;
}

static void print_finding(const json_t *one)
{
    const json_t *line = json_object_get(one, "line");
    journal_put(json_string_value(json_object_get(one, "file")), 1000, false);
    if (json_is_integer(line))
        printf(":%lld", (long long)json_integer_value(line));
    printf(": ");
    printf("%s: ", json_string_value(json_object_get(one, "level")));
    journal_put(json_string_value(json_object_get(one, "text")), 1000, false);
    putchar('\n');
}

static int lint(int n, char **paths)
{
    struct journal *j = NULL;
    json_t *all = json_array(), *one;
    bool bad = false;
    size_t k;
    int rc = cmd_open_journal(&j, JOURNAL_READ, false);
    for (int i = 0; i < n && !rc; i++)
        rc = lint_file(paths[i], j, all, &bad);
    journal_close(j);
    if (!rc && output_json())
        rc = output_print(json_incref(all));
    else if (!rc) {
        json_array_foreach(all, k, one) print_finding(one);
        if (!json_array_size(all) && !bad)
            printf("%d recipe%s, nothing wrong\n", n, n == 1 ? "" : "s");
        rc = output_flush();
    }
    json_decref(all);
    return rc ? rc : bad ? -HONE_EINPUT : 0;
}

/* ---- best */

static int best(void)
{
    struct journal *j = NULL;
    struct hone_error e = {0};
    json_t *d = NULL;
    int rc = cmd_open_journal(&j, JOURNAL_READ, true);
    if (!rc && recipe_best(j, tier, model, &d, &e))
        rc = cmd_fail(&e);
    journal_close(j);
    if (!rc && !d)
        rc = cmd_refuse(HONE_ECHECK, "no recipe was promoted%s%s; `hone tier promote` does that", tier ? " to " : "",
                        tier ? tier : "");
    if (rc || output_json())
        return rc ? rc : output_print(d);
    const char *text = json_string_value(json_object_get(d, "text"));
    fprintf(stderr, "hone: promoted to %s by run %lld\n", journal_word(d, "tier", NULL),
            (long long)json_integer_value(json_object_get(d, "run")));
    fputs(text ? text : "", stdout);
    json_decref(d);
    return output_flush();
}

/* ---- */

static int run(int n_args, char **args)
{
    struct recipe r[2] = {{0}, {0}};
    struct hone_error e = {0};
    const char *what = n_args ? args[0] : "";
    int wanted = !strcmp(what, "show")   ? 1
                 : !strcmp(what, "diff") ? 2
                 : !strcmp(what, "lint") ? -1
                 : !strcmp(what, "best") ? 0
                                         : -2;
    if (wanted == -2)
        return cmd_refuse(HONE_EUSAGE, "recipe: %s%s%sshow, diff, lint and best are possible", n_args ? "no '" : "", what,
                          n_args ? "'; " : "");
    if (wanted < 0 ? n_args < 2 : n_args - 1 != wanted)
        return cmd_refuse(HONE_EUSAGE, "recipe %s: %s; see hone recipe --help", what,
                          wanted < 0    ? "which files?"
                          : wanted == 0 ? "it takes no file"
                          : wanted == 1 ? "one file"
                                        : "two files");
    int rc = cmd_load_plugins();
    if (rc)
        return rc;
    if (wanted == 0)
        return best();
    if (wanted < 0)
        return lint(n_args - 1, args + 1);
    for (int i = 0; i < wanted && !rc; i++)
        rc = recipe_read(&r[i], args[1 + i], &e) ? cmd_fail(&e) : 0;
    if (!rc)
        rc = wanted == 1 ? show(&r[0]) : diff(&r[0], &r[1]);
    recipe_free(&r[0]);
    recipe_free(&r[1]);
    return rc;
}

const struct command command_recipe = {
    "recipe",
    "recipes, the files of gates and settings: show, diff, lint, and the best one of a tier",
    "show FILE | diff FILE FILE | lint FILE ... | best",
    "hone recipe show my.recipe\n  hone recipe diff best.recipe my.recipe\n  hone recipe lint *.recipe --denylist denylist\n"
    "  hone recipe best --tier decode > best.recipe",
    options,
    run,
    NULL,
};
