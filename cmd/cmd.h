/* cmd.h: what the subcommands share: the table of commands, options, the model and session that most of them open, and how they
 * end. Only this layer prints and exits. Data goes to stdout, everything else to stderr.
 *
 * Adding a subcommand: a file cmd/<name>.c that defines `const struct command command_<name>`, and a row in commands.def. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/err.h"
#include "base/whole.h"
#include "hone.h"
#include "lab/journal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct command {
    const char *name;
    const char *summary;  /* one line for `hone --help` */
    const char *usage;    /* what follows "hone <name> [options]": "FILE", "" */
    const char *example;  /* one command line, or several with newlines */
    const struct option *(*options)(int *n); /* its table; NULL: none */
    /* argv holds the n_args arguments that are no options. Returns the exit code. */
    int (*run)(int n_args, char **args);
    const char *extra_output; /* words for -o beside text, json and jsonl: "md, csv"; NULL: none */
};

/* The table of commands; a command's own options (NULL and 0: none), and those that all have. */
const struct command *const *command_list(int *n);
const struct command *command_find(const char *name); /* or NULL */
const struct option *command_options(const struct command *c, int *n);
const struct option *common_options(int *n);

enum option_kind {
    OPTION_FLAG,   /* bool *: set to true */
    OPTION_OFF,    /* bool *: set to false */
    OPTION_INT,    /* int *, within [lo, hi] */
    OPTION_FLOAT,  /* float *, within [lo, hi] */
    OPTION_U64,    /* uint64_t * */
    OPTION_TEXT,   /* const char ** */
    OPTION_APPEND, /* char **: malloc'd, values joined by newlines; repeatable */
    /* Names of files, kept as TEXT is, or (INPUTS) as APPEND; cmd/files.c looks at them before the command runs. */
    OPTION_INPUT,  /* read; "-": stdin */
    OPTION_INPUTS,
    OPTION_OUTPUT, /* put in place whole */
    OPTION_GROWS,  /* added to */
};

struct option {
    const char *names; /* "-n, --n-predict" */
    enum option_kind kind;
    void *to;          /* static storage that holds the default */
    const char *value; /* the value's name in the help: "N"; NULL for flags */
    const char *help;
    double lo, hi;     /* of numbers; both 0: any */
    bool *given;       /* set when it is given, for those whose default is a value like others; NULL: nobody asks */
};
/* What the option is when nobody gives it, as help and manual show it: " (default 40)", or "" where it is nothing. Returns text. */
char *option_default(const struct option *o, char *text, size_t size);

/* Whether words, parted by spaces, are options of a command with values that they can have; nothing is set. from: which option
 * holds them, for the message. 0, or the exit code. */
int options_try(const struct command *c, const char *words, const char *from);

