/* kl_base.h: what one model said of a text, position by position, in a file of megabytes, for the KL divergence of another
 * model or another way of running it, later and elsewhere.
 *
 * Of each scored position it keeps the largest logits with their ids, the log-sum of all logits, a few of the other tokens,
 * drawn by their probability, and the loss of the token that came. With all other tokens as one, the divergence is never above
 * the true one (to merge outcomes can only lose information): `lower`. With the drawn ones it is right in the mean over
 * positions: `estimate`. A megabyte of logits a position, which a whole row takes in a large vocabulary, becomes a kilobyte. */
#ifndef LAB_KL_BASE_H
#define LAB_KL_BASE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

enum { KL_DRAWN = 16 };

struct kl_base {
    int32_t n_ctx, first; /* windows of n_ctx tokens; positions first to n_ctx - 2 of each are scored */
    int32_t n_vocab, top; /* logits kept a position; at most n_vocab */
    uint64_t vocabulary;  /* vocabulary_hash */
    char *model, *build;  /* what it was made with, for messages */
    int64_t n_chunks;
    int64_t n_rows;      /* n_chunks * (n_ctx - 1 - first) */
    int32_t *tokens;     /* [n_chunks][n_ctx]: as in the text, before a bos takes the first one's place */
    int32_t *ids;        /* [n_rows][top] */
    float *logits;       /* [n_rows][top], descending */
    int32_t *drawn;      /* [n_rows][KL_DRAWN]: of the other tokens */
    float *drawn_logits; /* [n_rows][KL_DRAWN] */
    float *log_sum;      /* [n_rows][2]: a double as the sum of two floats */
    float *nll;          /* [n_rows]: of the token that came */
    struct gguf *file;   /* private: where the arrays lie when it was opened */
    int64_t cap_chunks;  /* private: what the arrays have room for when it was created */
};

/* An empty one to be filled. top is cut to n_vocab. */
int kl_base_create(struct kl_base **out, int32_t n_ctx, int32_t first, int32_t n_vocab, int32_t top, uint64_t vocabulary,
                   const char *model, struct hone_error *e);
/* Room for one more window of tokens; its rows are then filled by kl_base_set, from any thread. */
int kl_base_add(struct kl_base *b, const int32_t *tokens, struct hone_error *e);
void kl_base_set(struct kl_base *b, int64_t row, const float *logits, double log_sum, double nll);
/* Takes back the last window. */
void kl_base_drop(struct kl_base *b);
/* At least one window. The file appears whole or not at all. */
int kl_base_write(const struct kl_base *b, const char *path, struct hone_error *e);

/* The file may be wrong in every byte: an error names what. */
int kl_base_open(struct kl_base **out, const char *path, struct hone_error *e);
int kl_base_open_memory(struct kl_base **out, const void *data, size_t size, const char *label, struct hone_error *e);
void kl_base_close(struct kl_base *b); /* NULL is allowed */

struct kl_row {
    double lower, upper; /* the divergence from the base's distribution to the candidate's lies between them, in nats */
    double estimate;     /* its mean over many rows is the mean divergence */
    double outside;      /* the base's mass outside of what it kept */
    int32_t top;         /* the base's likeliest token */
};
/* smallest: of the candidate's logits; log_sum: of all of them. */
struct kl_row kl_base_compare(const struct kl_base *b, int64_t row, const float *logits, double log_sum, float smallest);

#endif
