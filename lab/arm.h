/* arm.h: one side of a comparison: what is said of it on the command line, what that makes of the common settings, and who it
 * turns out to be when it runs. */
#ifndef LAB_ARM_H
#define LAB_ARM_H

#include "base/arena.h"
#include "hone.h"
#include "lab/child.h"

#include <jansson.h>

/* What both arms are told, and an arm may say otherwise. NULL and 0: not said. */
struct arm_settings {
    const char *model, *recipe;
    const char *gates;   /* a line each */
    const char *plugins; /* paths, a line each */
    const char *type_k, *type_v, *mask;
    const char *split_mode, *tensor_split, *devices;
    const char *n_gpu_layers;
    int n_batch, n_threads, poll; /* tokens a step; poll -1: not said */
    bool strict;
};

/* One test: what a sample measures. A sample is the median of `repeats` runs of it. */
struct arm_test {
    int n_prompt, n_gen, n_depth, repeats;
};

struct arm {
    struct arena memory;
    const char *spec; /* as the user wrote it */
    struct arm_settings set;
    const char *binary; /* path; NULL: the running program */
    const char *commit; /* what `git=` named, to be built; NULL: none */
    const char **env;   /* "NAME=VALUE", NULL-terminated; NULL: none */
    unsigned declared;  /* of enum arm_word: in what it says that it differs */
    unsigned said;      /* those of its own words, beside what its recipe declares */
    double limit_s;     /* a sample that is not done by then is an error: the program hangs; 0: none */
    int file;           /* the open binary, for arm_run; -1: not open */
    bool knows_beside;  /* its bench puts one device beside several unless it is told not to */
    json_t *identity;   /* of its first sample: flat, names to texts; NULL: none yet */
};

/* X(bit, what it may change: a prefix of names in an identity) */
#define ARM_WORDS(X)                                                                                                           \
    X(ARM_GATES, "recipe.")                                                                                                    \
    X(ARM_MODEL, "model")                                                                                                      \
    X(ARM_BINARY, "build.")                                                                                                    \
    X(ARM_COMMIT, "build.commit")                                                                                              \
    X(ARM_ENVIRONMENT, "environment.")                                                                                         \
    X(ARM_THREADS, "n_threads")                                                                                                \
    X(ARM_BATCH, "n_ubatch")                                                                                                   \
    X(ARM_POLL, "poll")                                                                                                        \
    X(ARM_TYPE_K, "type_k")                                                                                                    \
    X(ARM_TYPE_V, "type_v")                                                                                                    \
    X(ARM_LAYERS, "n_gpu_layers")                                                                                              \
    X(ARM_MASK, "machine.features")                                                                                            \
    X(ARM_SPLIT, "split_mode")                                                                                                 \
    X(ARM_SHARES, "tensor_split")                                                                                              \
    X(ARM_DEVICES, "devices")
#define X(bit, prefix) bit##_INDEX,
enum { ARM_WORDS(X) ARM_N_WORDS };
#undef X
#define X(bit, prefix) bit = 1u << bit##_INDEX,
enum arm_word { ARM_WORDS(X) };
#undef X

/* Words, parted by white space; a part in double quotes keeps its spaces:
 *   base                        the common settings as they are (so is an empty spec)
 *   recipe=FILE model=FILE bin=FILE git=COMMIT env.NAME=VALUE
 *   -t=N -ub=N --poll=N -ctk=TYPE -ctv=TYPE --mask=FEATURES -ngl=N -sm=MODE -ts=A/B -dev=LIST
 *   GATE=VALUE                  any other name=value
 *   FILE or COMMIT              by what it is: a program, a GGUF file, else a recipe; what is no file is a commit
 * HONE_EUSAGE or HONE_EINPUT with the word. arm_free in any case. */
int arm_parse(struct arm *a, const char *spec, const struct arm_settings *common, struct hone_error *e);
void arm_free(struct arm *a);
/* What keeps the arm from being measured within this process, as an error that names it; 0 where nothing does. */
int arm_fits_process(const struct arm *a, struct hone_error *e);
/* The parameters of its session, for such a measurement. */
struct hone_session_params arm_params(const struct arm *a, int n_ctx);

/* Of an arm with a commit: builds it (lab/worktree.h), or finds the build; binary then is its path and commit the full hash. Others stay as
 * they are. */
int arm_build(struct arm *a, const char *cache, int (*cancelled)(void *), void *user, struct hone_error *e);
/* Opens the arm's binary (of a commit: one that was built, path `binary`): from now on every sample runs this file, whatever
 * its name comes to stand for. */
int arm_open(struct arm *a, struct hone_error *e);
/* One sample in a fresh process: `hone bench` of one test. *row: its row, a new reference. cancelled: asked ten times a second.
 * HONE_EINPUT where the program fails, or is not done within limit_s. */
int arm_run(struct arm *a, const struct arm_test *t, int (*cancelled)(void *), void *user, json_t **row, struct hone_error *e);

/* `<binary> <command>` in a fresh process, with the arm's settings if `settings`, and with the words of more (NULL-terminated) behind them. Any exit
 * code: it stands in *o, which is the caller's to free after 0. */
int arm_command(const struct arm *a, const char *command, bool settings, const char *const *more, struct child_output *o,
                int (*cancelled)(void *), void *user, struct hone_error *e);

/* Who an arm is: names and texts, from a row of `hone bench` and this process' environment (with the arm's own). */
json_t *arm_identity(const struct arm *a, const json_t *row);
/* What its words say beside gates and a recipe, as in ARM_WORDS: ["n_threads", "machine.features"]. NULL: no memory. */
json_t *arm_said(const struct arm *a);
/* Adds the SHA-256 of each library that the arm's program is linked with to its identity ("libraries.<name>"), as the system's loader names
 * them. Adds nothing where the loader does not tell. */
int arm_identify_libraries(struct arm *a, struct hone_error *e);
/* What two identities differ in: [{what, a, b, status}], status "declared", "follows" (from what is declared: kernels and the
 * like) or "undeclared". *undeclared: how many of those. NULL: no memory. */
json_t *arm_differences(const struct arm *a, const struct arm *b, int *undeclared);
/* The names of libraries, variables and so on that were compared and are the same. */
int arm_count_equal(const struct arm *a, const struct arm *b, const char *prefix);

#endif
