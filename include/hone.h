/* hone.h: the public library. A path to text in 30 lines: examples/embed.c.
 *
 * A model is immutable and may be shared by any number of sessions and threads; a session belongs to one thread. Functions
 * that can fail return 0 or a negative code (hone_error.h) and fill *e, which may be NULL. Nothing is printed. */
#ifndef HONE_H
#define HONE_H

#include "hone_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define HONE_VERSION "0.1.0"

/* "0.1.0 (commit, compiler, flags)": what this library was built from. */
const char *hone_build(void);

struct hone_model;
struct hone_session;

/* Called now and then with the share that is done, 0 to 1; a non-zero return cancels (HONE_ECANCELED). */
typedef int hone_progress_fn(void *user, float done);

/* Opens a GGUF file (any part of a split one). The weights stay mapped; nothing is unpacked here. */
int hone_model_open(struct hone_model **out, const char *path, struct hone_error *e);
void hone_model_close(struct hone_model *m); /* NULL is allowed; sessions first */
int32_t hone_model_n_vocab(const struct hone_model *m);
int32_t hone_model_n_ctx_train(const struct hone_model *m);
const char *hone_model_arch(const struct hone_model *m);

/* Text to ids: malloc'd into *ids, to be freed with hone_free. add_special: the file's own bos. parse_special: control tokens
 * in the text are recognised. */
int hone_tokenize(const struct hone_model *m, const char *text, size_t size, bool add_special, bool parse_special, int32_t **ids,
                  size_t *n, struct hone_error *e);
/* Ids to text: malloc'd, NUL-terminated, *size bytes without the NUL. */
int hone_detokenize(const struct hone_model *m, const int32_t *ids, size_t n, bool special, char **text, size_t *size,
                    struct hone_error *e);
/* The token ends a generation. */
bool hone_is_end(const struct hone_model *m, int32_t token);
void hone_free(void *p);

/* Loads a shared object of kernels (hone_kernel.h, docs/plugin.md) for all sessions of this process, before those that name them. It is
 * tried in a child process first; one that crashes, hangs or breaks its contract is HONE_EINPUT. Loading one again is no
 * error. There is no unloading. Best called before other threads are started. */
int hone_plugin_load(const char *path, struct hone_error *e);

struct hone_session_params {
    uint32_t size;        /* sizeof this struct: set by hone_session_defaults */
    int32_t n_ctx;        /* positions of each sequence; 0: the model's, at most 4096 */
    int32_t n_seq;        /* sequences; 1 to 64 */
    int32_t n_batch;      /* tokens a step at most; longer batches are cut */
    int32_t n_threads;    /* 0: all physical cores */
    int32_t poll;         /* 0 to 100: how long idle threads spin */
    const char *type_k, *type_v; /* "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1" or "q4_0", in any pair: docs/kv.md. NULL is f16, or
                                  * f32 when everything runs on the reference */
    const char *recipe;   /* path of a recipe file; NULL: none */
    const char *gates;    /* gates, parted by white space or ';' ("kernel=ref"); NULL: none. Order: recipe, HONE_SET, gates */
    bool strict;          /* a gate that names a kernel which does not fit, or a fallback, is an error */
    hone_progress_fn *progress; /* of a long eval; may be NULL */
    void *progress_user;
    int32_t n_snapshots;  /* recurrent states that each sequence keeps to go back to, beside where it stands; 1 to 64 */
    const char *split_mode;   /* "tensor", "layer": the model is split over several devices; NULL or "none": it is not */
    const char *tensor_split; /* their shares, "1/1" or "2,1"; NULL: even ones, of groups of threads by their threads */
    const char *devices;      /* "cuda0,cuda1"; "cpu:2,cpu:2": groups of threads; "none"; NULL or "auto": all GPUs, or as many groups as shares;
                               * for "tensor" a device may be named twice: two ranks on it */
    int32_t n_gpu_layers;     /* layers on GPUs, counted from the last one, the output being one; -1: all of them */
};
struct hone_session_params hone_session_defaults(void);

/* p NULL: the defaults. */
int hone_session_create(struct hone_session **out, const struct hone_model *m, const struct hone_session_params *p,
                        struct hone_error *e);
void hone_session_free(struct hone_session *s); /* NULL is allowed */
int32_t hone_session_n_ctx(const struct hone_session *s);

struct hone_token {
    int32_t id;
    int32_t seq;     /* 0 to n_seq - 1 */
    bool want_logits;
};
/* Feeds n tokens, each behind the last of its own sequence. On failure the session is as before. */
int hone_session_eval(struct hone_session *s, const struct hone_token *tokens, size_t n, struct hone_error *e);
/* The logits [n_vocab] of the i-th token of the last eval that wanted them; NULL when there is none. Valid until the next eval. */
const float *hone_session_logits(const struct hone_session *s, size_t i);
/* The id of the largest logit (the lowest id among equals) of the last token that wanted logits; -1 when there is none. */
int32_t hone_greedy(const struct hone_session *s);
/* Tokens that a sequence holds. */
int32_t hone_session_length(const struct hone_session *s, int32_t seq);
/* Forgets what a sequence holds from position `length` on. Where layers have a recurrent state only some positions are left to go back to: 0,
 * where an eval ended before (the last one and the first are always kept, n_snapshots in all), and where it is. The error names them. */
int hone_session_rewind(struct hone_session *s, int32_t seq, int32_t length, struct hone_error *e);
/* Makes sequence `to` hold what `from` holds; the cells are shared until one of them is written over. */
int hone_session_fork(struct hone_session *s, int32_t from, int32_t to, struct hone_error *e);
/* Writes what all sequences hold (cells, recurrent states; not the logits) to a file, which is there whole or not at all. */
int hone_session_save(struct hone_session *s, const char *path, struct hone_error *e);
/* Makes the session hold what the file does, in place of what it held. The file must be of the same model, with the same formats of K and V, and
 * fit n_ctx and n_seq; it is checked, every byte, before anything is replaced: on failure the session is as before. */
int hone_session_restore(struct hone_session *s, const char *path, struct hone_error *e);
/* The same with a note in the file, text of the caller's own (what was said, say; at most 64 MiB). A restored one is malloc'd into *note, to
 * be freed with hone_free: "" where the file has none. */
int hone_session_save_noted(struct hone_session *s, const char *path, const char *note, struct hone_error *e);
int hone_session_restore_noted(struct hone_session *s, const char *path, char **note, struct hone_error *e);
/* Makes the eval that runs, or else the next one, end soon with HONE_ECANCELED. May be called from another thread or a signal
 * handler. */
void hone_session_cancel(struct hone_session *s);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
