/* machine_lock.c: flock on a file that all users of a machine find.
 *
 * The kernel gives the lock back when its holder is gone, however it went; a file with a process number in it would outlive a
 * SIGKILL. The lock belongs to the open file, so whatever its holder forked keeps it until it is gone too: a guard that still
 * ends what a killed step left running still disturbs others.
 *
 * A holder starts programs that measure: `ab` its fresh processes, `iterate` its steps. They must not wait for it. The holder's
 * number goes to them by the environment, and one that finds it among its ancestors has the lock through it. The number alone
 * would not do: a variable that somebody exports, or that a daemon keeps, would switch the lock off without a word.
 *
 * Who may read the file may lock it, so it needs no group and no rights beyond a place where everybody may make a file. A place
 * of each user's own (XDG_RUNTIME_DIR) would not do: the processors are everybody's. Containers that share processors and no
 * folder do not see each other. */
#include "lab/machine_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define HOLDER "HONE_MEASURES"
enum { TICK_MS = 100, MOST_ANCESTORS = 64 };

const char *machine_lock_path(void)
{
    const char *named = getenv("HONE_LOCK");
    struct stat st;
    bool for_all = stat("/run/lock", &st) == 0 && (st.st_mode & 01007) == 01007; /* the same answer for every user */
    return named && *named ? named : for_all ? "/run/lock/hone.lock" : "/tmp/hone.lock";
}

/* The parent of a process; 0: it is gone, or has none. */
static long parent_of(long pid)
{
    char path[64], line[512];
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    const char *end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL; /* a name may have brackets and spaces */
    if (end && sscanf(end + 1, " %*c %ld", &parent) != 1)
        parent = 0;
    if (f)
        fclose(f);
    return parent;
}

static bool held_above(void)
{
    const char *said = getenv(HOLDER);
    long holder = said ? strtol(said, NULL, 10) : 0, pid = getpid();
    for (int i = 0; i < MOST_ANCESTORS && pid > 0 && holder > 0; i++, pid = parent_of(pid))
        if (pid == holder)
            return true;
    return false;
}

/* Opened for reading, which is enough to lock it; one of somebody else's in a folder for all must not be opened as if to make
 * it. */
static int open_file(const char *path, struct hone_error *e)
{
    struct stat st;
    int fd = -1;
    for (int i = 0; i < 10 && fd < 0; i++) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 && errno == ENOENT && (fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644)) >= 0)
            fchmod(fd, 0644); /* whatever the umask is */
        if (fd < 0 && errno != EEXIST && errno != EACCES)
            break;
        if (fd < 0)
            poll(NULL, 0, 5); /* another is making it */
    }
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        return err_set(e, HONE_ERESOURCE, "%s is no file to lock the machine by: others may measure at the same time", path),
               -1;
    }
    if (fd < 0)
        err_set(e, HONE_ERESOURCE, "%s: %s: others may measure at the same time", path, strerror(errno));
    return fd;
}

/* Who has the lock of the file, for a message: the kernel's own list says so. */
static void find_holder(int fd, char *who, size_t size)
{
    char line[256], path[64], command[300] = "";
    struct stat st;
    long pid = 0;
    FILE *f = fstat(fd, &st) ? NULL : fopen("/proc/locks", "re");
    while (f && !pid && fgets(line, sizeof line, f)) {
        unsigned major, minor;
        unsigned long inode;
        long one;
        if (sscanf(line, "%*d: FLOCK ADVISORY WRITE %ld %x:%x:%lu", &one, &major, &minor, &inode) == 4 && inode == st.st_ino &&
            major == major(st.st_dev) && minor == minor(st.st_dev))
            pid = one;
    }
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    f = pid ? fopen(path, "re") : NULL;
    size_t n = f ? fread(command, 1, sizeof command - 1, f) : 0;
    if (f)
        fclose(f);
    size_t first = strnlen(command, n);
    const char *slash = strrchr(command, '/'), *name = slash ? slash + 1 : command,
               *second = first + 1 < n ? command + first + 1 : "";
    if (!pid)
        snprintf(who, size, "another program");
    else
        snprintf(who, size, "process %ld%s%.60s%s%.40s%s", pid, *name ? " (" : "", name, *second ? " " : "", second,
                 *name ? ")" : "");
    for (unsigned char *p = (unsigned char *)who; *p; p++)
        *p = *p < 0x20 || *p >= 0x7f ? '?' : *p;
}

int machine_lock_take(struct machine_lock *l, const struct machine_wait *w, struct hone_error *e)
{
    bool told = false;
    char text[200];
    if (l->held || held_above())
        return 0;
    int fd = open_file(machine_lock_path(), e);
    if (fd < 0)
        return HONE_ERESOURCE;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            int rc =
                err_set(e, HONE_ERESOURCE, "%s: %s: others may measure at the same time", machine_lock_path(), strerror(errno));
            close(fd);
            return rc;
        }
        if (!told && w->tell) {
            find_holder(fd, text, sizeof text);
            w->tell(w->user, text);
            told = true;
        }
        if (w->tick && w->tick(w->user)) {
            close(fd);
            return err_set(e, HONE_ECANCELED, "cancelled");
        }
        poll(NULL, 0, TICK_MS);
    }
    snprintf(text, sizeof text, "%ld", (long)getpid());
    setenv(HOLDER, text, 1);
    *l = (struct machine_lock){.fd = fd, .held = true};
    return 0;
}

/* Given back for those that were forked too: they have the same open file. */
void machine_lock_drop(struct machine_lock *l)
{
    if (!l->held)
        return;
    flock(l->fd, LOCK_UN);
    close(l->fd);
    unsetenv(HOLDER);
    *l = (struct machine_lock){0};
}
