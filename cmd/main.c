/* main.c: the table of subcommands, their options and help. Options are rows of a table (cmd.h), parsed by one loop: getopt_long_only
 * accepts llama.cpp's one-dash long flags (-ngl) too, but also every unambiguous abbreviation, so that a new flag
 * breaks somebody's script. */
#include "cmd/cmd.h"

#include "base/cpu.h"
#include "base/log.h"
#include "engine/follow.h"
#include "engine/settings.h"
#include "graph/gates.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define COMMAND(name) extern const struct command command_##name;
#include "cmd/commands.def"
#undef COMMAND

static const struct command *const table[] = {
#define COMMAND(name) &command_##name,
#include "cmd/commands.def"
#undef COMMAND
};
enum { N_COMMANDS = sizeof table / sizeof *table };

bool verbose;
static bool help;
static const struct option common[] = {
    {"-v, --verbose", OPTION_FLAG, &verbose, NULL, "say more", 0, 0},
    {"-h, --help", OPTION_FLAG, &help, NULL, "this text", 0, 0},
};

const struct option *command_options(const struct command *c, int *n)
{
    *n = 0;
    return c->options ? c->options(n) : NULL;
}

const struct option *common_options(int *n)
{
    *n = (int)(sizeof common / sizeof *common);
    return common;
}

const struct command *const *command_list(int *n)
{
    *n = N_COMMANDS;
    return table;
}

const struct command *command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(table[i]->name, name))
            return table[i];
    return NULL;
}

static bool names_contain(const char *names, const char *word, size_t n)
{
    for (const char *p = names; *p;) {
        size_t k = strcspn(p, ",");
        if (k == n && !strncmp(p, word, n))
            return true;
        p += k;
        p += strspn(p, ", ");
    }
    return false;
}

static const struct option *option_find(const struct command *c, const char *word, size_t n)
{
    int n_own;
    const struct option *own = command_options(c, &n_own);
    for (int i = 0; i < n_own; i++)
        if (names_contain(own[i].names, word, n))
            return &own[i];
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (names_contain(common[i].names, word, n))
            return &common[i];
    return NULL;
}

static int option_number(const struct option *o, const char *name, const char *value, double *out)
{
    char *end;
    errno = 0;
    double x = strtod(value, &end);
    if (end == value || *end || isnan(x) || (o->kind == OPTION_INT && (x != floor(x) || fabs(x) > 2147483647)))
        return cmd_refuse(HONE_EUSAGE, "%s %s: not %s", name, value, o->kind == OPTION_INT ? "an integer" : "a number");
    if ((o->lo != 0 || o->hi != 0) && (x < o->lo || x > o->hi))
        return cmd_refuse(HONE_EUSAGE, "%s %s: %.15g to %.15g are possible", name, value, o->lo, o->hi);
    *out = x;
    return 0;
}

static int option_append(char **to, const char *value)
{
    size_t old = *to ? strlen(*to) : 0, n = strlen(value);
    char *joined = realloc(*to, old + n + 2);
    if (!joined)
        return cmd_refuse(HONE_ERESOURCE, "no memory for options");
    memcpy(joined + old, value, n);
    memcpy(joined + old + n, "\n", 2);
    *to = joined;
    return 0;
}

static int option_set(const struct option *o, const char *name, const char *value)
{
    double x = 0;
    int rc = 0;
    if (o->given)
        *o->given = true;
    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_OFF:
        *(bool *)o->to = o->kind == OPTION_FLAG;
        break;
    case OPTION_INT:
        if (!(rc = option_number(o, name, value, &x)))
            *(int *)o->to = (int)x;
        break;
    case OPTION_FLOAT:
        if (!(rc = option_number(o, name, value, &x)))
            *(float *)o->to = (float)x;
        break;
    case OPTION_U64: {
        char *end;
        errno = 0;
        unsigned long long u = strtoull(value, &end, 0);
        if (errno || end == value || *end || *value == '-')
            return cmd_refuse(HONE_EUSAGE, "%s %s: not an integer from 0 to 2^64 - 1", name, value);
        *(uint64_t *)o->to = u;
        break;
    }
    case OPTION_TEXT:
    case OPTION_INPUT:
    case OPTION_OUTPUT:
    case OPTION_GROWS:
        *(const char **)o->to = value;
        break;
    case OPTION_APPEND:
    case OPTION_INPUTS:
        rc = option_append(o->to, value);
        break;
    }
    return rc;
}

