/* manual.c: hone manual and hone completion: manual pages and shell completion, written from the same tables of commands and
 * options that parse the command line, so that they cannot disagree with it. `make install` stores what they print. */
#include "cmd/cmd.h"

#include <ctype.h>
#include <string.h>

/* roff: a leading dot or quote, and every backslash and hyphen, need care. */
static void roff(const char *text)
{
    bool line_start = true;
    for (const char *p = text; *p; p++) {
        if (line_start && (*p == '.' || *p == '\''))
            fputs("\\&", stdout);
        if (*p == '\\')
            fputs("\\e", stdout);
        else if (*p == '-')
            fputs("\\-", stdout);
        else
            putchar(*p);
        line_start = *p == '\n';
    }
}

static void roff_options(const struct option *o, int n)
{
    for (int i = 0; i < n; i++) {
        char preset[80];
        printf(".TP\n.B ");
        roff(o[i].names);
        if (o[i].value)
            printf(" \\fI%s\\fR", o[i].value);
        putchar('\n');
        roff(o[i].help);
        roff(option_default(&o[i], preset, sizeof preset));
        putchar('\n');
    }
}

static void upper(const char *word)
{
    for (; *word; word++)
        putchar(toupper((unsigned char)*word));
}

static void page(const struct command *c)
{
    int n, n_common;
    const struct option *own = command_options(c, &n), *common = common_options(&n_common);
    printf(".TH HONE\\-");
    upper(c->name);
    printf(" 1 \"\" \"hone %s\"\n.SH NAME\nhone\\-%s \\- ", HONE_VERSION, c->name);
    roff(c->summary);
    printf("\n.SH SYNOPSIS\n.B hone %s\n[options] ", c->name);
    roff(c->usage);
    printf("\n.SH OPTIONS\n");
    roff_options(own, n);
    roff_options(common, n_common);
    printf(".SH EXAMPLE\n.nf\n");
    roff(c->example);
    printf("\n.fi\n.SH EXIT STATUS\n0 done, 1 a check, tier or verdict failed, 2 usage, 3 bad input, 4 resources, 5 a fault of hone, 130 "
           "interrupted.\n.SH ENVIRONMENT\n.TP\n.B HONE_SET\nGates that come before those of \\-\\-set.\n.SH SEE ALSO\n.BR hone (1)\n");
}

static void overview(void)
{
    printf(".TH HONE 1 \"\" \"hone %s\"\n.SH NAME\nhone \\- run GGUF language models, and make them faster with proof\n.SH SYNOPSIS\n"
           ".B hone\n.I COMMAND\n[options]\n.SH COMMANDS\n",
           HONE_VERSION);
    int n;
    const struct command *const *all = command_list(&n);
    for (int i = 0; i < n; i++) {
        printf(".TP\n.B hone\\-%s (1)\n", all[i]->name);
        roff(all[i]->summary);
        putchar('\n');
    }
}

static int run_manual(int n_args, char **args)
{
    if (n_args > 1)
        return cmd_refuse(HONE_EUSAGE, "manual: one command at most");
    if (!n_args) {
        overview();
        return output_flush();
    }
    const struct command *c = command_find(args[0]);
    if (!c)
        return cmd_refuse(HONE_EUSAGE, "manual: no command '%s'", args[0]);
    page(c);
    return output_flush();
}

/* The names of options, space between. */
static void words(const struct option *o, int n)
{
    for (int i = 0; i < n; i++, putchar(' '))
        for (const char *p = o[i].names; *p; p++)
            if (*p != ',')
                putchar(*p);
}

static int run_completion(int n_args, char **args)
{
    if (n_args != 1 || (strcmp(args[0], "bash") != 0 && strcmp(args[0], "zsh") != 0))
        return cmd_refuse(HONE_EUSAGE, "completion: for bash or zsh?");
    int n, n_common;
    const struct command *const *all = command_list(&n);
    const struct option *common = common_options(&n_common);
    if (!strcmp(args[0], "zsh"))
        puts("autoload -U +X bashcompinit && bashcompinit");
    puts("_hone() {\n    local words; COMPREPLY=()\n    local cur=${COMP_WORDS[COMP_CWORD]}\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        words=\"");
    for (int i = 0; i < n; i++)
        printf("%s ", all[i]->name);
    puts("\"\n    else\n        case ${COMP_WORDS[1]} in");
    for (int i = 0; i < n; i++) {
        int n_own;
        const struct option *own = command_options(all[i], &n_own);
        printf("        %s) words=\"", all[i]->name);
        words(own, n_own);
        words(common, n_common);
        puts("\" ;;");
    }
    puts("        esac\n    fi\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n    *) if [ \"$COMP_CWORD\" = 1 ]; then "
         "COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n    esac\n}\ncomplete -o "
         "filenames -F _hone hone");
    return output_flush();
}

const struct command command_manual = {
    "manual", "the manual page of a command, in roff", "[COMMAND]", "hone manual run | man -l -", NULL, run_manual,
};

const struct command command_completion = {
    "completion", "shell completion for bash or zsh", "SHELL", "eval \"$(hone completion bash)\"", NULL, run_completion,
};