/* Prints "hone: <message>" to stderr and returns the exit code of the error (e->code must be set). */
int cmd_fail(const struct hone_error *e);
/* The same with a printf-style message; code is a HONE_E... */
int cmd_refuse(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -o text|json|jsonl of every command: option row, and the answer. main checks the word. */
extern const char *output_format;
#define OUTPUT_OPTION {"-o, --output", OPTION_TEXT, &output_format, "FORMAT", "text, json or jsonl", 0, 0}
int output_check(const char *extra); /* 0, or the exit code for a wrong word; extra: formats of this command alone, or NULL */
bool output_json(void);
/* Prints a JSON value as one document (json) or one line (jsonl) to stdout and takes the reference. 0, or the exit code when
 * stdout cannot be written. */
int output_print(json_t *value);
/* Flushes stdout: 0, or the exit code of a write error (a full disk, a closed pipe), with its message. */
int output_flush(void);

/* What every command that opens a model takes. */
struct model_args {
    const char *model;
    int n_ctx, n_batch, n_threads, poll, n_snapshots;
    const char *flash; /* "on", "off", "auto" */
    const char *type_k, *type_v, *mask, *recipe;
    const char *split_mode, *tensor_split, *devices;
    int n_gpu_layers;
    char *set, *plugins;
    bool strict;
};
extern struct model_args model_args;
/* Rows for a command's own table: the model file alone, kernels from outside, or everything a session needs. */
#define PLUGIN_OPTION {"--plugin", OPTION_INPUTS, &model_args.plugins, "FILE", "kernels of your own, a .so, .cu, .cubin or .ptx, run where a gate names them (repeatable)", 0, 0}
#define MODEL_OPTION {"-m, --model", OPTION_INPUT, &model_args.model, "FILE", "the model, a GGUF file", 0, 0}
#define SESSION_OPTIONS                                                                                                          \
    MODEL_OPTION, {"-c, --ctx-size", OPTION_INT, &model_args.n_ctx, "N", "context, in tokens (0: the model's, at most 4096)", 0, 1 << 30},     \
        {"-b, --batch-size, -ub, --ubatch-size", OPTION_INT, &model_args.n_batch, "N", "tokens a step at most while prefilling", 1, 65536}, \
        {"-t, --threads", OPTION_INT, &model_args.n_threads, "N", "threads (0: one a core)", 0, 1024},                                     \
        {"--poll", OPTION_INT, &model_args.poll, "N", "how long idle threads spin, 0 to 100", 0, 100},                                     \
        {"-ctk, --cache-type-k", OPTION_TEXT, &model_args.type_k, "TYPE",                                                                \
         "format of cached keys: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 (f16 unless all runs on the reference)", 0, 0},            \
        {"-ctv, --cache-type-v", OPTION_TEXT, &model_args.type_v, "TYPE", "format of cached values, of the same list; any pair", 0, 0},   \
        {"-fa, --flash-attn", OPTION_TEXT, &model_args.flash, "on|off|auto",                                                             \
         "attention that never stores all scores: auto: where such a kernel runs; on: that, or an error; off: by the reference, slow", 0, 0}, \
        {"-ctxcp, --ctx-checkpoints", OPTION_INT, &model_args.n_snapshots, "N",                                                          \
         "recurrent states kept to go back to, beside where a sequence stands", 1, 64},                                                 \
        {"-sm, --split-mode", OPTION_TEXT, &model_args.split_mode, "MODE", "none, layer or tensor: split the model over several devices", 0, 0},   \
        {"-ngl, --n-gpu-layers", OPTION_INT, &model_args.n_gpu_layers, "N", "layers on devices, the last ones first (-1: all)", -1, 1 << 20},      \
        {"-dev, --device", OPTION_TEXT, &model_args.devices, "LIST", "devices: cuda0,cuda1; none; auto: all GPUs; cpu:2,cpu:2 are two groups of two threads", 0, 0},         \
        {"-ts, --tensor-split", OPTION_TEXT, &model_args.tensor_split, "A/B", "their shares (0: even ones)", 0, 0},    \
        {"--recipe", OPTION_INPUT, &model_args.recipe, "FILE", "gates from a file", 0, 0},                                                 \
        {"--set", OPTION_APPEND, &model_args.set, "GATE=VALUE", "set a gate (repeatable)", 0, 0},                                         \
        PLUGIN_OPTION,                                                                                                                   \
        {"--mask", OPTION_TEXT, &model_args.mask, "FEATURES", "use only these processor features (none, avx2, avx512, full)", 0, 0},       \
        {"--strict", OPTION_FLAG, &model_args.strict, NULL, "a gate that does not fit, or a fallback, is an error", 0, 0}
/* The settings that both arms of a comparison share; args: their struct model_args; who: "arms", "sides". */
#define BOTH_OPTIONS(args, who) \
    {"-sm, --split-mode", OPTION_TEXT, &(args).split_mode, "MODE", "none, layer or tensor: split the model of both " who " over several devices", 0, 0}, \
    {"-ts, --tensor-split", OPTION_TEXT, &(args).tensor_split, "A/B", "the devices' shares, of both " who "", 0, 0}, \
    {"-dev, --device", OPTION_TEXT, &(args).devices, "LIST", "devices of both " who ": cuda0,cuda1; none; cpu:2,cpu:2 are two groups of two threads", 0, 0}, \
    {"-t, --threads", OPTION_INT, &(args).n_threads, "N", "threads of both " who " (0: one a core)", 0, 1024}, \
    {"-ub, --ubatch-size", OPTION_INT, &(args).n_batch, "N", "tokens a step at most while prefilling (0: 512)", 0, 65536}, \
    {"--poll", OPTION_INT, &(args).poll, "N", "how long idle threads spin, 0 to 100 (-1: 50)", -1, 100}, \
    {"-ctk, --cache-type-k", OPTION_TEXT, &(args).type_k, "TYPE", "format of cached keys, of both " who "", 0, 0}, \
    {"-ctv, --cache-type-v", OPTION_TEXT, &(args).type_v, "TYPE", "format of cached values, of both " who "", 0, 0}, \
    {"--recipe", OPTION_INPUT, &model_args.recipe, "FILE", "gates of both " who " from a file", 0, 0}, \
    {"--set", OPTION_APPEND, &model_args.set, "GATE=VALUE", "a gate of both " who " (repeatable)", 0, 0}, \
    PLUGIN_OPTION, \
    {"--mask", OPTION_TEXT, &model_args.mask, "FEATURES", "use only these processor features in both " who "", 0, 0}, \
    {"--strict", OPTION_FLAG, &model_args.strict, NULL, "a gate that does not fit, or a fallback, is an error", 0, 0}
/* Opens what model_args names; the message is printed on failure. 0 or the exit code. */
int cmd_open_model(struct hone_model **m); /* plug-ins first: a wrong one is said before a model is read */
int cmd_load_plugins(void); /* for a command that opens no model */
int cmd_refuse_split(const char *command, const char *why); /* for a command that splits no model: 0, or -sm and -ts are refused */
int cmd_open_session(struct hone_session **s, const struct hone_model *m, const struct hone_session_params *base);

/* A run's config with how the model is split over devices, where it is; takes and returns it. */
json_t *cmd_split_config(json_t *config);
/* For a command that measures fresh processes: refuses to run under mpirun, whose ranks those cannot join. `instead`: what does
 * it. 0, or the exit code with the message printed. */
int cmd_alone(const char *command, const char *instead);

/* The journal, for each command that measures or judges: two lines, and journal_sample and journal_record between them.
 *     struct recording rec;
 *     if (!rc) rc = cmd_journal_begin(&rec, "bench", m, config);       before the first sample
 *     return cmd_journal_end(&rec, rc, NULL);                          in any case; rec zeroed or begun
 * With --no-journal rec.journal is NULL, which all journal_ functions that write take for "nothing to do". */
struct journal_args {
    const char *path, *hypothesis, *expect;
    bool off;
};
extern struct journal_args journal_args;
#define JOURNAL_OPTION {"--journal", OPTION_TEXT, &journal_args.path, "FILE", "the journal (default HONE_JOURNAL, or hone/journal.db in the user's data folder)", 0, 0}
#define JOURNAL_OPTIONS                                                                                                                    \
    JOURNAL_OPTION, {"--no-journal", OPTION_FLAG, &journal_args.off, NULL, "record nothing", 0, 0},                                       \
        {"--hypothesis", OPTION_TEXT, &journal_args.hypothesis, "TEXT", "why this should help, recorded before anything is measured", 0, 0}, \
        {"--expect", OPTION_TEXT, &journal_args.expect, "PERCENT", "the gain that is expected, recorded before anything is measured", 0, 0}
struct recording {
    struct journal *journal;
    int64_t run;
};
/* Opens the journal and records who is measured (m: NULL where no model is) and what is asked: config, an object, which is taken; runs
 * with another config are another history. 0, or the exit code, with the message printed. */
int cmd_journal_begin(struct recording *rec, const char *kind, const struct hone_model *m, json_t *config);
/* Records how the run ended by its exit code, with what is in outcome (taken; NULL: nothing), and closes. Returns rc, or the exit code
 * of what went wrong here. */
int cmd_journal_end(struct recording *rec, int rc, json_t *outcome);
/* Where the journal is, with its folders made or not; NULL: nothing says so. */
const char *cmd_journal_path(char *path, size_t size, bool make);
/* The folder for what may be computed again, made if need be; NULL where there is none. */
const char *cmd_cache_folder(char *path, size_t size);

/* For a command that measures, before it loads what it measures: waits, with a message, until no other program of hone measures on
 * this machine (lab/machine_lock.h), unless --no-lock. Ctrl-C must be heard (interrupt_session). 0 or the exit code; the machine is
 * given back when the process ends. */
extern bool no_lock;
#define LOCK_OPTION {"--no-lock", OPTION_FLAG, &no_lock, NULL, "measure also while another hone on this machine does", 0, 0}
int cmd_lock_machine(void);

/* Says on stderr what else used the machine since that look; nothing where it was quiet. `when` ends the sentence. */
struct machine_state;
void cmd_warn_busy(const struct machine_state *since, const char *when);

/* -v and the terminal. */
extern bool verbose;
/* A progress line on stderr when it is a terminal, else nothing; label is static text. The state is reset by progress_end. */
int progress_show(const char *label, float done);
void progress_end(void);

/* Ctrl-C and SIGTERM: the first cancels the running eval (see interrupt_session) and counts; a second one kills. A command that
 * has something to give back may hear more of them before. */
bool interrupted(void);
int interrupts(void); /* how many */
void interrupt_patience(int n); /* only what comes behind the nth kills */
void interrupt_clear(void);
void interrupt_session(struct hone_session *s); /* NULL: none */
enum { EXIT_INTERRUPTED = 130 };

/* files.c: what a command's outputs may not take the place of. All return 0 or the exit code, with its message printed. */
int files_check(const struct command *c); /* the options; main asks */
/* For files that are arguments: one that is read, to be named before; and one that is written, `option` for messages ("OUT"). */
void files_read(const char *path);
int files_check_output(const char *path, const char *option);
/* An output (base/whole.h) that was looked at. rc: of what was done meanwhile; not 0: the file is dropped, and rc returned. */
int files_open(struct whole *w, const char *path);
int files_close(struct whole *w, int rc);

/* The whole of a file or, path "-", of stdin: malloc'd, NUL-terminated. 0 or a code. */
int file_read(char **text, size_t *size, const char *path, struct hone_error *e);
/* Token ids from a list such as "1,2 3/4" or a JSON array: malloc'd. */
int tokens_parse(int32_t **ids, size_t *n, const char *text, struct hone_error *e);

#endif