/* Whether -h or --help stands among the options. Asked before any of them is set, since the help shows the defaults. */
static bool help_wanted(const struct command *c, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = !strncmp(argv[i], "--", 2) ? strcspn(argv[i], "=") : strlen(argv[i]);
        const struct option *o = argv[i][0] == '-' ? option_find(c, argv[i], n) : NULL;
        if (o && o->to == &help)
            return true;
        i += o && o->value && !argv[i][n];
    }
    return false;
}

/* The value of an option in argv, or NULL; an option without one is "". */
static const char *option_given(const struct command *c, const struct option *wanted, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = !strncmp(argv[i], "--", 2) ? strcspn(argv[i], "=") : strlen(argv[i]);
        const struct option *o = argv[i][0] == '-' ? option_find(c, argv[i], n) : NULL;
        bool apart = o && o->value && !argv[i][n];
        if (o && o == wanted)
            return argv[i][n] ? argv[i] + n + 1 : apart && i + 1 < argc ? argv[i + 1] : "";
        i += apart;
    }
    return NULL;
}

/* A recipe's settings are options that the command line did not give. */
static int options_from_recipe(const struct command *c, int argc, char **argv)
{
    const struct option *recipe = option_find(c, "--recipe", strlen("--recipe"));
    const char *path = recipe && recipe->to == &model_args.recipe ? option_given(c, recipe, argc, argv) : NULL;
    static struct settings said; /* options point into it */
    static char threads[12];
    struct hone_error e = {0};
    if (!path || !*path)
        return 0;
    if (settings_of_file(&said, path, &e))
        return cmd_fail(&e);
    if (said.n_threads)
        snprintf(threads, sizeof threads, "%d", said.n_threads);
    const char *const pairs[][2] = {{"-ctk", said.type_k}, {"-ctv", said.type_v}, {"-t", threads}};
    int rc = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !rc; i++) {
        const struct option *o = option_find(c, pairs[i][0], strlen(pairs[i][0]));
        if (pairs[i][1][0] && o && !option_given(c, o, argc, argv))
            rc = option_set(o, pairs[i][0], pairs[i][1]);
    }
    return rc;
}

/* Sets the options in argv and moves the other arguments to its front. 0 or the exit code. */
static int options_parse(const struct command *c, int argc, char **argv, int *n_args)
{
    *n_args = 0;
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (only_args || word[0] != '-' || !word[1]) {
            argv[(*n_args)++] = word;
            continue;
        }
        if (!strcmp(word, "--")) {
            only_args = true;
            continue;
        }
        size_t n = !strncmp(word, "--", 2) ? strcspn(word, "=") : strlen(word);
        const struct option *o = option_find(c, word, n);
        if (!o)
            return cmd_refuse(HONE_EUSAGE, "%s: no option %.*s; see hone %s --help", c->name, (int)n, word, c->name);
        const char *value = word[n] == '=' ? word + n + 1 : NULL;
        word[n] = 0;
        if (o->value && !value) {
            if (i + 1 == argc)
                return cmd_refuse(HONE_EUSAGE, "%s: %s needs a value (%s)", c->name, word, o->value);
            value = argv[++i];
        }
        if (!o->value && value)
            return cmd_refuse(HONE_EUSAGE, "%s: %s takes no value", c->name, word);
        int rc = option_set(o, word, value);
        if (rc)
            return rc;
    }
    return 0;
}

/* A value as option_set would take it. */
static int option_try(const struct option *o, const char *name, const char *value)
{
    struct option other = *o;
    double x = 0;
    uint64_t u = 0;
    other.to = &u;
    other.given = NULL;
    return o->kind == OPTION_INT || o->kind == OPTION_FLOAT ? option_number(o, name, value, &x)
           : o->kind == OPTION_U64                          ? option_set(&other, name, value)
                                                            : 0;
}

