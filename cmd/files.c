/* files.c: the files of a command line. Options say by their kind what they name: OPTION_INPUT and OPTION_INPUTS are read,
 * OPTION_OUTPUT is written whole, OPTION_GROWS is added to. Before a command runs each of its outputs is looked at here: that
 * it can be written, and that it takes the place of nothing that is read, of no other output, and of nothing that the lab keeps
 * (journal, queue, tiers, denylist). A command that takes files as arguments says so itself.
 *
 * A check in each command was the beginning; it knew of the model and forgot the prompt, the tools and the recipe. */
#include "cmd/loop.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 8, SPLIT_NAME = 20 /* "-00001-of-00003.gguf" */ };

static const struct command *running;
static const char *arguments[MAX_ARGUMENTS];
static int n_arguments;

/* The output that is looked at: its file, if it is there, or else the folder and the name. */
struct place {
    const char *path, *option;
    char *target;
    bool there;
    struct stat file, folder;
};

static const char *name_of(const char *target)
{
    const char *slash = strrchr(target, '/');
    return slash ? slash + 1 : target;
}

static int stat_folder(const char *target, struct stat *st)
{
    const char *name = name_of(target);
    char *folder = name == target ? strdup(".") : strndup(target, (size_t)(name - target));
    int rc = folder ? stat(folder, st) : -1;
    free(folder);
    return rc;
}

/* Parts of one split model differ in a number. */
static bool same_split(const char *a, const char *b)
{
    size_t n = strlen(a);
    if (n != strlen(b) || n < SPLIT_NAME)
        return false;
    const char *p = a + n - SPLIT_NAME, *q = b + n - SPLIT_NAME;
    return p[0] == '-' && !strncmp(p + 6, "-of-", 4) && !strcmp(p + 15, ".gguf") && !strcmp(p + 6, q + 6) &&
           !strncmp(a, b, n - SPLIT_NAME + 1);
}

static bool is_there(const struct place *p, const char *other)
{
    struct stat st, folder;
    struct hone_error ignored = {0};
    char *target;
    if (!strcmp(other, "-"))
        return p->there && fstat(STDIN_FILENO, &st) == 0 && st.st_dev == p->file.st_dev && st.st_ino == p->file.st_ino;
    if (p->there && stat(other, &st) == 0 && st.st_dev == p->file.st_dev && st.st_ino == p->file.st_ino)
        return true;
    if (whole_target(&target, other, &ignored))
        return false;
    bool beside = stat_folder(target, &folder) == 0 && folder.st_dev == p->folder.st_dev && folder.st_ino == p->folder.st_ino;
    bool same = beside && (same_split(name_of(target), name_of(p->target)) ||
                           (!p->there && !strcmp(name_of(target), name_of(p->target))));
    free(target);
    return same;
}

static int refuse(const struct place *p, const char *what)
{
    return cmd_refuse(HONE_EUSAGE, "%s %s: that is %s", p->option, p->path, what);
}

/* The last of an option's names, which is its long one. */
static const char *long_name(const char *names)
{
    const char *comma = strchr(names, ',');
    return comma ? comma + 1 + strspn(comma + 1, " ") : names;
}

/* What goes on is written where it came from: a session, and the rungs of a ladder. */
static bool may_be_one(const char *a, const char *b)
{
    static const char *const pairs[][2] = {{"--save-session", "--load-session"}, {"--jsonl", "--resume"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((!strcmp(a, pairs[i][0]) && !strcmp(b, pairs[i][1])) || (!strcmp(a, pairs[i][1]) && !strcmp(b, pairs[i][0])))
            return true;
    return false;
}

static int check_option(const struct place *p, const struct option *o)
{
    const char *value =
        o->kind == OPTION_INPUT || o->kind == OPTION_OUTPUT || o->kind == OPTION_GROWS ? *(const char *const *)o->to : NULL;
    char *lines = o->kind == OPTION_INPUTS ? *(char *const *)o->to : NULL, what[80];
    snprintf(what, sizeof what, "what %s names", long_name(o->names));
    if (value && *value && value != p->path && is_there(p, value) && !may_be_one(p->option, long_name(o->names)))
        return refuse(p, what);
    for (char *end; lines && *lines; lines = end) {
        end = strchr(lines, '\n') + 1;
        end[-1] = 0;
        bool same = is_there(p, lines);
        end[-1] = '\n';
        if (same)
            return refuse(p, what);
    }
    return 0;
}

/* What is read or written without being named. */
static int check_kept(const struct place *p)
{
    static const char *const kept[][2] = {{"HONE_QUEUE", "queue.db"}, {"HONE_TIERS", "tiers"}, {"HONE_DENYLIST", "denylist"}};
    static const char *const parts[] = {"", "-wal", "-shm"}; /* of a database */
    char path[4200], what[80];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (cmd_journal_path(path, sizeof path - 8, false) && is_there(p, strcat(path, parts[i])))
            return refuse(p, "the journal");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (cmd_beside_journal(path, sizeof path, NULL, kept[i][0], kept[i][1]) && is_there(p, path)) {
            snprintf(what, sizeof what, "what %s names, or %s beside the journal", kept[i][0], kept[i][1]);
            return refuse(p, what);
        }
    return 0;
}

static int check_others(struct place *p)
{
    int n, rc = 0;
    const struct option *own = command_options(running, &n);
    p->there = stat(p->target, &p->file) == 0;
    if (stat_folder(p->target, &p->folder))
        return 0; /* there is nothing beside it */
    for (int i = 0; i < n && !rc; i++)
        rc = check_option(p, &own[i]);
    for (int i = 0; i < n_arguments && !rc; i++)
        if (is_there(p, arguments[i]))
            rc = refuse(p, "an input, too");
    return rc ? rc : check_kept(p);
}

static int check(const char *path, const char *option, bool grows)
{
    struct place p = {.path = path, .option = option};
    struct hone_error e = {0};
    if ((!grows && whole_check(path, &e)) || whole_target(&p.target, path, &e)) {
        err_prefix(&e, "%s", option);
        return cmd_fail(&e);
    }
    int rc = check_others(&p);
    free(p.target);
    return rc;
}

int files_check(const struct command *c)
{
    int n, rc = 0;
    const struct option *own = command_options(c, &n);
    running = c;
    for (int i = 0; i < n && !rc; i++) {
        const char *path = own[i].kind == OPTION_OUTPUT || own[i].kind == OPTION_GROWS ? *(const char *const *)own[i].to : NULL;
        if (path)
            rc = check(path, long_name(own[i].names), own[i].kind == OPTION_GROWS);
    }
    return rc;
}

void files_read(const char *path)
{
    INVARIANT(n_arguments < MAX_ARGUMENTS);
    arguments[n_arguments++] = path;
}

int files_check_output(const char *path, const char *option)
{
    return check(path, option, false);
}

int files_open(struct whole *w, const char *path)
{
    struct hone_error e = {0};
    return whole_begin(w, path, &e) ? cmd_fail(&e) : 0;
}

int files_close(struct whole *w, int rc)
{
    struct hone_error e = {0};
    return whole_end(w, rc == 0, &e) ? cmd_fail(&e) : rc;
}
