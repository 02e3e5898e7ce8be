/* split_words.h: the words of a split, -sm, -ts and -dev: how their lists are read, in one place for all that ask for them, and
 * that nothing which they ask for is lost. Where a session is split (ranks.h) or its layers are divided (places.h) their words
 * are used there; where neither is, what they say of a split would be ignored in silence. */
#ifndef ENGINE_SPLIT_WORDS_H
#define ENGINE_SPLIT_WORDS_H

#include "hone.h"

enum { SPLIT_MOST = 256 }; /* words in a list */

/* The words of a list, with one comma or slash between: their number; -1: *e says what is wrong with what the flag is given. */
int split_list(const char *flag, const char *list, const char **words, size_t *sizes, struct hone_error *e);
/* What -ts says: shares[SPLIT_MOST] and their number; 0 for no text, and for a single zero, which is llama.cpp's word for even
 * ones. A share is a number of zero or more. HONE_EUSAGE names the word. */
int split_shares(const char *text, double *shares, int *n, struct hone_error *e);
/* Whether a word of -dev is the host: "cpu", or a group of threads, "cpu:2" (*threads; else 0). */
bool split_cpu(const char *word, size_t size, int *threads);

/* HONE_EUSAGE names the word. split: the session is; n_devices: that took layers of it; host_only: the user keeps all layers on
 * the host, so that what is said of devices waits for another day, and has but to be right. */
int split_words_check(const struct hone_session_params *p, bool split, int n_devices, bool host_only, struct hone_error *e);

#endif
