/* journal_files.c: hone journal verify, export and import: that a journal is whole, and records as lines that others can check
 * and take in.
 *
 * An import is all or nothing, also of the journal's file itself: records that are refused leave no empty journal, whose chain
 * somebody would go on with. */
#include "cmd/journal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int journal_show_verify(struct journal *j, const char *head)
{
    struct hone_error e = {0};
    struct journal_checked c;
    bool has = true;
    if (head && (strlen(head) != 64 || strspn(head, "0123456789abcdef") != 64))
        return cmd_refuse(HONE_EUSAGE, "journal: '%s' is no SHA-256 of a record", head);
    if (journal_verify(j, &c, &e) || (head && journal_has(j, head, &has, &e)))
        return cmd_fail(&e);
    if (!has)
        return cmd_refuse(HONE_ECHECK,
                          "%s: its chain holds, but no record of it is %s: it is not the journal that had this head",
                          journal_path(j), head);
    if (output_json())
        return output_print(
            json_pack("{s:I, s:I, s:s}", "records", (json_int_t)c.records, "chains", (json_int_t)c.chains, "head", c.head));
    printf("%lld records in %lld chain(s): pages sound, every record what its hash says, every link in place\nhead %s\n",
           (long long)c.records, (long long)c.chains, c.head);
    return 0;
}

int journal_show_export(struct journal *j, int64_t id)
{
    struct hone_error e = {0};
    const char *path = journal_view.out;
    struct whole w = {.file = stdout};
    int64_t n;
    int rc = path ? files_open(&w, path) : 0;
    if (rc)
        return rc;
    rc = journal_export(j, id, w.file, &n, &e);
    rc = !rc ? 0 : !path && ferror(stdout) ? output_flush() : cmd_fail(&e);
    if (path)
        rc = files_close(&w, rc);
    if (!rc)
        fprintf(stderr, "hone: exported %lld records\n", (long long)n);
    return rc;
}

/* Where there is no journal yet it is made beside its place, so that a file that is refused leaves none. */
static int import_into(const char *journal, FILE *from, const char *label, int64_t *added, int64_t *known)
{
    struct hone_error e = {0};
    struct journal *j;
    char partial[4200];
    bool fresh = access(journal, F_OK) != 0;
    snprintf(partial, sizeof partial, "%s.%ld.partial", journal, (long)getpid());
    if (journal_open(&j, fresh ? partial : journal, JOURNAL_WRITE, &e))
        return cmd_fail(&e);
    int rc = journal_import(j, from, label, added, known, &e) ? cmd_fail(&e) : 0;
    journal_close(j);
    if (fresh && !rc && link(partial, journal)) /* not over one that came meanwhile */
        rc = cmd_refuse(HONE_ERESOURCE, "%s: %s", journal, strerror(errno));
    if (fresh)
        unlink(partial);
    return rc;
}

int journal_take_import(const char *path)
{
    int64_t added, known;
    char journal[4096];
    FILE *from = strcmp(path, "-") ? fopen(path, "re") : stdin;
    if (!from)
        return cmd_refuse(HONE_EINPUT, "%s: %s", path, strerror(errno));
    int rc = import_into(cmd_journal_path(journal, sizeof journal, true), from, path, &added, &known);
    if (from != stdin)
        fclose(from);
    if (rc)
        return rc;
    if (output_json())
        return output_print(json_pack("{s:I, s:I}", "added", (json_int_t)added, "known", (json_int_t)known));
    printf("%lld records added, %lld were there\n", (long long)added, (long long)known);
    return 0;
}
