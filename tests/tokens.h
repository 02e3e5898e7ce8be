/* tokens.h: what the tests of the tokenizer share: encoding and decoding that must succeed. */
#ifndef TESTS_TOKENS_H
#define TESTS_TOKENS_H

#include "model/tokenizer.h"
#include "tests/test.h"

#include <string.h>
#include <time.h>

static inline struct tokenizer *open_file(const char *path)
{
    struct hone_error e = {0};
    struct gguf *g;
    struct tokenizer *t = NULL;
    if (gguf_open(&g, path, &e) || tokenizer_open(&t, g, &e))
        fail_msg("%s", e.message);
    gguf_close(g);
    return t;
}

static inline struct token_list encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct hone_error e = {0};
    struct token_list l = {0};
    if (tokenizer_encode(t, text, n, flags, &l, &e))
        fail_msg("%s", e.message);
    return l;
}

static inline struct text decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special)
{
    struct hone_error e = {0};
    struct text x = {0};
    if (tokenizer_decode(t, ids, n, special, &x, &e))
        fail_msg("%s", e.message);
    return x;
}

static inline void assert_decodes(const struct tokenizer *t, const struct token_list *l, bool special, const char *text,
                                  size_t n)
{
    struct text x = decode(t, l->ids, l->n, special);
    size_t same = 0;
    while (same < n && same < x.n && x.data[same] == text[same])
        same++;
    if (x.n != n || same != n) {
        int a = n - same < 40 ? (int)(n - same) : 40, b = x.n - same < 40 ? (int)(x.n - same) : 40;
        fail_msg("at byte %zu of %zu '%.*s' comes back as '%.*s'", same, n, a, text + same, b, x.data ? x.data + same : "");
    }
    text_free(&x);
}

static inline double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