int options_try(const struct command *c, const char *words, const char *from)
{
    char *own = strdup(words), *rest = own, *word;
    const char *format = output_format; /* which a command's table may take for its own when it is asked for */
    int rc = own ? 0 : cmd_refuse(HONE_ERESOURCE, "no memory for options");
    while (!rc && (word = strsep(&rest, " "))) {
        size_t n = !strncmp(word, "--", 2) ? strcspn(word, "=") : strlen(word);
        const struct option *o = word[0] == '-' ? option_find(c, word, n) : NULL;
        char *value = word[n] ? word + n + 1 : NULL;
        if (!*word)
            continue;
        if (!o)
            rc = cmd_refuse(HONE_EUSAGE, "%s: '%s' is no option of hone %s", from, word, c->name);
        else if (!o->value && value)
            rc = cmd_refuse(HONE_EUSAGE, "%s: %.*s takes no value", from, (int)n, word);
        if (rc || !o->value)
            continue;
        word[n] = 0;
        while (!value && rest && *rest == ' ')
            rest++;
        value = value ? value : strsep(&rest, " ");
        rc = value && *value ? option_try(o, word, value)
                             : cmd_refuse(HONE_EUSAGE, "%s: %s needs a value (%s)", from, word, o->value);
    }
    output_format = format;
    free(own);
    return rc;
}

/* Zeros, and what is off, are said by the help text where they mean something: "(0: one a core)". */
char *option_default(const struct option *o, char *text, size_t size)
{
    text[0] = 0;
    if (o->kind == OPTION_INT && *(const int *)o->to)
        snprintf(text, size, " (default %d)", *(const int *)o->to);
    else if (o->kind == OPTION_FLOAT && *(const float *)o->to != 0)
        snprintf(text, size, " (default %.6g)", (double)*(const float *)o->to);
    else if (o->kind == OPTION_U64 && *(const uint64_t *)o->to)
        snprintf(text, size, " (default %llu)", (unsigned long long)*(const uint64_t *)o->to);
    else if (o->kind == OPTION_TEXT && *(const char *const *)o->to)
        snprintf(text, size, " (default %s)", *(const char *const *)o->to);
    return text;
}

static void print_options(const struct option *o, int n)
{
    for (int i = 0; i < n; i++) {
        char left[100], preset[80];
        snprintf(left, sizeof left, "%s%s%s", o[i].names, o[i].value ? " " : "", o[i].value ? o[i].value : "");
        printf("  %-34s%s%s%s\n", left, strlen(left) > 33 ? "\n                                    " : "", o[i].help,
               option_default(&o[i], preset, sizeof preset));
    }
}

static int print_help(const struct command *c)
{
    int n;
    const struct option *own = command_options(c, &n);
    printf("hone %s: %s\n\nusage: hone %s [options] %s\n\n", c->name, c->summary, c->name, c->usage);
    print_options(own, n);
    print_options(common, (int)(sizeof common / sizeof *common));
    printf("\nexample:\n  %s\n", c->example);
    return output_flush();
}

static int print_overview(FILE *to)
{
    fprintf(to, "hone runs a GGUF language model and makes it faster on your own hardware, one kernel at a time, with proof.\n\n"
                "usage: hone COMMAND [options]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-12s%s\n", table[i]->name, table[i]->summary);
    fprintf(to, "\n`hone COMMAND --help` has the options and an example. `hone --version` says what this is.\n"
                "Exit codes: 0 done, 1 a check failed, 2 usage, 3 bad input, 4 resources, 5 a fault of hone, 130 interrupted.\n");
    return to == stdout ? output_flush() : -HONE_EUSAGE;
}

static void log_to_stderr(void *user, enum log_level level, const char *line)
{
    (void)user;
    progress_end();
    fprintf(stderr, "hone: %s%s\n", level == LOG_WARN ? "warning: " : "", line);
}

static int run_alone(const struct command *c, int n_args, char **args)
{
    int rc = files_check(c);
    if (!rc)
        rc = c->run(n_args, args);
    progress_end();
    int flushed = output_flush();
    return rc ? rc : flushed;
}

