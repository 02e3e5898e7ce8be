/* verify.h: do two ways of running a model say the same? LAB.md's "what counts as right", in one verdict with its reasons.
 *
 * A side is an arm (lab/arm.h): gates, a recipe, a model, a program. Everything of a side comes from processes of its own
 * (`hone eval --jobs`, lab/eval_job.h), so recipes, builds and models are compared by one way, and what is left in one process
 * cannot hide in the other. A is the reference, B the candidate:
 *   1. who they are: tokenizers, weights read a token by type, KV types, kernels;
 *   2. greedy token arrays of N prompts, each side twice in fresh processes;
 *   3. both fed the same tokens (each prompt and A's continuation, half as a prefill, the rest one by one): every logit
 * compared;
 *   4. where the first logits differ, both runs of that step node by node.
 *
 * Classes, from best to worst:
 *   bit-identical     all logits and tokens are the same bits
 *   within tolerance  the values of every node that both have lie within the tolerance of its op, and all tokens are the same
 *   token-identical   all tokens are the same, in texts that prove something
 *   quality-equal     KL divergence and perplexity within the stated bounds; other tokens only at near-ties (lab/compare.h)
 *   different         anything else, with the reasons */
#ifndef LAB_VERIFY_H
#define LAB_VERIFY_H

#include "lab/arm.h"
#include "lab/compare.h"
#include "lab/degenerate.h"
#include "lab/texts.h"

enum verify_class {
    VERIFY_BIT_IDENTICAL,
    VERIFY_WITHIN_TOLERANCE,
    VERIFY_TOKEN_IDENTICAL,
    VERIFY_QUALITY_EQUAL,
    VERIFY_DIFFERENT,
    VERIFY_N_CLASSES
};
const char *verify_class_name(enum verify_class c);
/* By name ("token-identical"): 0, or -1. */
int verify_class_find(const char *name, enum verify_class *c);

/* What equal quality means unless somebody asks for a wider word: nats; ln of the ratio of perplexities. */
#define VERIFY_KL_BOUND 0.01
#define VERIFY_LOSS_BOUND 0.02

struct verify_options {
    int n_texts;                  /* of lab/texts.h, at most N_TEXTS */
    size_t prompt_tokens;         /* of each at most; at least 2 */
    size_t n_greedy;              /* tokens that each is continued by; at least 2 */
    double kl_bound;              /* largest mean KL divergence, nats */
    double loss_bound;            /* largest change of the mean loss (ln of the ratio of perplexities) */
    bool shadow;                  /* also hold every kernel of both sides to its reference, in the running graph */
    const char *scratch;          /* folder for files of gigabytes at most, for a while; NULL: TMPDIR or /tmp */
    int (*cancelled)(void *user); /* asked ten times a second; NULL: never */
    void (*tell)(void *user, const char *what, float done); /* what goes on; may be NULL */
    void *user;
};

/* One side, as it turned out. */
struct verify_side {
    struct arm *arm; /* the caller's, open */
    struct hone_model *model;
    bool owns_model, has_jobs; /* its program knows eval --jobs */
    char build[200];           /* "" where an old program does not say */
    char type_k[16], type_v[16];
    double weights[N_FORMATS], weights_all; /* bytes of weights read for a token of decode */
    json_t *kernels;                        /* of the decode plan; owned */
    int shadow_faults;                      /* -1: not asked */
    char shadow_first[300];                 /* the first of them */
    bool steady;                            /* both runs gave the same tokens and logits */
    char tokens_sha[65], text_sha[65];      /* of all greedy arrays, of all texts */
};

struct verify_text {
    size_t n_prompt, n; /* ids: prompt and A's continuation */
    int32_t *ids;
    int32_t *greedy[2]; /* what each side said, n_greedy */
    struct degenerate degenerate[2];
    size_t first_difference; /* n_greedy: none */
    bool near_tie;           /* the first difference is one */
};

/* A tensor that two runs of one step left differently. */
struct verify_node {
    char tensor[64], op[2][32], kernel[2][128];
    int64_t row, column; /* of the value that errs most */
    double got, want;    /* there: B's, A's */
    double nmse, tolerance;
    bool same_inputs; /* what it read was the same on both sides, so the kernels alone make the difference */
};

