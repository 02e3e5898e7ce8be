/* submit.c: hone submit: prints a payload for a leaderboard, or checks one. It sends nothing: what is published, and where, is
 * for people. */
#include "cmd/loop.h"

#include "cmd/journal.h"

#include "lab/submit.h"

#include <stdlib.h>

static const char *check_path, *notes;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--check", OPTION_INPUT, &check_path, "FILE", "check this payload (-: stdin) instead of making one", 0, 0},
        {"--notes", OPTION_TEXT, &notes, "TEXT", "what there is to say; a must where caches are quantised", 0, 0},
        JOURNAL_OPTION,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int check(void)
{
    struct hone_error e = {0};
    json_error_t why;
    char *text;
    size_t size, i;
    json_t *one;
    if (file_read(&text, &size, check_path, &e))
        return cmd_fail(&e);
    json_t *payload = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!payload)
        return cmd_refuse(HONE_EINPUT, "%s:%d: %s", check_path, why.line, why.text);
    json_t *found = submit_check(payload);
    json_decref(payload);
    if (!found)
        return cmd_refuse(HONE_ERESOURCE, "no memory for a payload");
    size_t n = json_array_size(found);
    int rc;
    if (output_json()) {
        rc = output_print(json_pack("{s:b, s:o}", "valid", n == 0, "wrong", found));
    } else {
        json_array_foreach(found, i, one)
        {
            journal_put(json_string_value(one), 400, false);
            putchar('\n');
        }
        if (!n)
            printf("the payload holds what it must\n");
        json_decref(found);
        rc = output_flush();
    }
    return rc ? rc : n ? -HONE_ECHECK : 0;
}

static int run(int n_args, char **args)
{
    struct hone_error e = {0};
    struct journal *j;
    json_t *payload;
    int64_t id;
    if (check_path)
        return n_args ? cmd_refuse(HONE_EUSAGE, "submit: --check takes no run") : check();
    if (n_args != 1)
        return cmd_refuse(HONE_EUSAGE, "submit: which run? see hone journal list --kind bench");
    int rc = cmd_parse_id("submit", args[0], &id);
    rc = rc ? rc : cmd_open_journal(&j, JOURNAL_READ, true);
    if (rc)
        return rc;
    rc = submit_make(j, id, notes, &payload, &e) ? cmd_fail(&e) : 0;
    journal_close(j);
    if (!rc && !output_json())
        output_format = "json"; /* a payload is JSON, whoever asks */
    return rc ? rc : output_print(payload);
}

const struct command command_submit = {
    "submit",
    "a payload for a leaderboard from a bench run of the journal, or a check of one; sends nothing",
    "RUN | --check FILE",
    "hone submit 31 --notes 'keys in q8_0' >payload.json\n  hone submit --check payload.json",
    options,
    run,
    NULL,
};