/* MPI waits for all processes that mpirun started, and cannot be told to stop. */
static void nobody_came(int limit_ms)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    fprintf(stderr, "hone: rank %s waited %.3g s for all processes that mpirun started to join: is each of them hone, with the same words?\n",
            rank ? rank : "?", limit_ms / 1e3);
    _exit(-HONE_ERESOURCE);
}

static struct termios terminal; /* as it was: whoever types may be in the middle of a line */
static bool has_terminal;

static void somebody_is_missed(const struct hone_error *e)
{
    if (has_terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
    fputc('\n', stderr);
    cmd_fail(e);
}

/* What --set says of it; 0: nothing. What is wrong there the session says. */
static int limit_of_set(void)
{
    struct gates g = {0};
    struct hone_error ignored = {0};
    int limit = model_args.set && !gates_parse(&g, model_args.set, "--set", &ignored) ? gates_comm_timeout_ms(&g) : 0;
    gates_free(&g);
    return limit;
}

/* Of several processes that mpirun started, that of rank 0 runs the command; the others do what its sessions tell them. */
static int run_with_others(const struct command *c, int n_args, char **args, const char *words)
{
    struct hone_error e = {0};
    struct follow_params p = {.poll = model_args.poll, .limit_ms = limit_of_set(), .command = words, .late = nobody_came, .lost = somebody_is_missed};
    has_terminal = !tcgetattr(STDIN_FILENO, &terminal);
    if (follow_start(&p, &e)) {
        bool shared = follow_comm() && !comm_error(follow_comm())->code; /* all know of it: one says it, and none is gone before */
        int refused = shared && comm_rank(follow_comm()) ? -e.code : cmd_fail(&e);
        follow_end();
        return refused;
    }
    bool leads = !follow_comm() || comm_rank(follow_comm()) == 0;
    int rc = leads ? run_alone(c, n_args, args) : 0;
    if (leads && !rc && !follow_used() && follow_comm())
        log_line(LOG_WARN, "mpirun started %d processes, and all but the first did nothing: -sm tensor or -sm layer splits a model over them",
                 comm_size(follow_comm()));
    if (!leads && model_args.mask && cpu_mask(model_args.mask, &e))
        rc = cmd_fail(&e);
    if (!leads && !rc)
        rc = cmd_load_plugins();
    if (!leads && !rc && follow_run(&e))
        rc = cmd_fail(&e);
    if (!leads && rc) /* the others need not wait to find out */
        comm_abort(follow_comm(), -rc, "it has said why");
    follow_end();
    return rc;
}

/* One text, malloc'd; NULL: no memory. */
static char *words_of(int n, char **words)
{
    size_t size = 1, at = 0;
    for (int i = 0; i < n; i++)
        size += strlen(words[i]) + 1;
    char *text = calloc(1, size);
    for (int i = 0; i < n && text; i++)
        at += (size_t)sprintf(text + at, "%s%s", i ? " " : "", words[i]);
    return text;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_overview(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return print_overview(stdout);
    if (!strcmp(argv[1], "--version")) {
        printf("hone %s\n", hone_build());
        return output_flush();
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe or a full quota is a write error with a message and a code, not a silent death */
    signal(SIGXFSZ, SIG_IGN);
    const struct command *c = command_find(argv[1]);
    if (!c)
        return cmd_refuse(HONE_EUSAGE, "no command '%s'; see hone --help", argv[1]);
    if (help_wanted(c, argc - 2, argv + 2))
        return print_help(c);
    char *words = follow_wanted() ? words_of(argc - 1, argv + 1) : NULL; /* before parsing moves them about */
    int n_args, rc = options_from_recipe(c, argc - 2, argv + 2);
    rc = rc ? rc : options_parse(c, argc - 2, argv + 2, &n_args);
    if (rc)
        return rc;
    rc = output_check(c->extra_output);
    if (rc)
        return rc;
    log_to(log_to_stderr, NULL, verbose ? LOG_DEBUG : LOG_WARN);
    if (comm_mpi_launched() && !comm_mpi_built())
        log_line(LOG_WARN, "mpirun seems to have started this process, and this build has no MPI: it runs alone");
    rc = follow_wanted() ? run_with_others(c, n_args, argv + 2, words) : run_alone(c, n_args, argv + 2);
    free(words);
    return rc;
}