struct verify_nodes {
    bool looked;
    char why_not[200]; /* not looked, or to no end */
    int text;
    size_t step, position;     /* of the text; step 0 is the prefill */
    int n_common, n_different; /* tensors that both have; whose bits differ (of those looked at) */
    struct verify_node first;  /* by A's order; tensor "": none differs */
    struct verify_node beyond; /* the first beyond its tolerance; tensor "": none */
};

enum { VERIFY_REASONS = 16 };

struct verify {
    struct verify_options o;
    struct verify_side side[2];
    bool synthetic, same_file; /* random weights; both sides read the same model file */
    json_t *tokenizer;         /* what differs, sentences; owned */
    json_t *tokenizer_minor;   /* what differs and matters to other programs alone; owned */
    json_t *weights;           /* what differs, sentences; owned */
    struct verify_text *texts; /* o.n_texts */
    bool compared;             /* false: the vocabularies do not allow it */
    struct comparison logits;
    double loss[2];                 /* mean of both sides on the fed tokens */
    double loss_error;              /* standard error of their difference */
    size_t first_bits, first_token; /* compared positions: whose logits' bits differ first, whose top token; logits.n: none */
    struct verify_nodes nodes;
    int arrays_equal, n_degenerate; /* of o.n_texts */
    enum verify_class verdict;
    char reasons[VERIFY_REASONS][300]; /* of VERIFY_DIFFERENT */
    int n_reasons;
    char notes[VERIFY_REASONS][300]; /* what else should be known: what proves nothing, what was not looked at */
    int n_notes;
};

/* Compares. The arms are parsed and stay the caller's; they are opened here. 0 whatever the verdict; HONE_ECANCELED; what keeps
 * a side from being run is an error that names it. verify_free in any case. */
int verify_run(struct verify *v, struct arm *a, struct arm *b, const struct verify_options *o, struct hone_error *e);
void verify_free(struct verify *v);
json_t *verify_json(const struct verify *v);
/* Text and position (in it) of a compared position. */
void verify_place(const struct verify *v, size_t compared, int *text, size_t *position);
/* The first compared position of a text; how many of its tokens are fed together, before single steps. */
size_t verify_first(const struct verify *v, const struct verify_text *t);
size_t verify_prefill(const struct verify *v, const struct verify_text *t);

/* ---- the parts, for each other and for tests */

/* verify_side.c: the processes. */
int side_open(struct verify *v, int i, struct arm *arm, struct hone_error *e);
void side_close(struct verify_side *s);
/* Runs jobs (objects) in one process, or, with a program that does not know --jobs, in one each; *answers: an array as long.
 * about: may be NULL. */
int side_jobs(struct verify *v, int i, const json_t *jobs, json_t **answers, json_t **about, struct hone_error *e);
int side_shadow(struct verify *v, int i, struct hone_error *e);
/* verify_facts.c: tokenizers and weights of the two sides. */
int verify_facts(struct verify *v, struct hone_error *e);
/* verify_nodes.c: the step of the first different logits, node by node. folder: for files. */
int verify_look(struct verify *v, const char *folder, struct hone_error *e);
struct gguf;
struct node_lists {
    const json_t *a, *b;                  /* node_dump.h */
    const struct gguf *file_a, *file_b;   /* their values; NULL: none */
    const struct gguf *model_a, *model_b; /* whose weights they read; equal pointers: the same ones */
};
/* Fills n from two lists of nodes. For tests. */
void verify_nodes_compare(struct verify_nodes *n, const struct node_lists *l);
/* The first tensor, by A's order, that both have and whose bits differ: its place in A's list and in B's; -1: none. */
int verify_nodes_first(const json_t *a, const json_t *b, int *in_b);
/* verify_judge.c: class, reasons and notes from all that was found. */
void verify_judge(struct verify *v);
/* The class again, from the figures of a recorded verify_json: arrays compared anew, divergence and loss held to their bounds. */
enum verify_class verify_rederive(const json_t *recorded);

#endif
