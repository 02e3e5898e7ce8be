/* whole.c: see whole.h. A file grows beside its place, under a name with the process' number, and is renamed when all of it is
 * there; so neither a full disk nor a kill leaves half of one under a good name, and a file that is mapped can be replaced by a
 * new one. Writing into place and truncating on failure was the alternative; it does not survive a kill. No fsync: a crash of
 * the machine may lose the file, as with cp.
 *
 * What is there and is no regular file is refused: renaming onto /dev/null would take it from everybody, if root does it. A
 * link is followed to what it names, also when that is not there yet: the link is somebody's wish where the file should lie.
 * Its folder is asked by making a file in it, not by access(), which knows nothing of folders in which nobody can make files
 * (/proc) and of full disks. */
#include "base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS = 40, LONGEST = 4000, NAMES = 100 };

int whole_target(char **target, const char *path, struct hone_error *e)
{
    char *at = strdup(path), text[LONGEST + 1];
    for (int i = 0; at && i < LINKS; i++) {
        ssize_t n = readlink(at, text, LONGEST);
        if (n < 0) { /* no link, or nothing */
            *target = at;
            return 0;
        }
        text[n] = 0;
        const char *slash = strrchr(at, '/');
        char *next = NULL;
        if (text[0] == '/' || !slash)
            next = strdup(text);
        else if (asprintf(&next, "%.*s/%s", (int)(slash - at), at, text) < 0)
            next = NULL;
        free(at);
        at = next;
    }
    *target = NULL;
    int rc = at ? err_set(e, HONE_EUSAGE, "%s: a link that leads nowhere", path)
                : err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
    free(at);
    return rc;
}

static int no_memory(const char *path, struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
}

/* The first name beside the target that is free, so that two writers of one path never share a file, and nobody's link is
 * followed. */
static int open_partial(struct whole *w, const char *path, struct hone_error *e)
{
    size_t size = strlen(w->path) + 48;
    int fd = -1;
    w->partial = malloc(size);
    if (!w->partial)
        return no_memory(path, e);
    for (int i = 0; i < NAMES && fd < 0; i++) {
        char more[8] = "";
        if (i)
            snprintf(more, sizeof more, "-%d", i);
        snprintf(w->partial, size, "%s.%ld%s.partial", w->path, (long)getpid(), more);
        fd = open(w->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return err_set(e, HONE_ERESOURCE, "%s: cannot write there: %s", path, strerror(errno));
    w->file = fdopen(fd, "w+b");
    if (w->file)
        return 0;
    close(fd);
    unlink(w->partial);
    return no_memory(path, e);
}

int whole_begin(struct whole *w, const char *path, struct hone_error *e)
{
    struct stat there;
    size_t n = strlen(path);
    *w = (struct whole){0};
    if (!n || n > LONGEST || path[n - 1] == '/')
        return err_set(e, HONE_EUSAGE, "'%.60s' is no file name", path);
    int rc = whole_target(&w->path, path, e);
    if (!rc && stat(w->path, &there) == 0 && !S_ISREG(there.st_mode))
        rc = err_set(e, HONE_EUSAGE, "%s: not a regular file", path);
    rc = rc ? rc : open_partial(w, path, e);
    if (rc) {
        free(w->path);
        free(w->partial);
        *w = (struct whole){0};
    }
    return rc;
}

int whole_end(struct whole *w, bool keep, struct hone_error *e)
{
    int rc = 0;
    if (!w->file)
        return 0;
    bool bad = ferror(w->file);
    errno = 0;
    bad |= fclose(w->file) != 0;
    if (keep && (bad || rename(w->partial, w->path)))
        rc = err_set(e, HONE_ERESOURCE, "%s: cannot write: %s", w->path, errno ? strerror(errno) : "the disk may be full");
    if (!keep || rc)
        unlink(w->partial);
    free(w->path);
    free(w->partial);
    *w = (struct whole){0};
    return rc;
}

int whole_check(const char *path, struct hone_error *e)
{
    struct whole w;
    int rc = whole_begin(&w, path, e);
    return rc ? rc : whole_end(&w, false, e);
}
