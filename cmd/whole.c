/* whole.c: output files that are put in place only when they are whole: written beside, under a name with the process' number, and renamed at
 * the end. What is there and is no regular file is refused (renaming onto /dev/null would take it from everybody, if root does
 * it); a link is followed to what it names. */
#include "cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_file(const char *path, const struct stat *there)
{
    struct stat one;
    return path && stat(path, &one) == 0 && one.st_dev == there->st_dev && one.st_ino == there->st_ino;
}

int whole_check(const char *path, const char *option)
{
    struct stat there;
    if (!*path || strlen(path) > WHOLE_PATH - 64)
        return cmd_refuse(HONE_EUSAGE, "%s: '%.60s' is no file name", option, path);
    if (stat(path, &there))
        return 0;
    if (!S_ISREG(there.st_mode))
        return cmd_refuse(HONE_EUSAGE, "%s %s: not a regular file", option, path);
    char journal[4096];
    if (is_file(model_args.model, &there))
        return cmd_refuse(HONE_EUSAGE, "%s %s: that is the model", option, path);
    if (is_file(cmd_journal_path(journal, sizeof journal, false), &there))
        return cmd_refuse(HONE_EUSAGE, "%s %s: that is the journal", option, path);
    return 0;
}

int whole_open(struct whole_file *w, const char *path, const char *option)
{
    *w = (struct whole_file){.to = NULL};
    int rc = whole_check(path, option);
    if (rc)
        return rc;
    char *real = realpath(path, NULL); /* NULL: not there yet */
    snprintf(w->path, sizeof w->path, "%s", real ? real : path);
    free(real);
    snprintf(w->partial, sizeof w->partial, "%s.%ld.partial", w->path, (long)getpid());
    w->to = fopen(w->partial, "wxe");
    return w->to ? 0 : cmd_refuse(HONE_ERESOURCE, "%s: cannot create: %s", w->partial, strerror(errno));
}

int whole_close(struct whole_file *w, int rc)
{
    bool bad = ferror(w->to);
    errno = 0;
    bad |= fclose(w->to) != 0;
    if (!rc && (bad || rename(w->partial, w->path)))
        rc = cmd_refuse(HONE_ERESOURCE, "%s: cannot write: %s", w->path, errno ? strerror(errno) : "the disk may be full");
    if (rc)
        unlink(w->partial);
    return rc;
}
