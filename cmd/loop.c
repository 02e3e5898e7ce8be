/* loop.c: what recipe, queue and tier share. Queue, tiers and denylist lie beside the journal unless told otherwise, so that
 * one place holds all of a project's lab, and several processes that agree on a journal agree on the rest. */
#include "cmd/loop.h"

#include "lab/denylist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *denylist_path;

const char *cmd_beside_journal(char *path, size_t size, const char *given, const char *variable, const char *name)
{
    char journal[4096];
    const char *said = given ? given : getenv(variable);
    if (said && *said) {
        snprintf(path, size, "%s", said);
        return path;
    }
    if (!cmd_journal_path(journal, sizeof journal, false))
        return NULL;
    char *slash = strrchr(journal, '/');
    snprintf(path, size, "%.*s%s", slash ? (int)(slash + 1 - journal) : 0, journal, name);
    return path;
}

int cmd_open_journal(struct journal **j, enum journal_mode mode, bool must)
{
    char path[4096];
    struct hone_error e = {0};
    *j = NULL;
    if (journal_args.off && !must)
        return 0;
    if (!cmd_journal_path(path, sizeof path, mode == JOURNAL_WRITE))
        return must ? cmd_refuse(HONE_ERESOURCE,
                                 "neither HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the journal is: give --journal FILE")
                    : 0;
    if (!must && access(path, F_OK))
        return 0;
    return journal_open(j, path, mode, &e) ? cmd_fail(&e) : 0;
}

int cmd_lint_recipe(const struct recipe *r, struct journal *j, struct recipe_findings *f)
{
    struct hone_error e = {0};
    struct denylist d = {0};
    char path[4200];
    const char *variable = getenv("HONE_DENYLIST");
    bool named = denylist_path || (variable && *variable);
    if (recipe_lint(r, f, &e))
        return cmd_fail(&e);
    if (!cmd_beside_journal(path, sizeof path, denylist_path, "HONE_DENYLIST", "denylist") || (!named && access(path, F_OK)))
        return 0;
    int rc = denylist_read(&d, path, &e) || denylist_check(&d, r, j, f, &e) ? cmd_fail(&e) : 0;
    denylist_free(&d);
    return rc;
}

int cmd_role(const char *command, const char *as, bool otherwise, bool *is_worker)
{
    const char *said[2] = {getenv("HONE_ROLE"), as};
    *is_worker = otherwise;
    for (int i = 0; i < 2; i++) {
        bool worker = said[i] && !strcmp(said[i], "worker");
        if (!said[i] || !*said[i])
            continue;
        if (!worker && strcmp(said[i], "supervisor") != 0)
            return cmd_refuse(HONE_EUSAGE, "%s: the role %s; supervisor and worker are possible", command, said[i]);
        if (i && !worker && said[0] && !strcmp(said[0], "worker"))
            return cmd_refuse(HONE_ECHECK, "%s: HONE_ROLE says worker, and --as does not make a supervisor of one", command);
        *is_worker = worker;
    }
    return 0;
}

int cmd_parse_id(const char *command, const char *text, int64_t *id)
{
    char *end;
    errno = 0;
    *id = strtoll(text, &end, 10);
    return end == text || *end || errno || *id < 1 ? cmd_refuse(HONE_EUSAGE, "%s: '%s' is no number", command, text) : 0;
}
