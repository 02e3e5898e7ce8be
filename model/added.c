/* added.c: added tokens are cut out of a text before anything else looks at it.
 *
 * The leftmost match wins, then the longest: what Hugging Face's tokenizers do. llama.cpp takes the longest token anywhere
 * first; the two differ only where tokens overlap in part, which markers do not. The tokens are sorted, so those that share a
 * prefix lie side by side and a byte more of the text narrows the range by two binary searches. Most places fail at the table
 * of first bytes. An Aho-Corasick automaton would bound hostile vocabularies too, at six times the code; here a limit on the
 * length of an added token does (LONGEST_ADDED; the longest known is 93 bytes). */
#include "model/added.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_ADDED = 512, USER_DEFINED = 1, ANY = 2 };

static int by_text(const void *a, const void *b, void *context)
{
    const struct vocab *v = context;
    struct gguf_string x = vocab_token(v, *(const int32_t *)a), y = vocab_token(v, *(const int32_t *)b);
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

static bool is_added(const struct vocab *v, int32_t id)
{
    return v->kind[id] == TOKEN_CONTROL || v->kind[id] == TOKEN_UNKNOWN || v->kind[id] == TOKEN_USER_DEFINED;
}

int added_build(struct added *d, struct arena *a, const struct vocab *v, struct hone_error *e)
{
    int32_t n = 0;
    for (int32_t i = 0; i < v->n; i++)
        n += is_added(v, i);
    *d = (struct added){.ids = arena_array(a, (size_t)n, sizeof *d->ids)};
    if (!d->ids)
        return err_set(e, HONE_ERESOURCE, "out of memory for %d added tokens", n);
    for (int32_t i = 0; i < v->n; i++) {
        struct gguf_string s = vocab_token(v, i);
        if (!is_added(v, i) || !s.size)
            continue;
        if (s.size > LONGEST_ADDED) {
            log_line(LOG_WARN, "token %d is an added token of %llu bytes; it is not looked for in text", i,
                     (unsigned long long)s.size);
            continue;
        }
        d->ids[d->n++] = i;
        d->begins[(unsigned char)s.data[0]] |= v->kind[i] == TOKEN_USER_DEFINED ? USER_DEFINED | ANY : ANY;
    }
    qsort_r(d->ids, (size_t)d->n, sizeof *d->ids, by_text, (void *)v);
    return 0;
}

/* The first of ids[lo, hi), which agree in their first `depth` bytes, whose next byte is at least (above: greater than) c. A
 * token that ends there sorts before all. */
static int32_t bound(const struct added *d, const struct vocab *v, int32_t lo, int32_t hi, size_t depth, int c, bool above)
{
    while (lo < hi) {
        int32_t middle = lo + (hi - lo) / 2;
        struct gguf_string s = vocab_token(v, d->ids[middle]);
        int byte = depth < s.size ? (unsigned char)s.data[depth] : -1;
        if (byte < c || (above && byte == c))
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* The longest added token that text begins with, or -1. */
static int32_t longest_at(const struct added *d, const struct vocab *v, const char *text, size_t n, bool special)
{
    int32_t lo = 0, hi = d->n, best = -1;
    for (size_t depth = 0; depth < n; depth++) {
        int c = (unsigned char)text[depth];
        lo = bound(d, v, lo, hi, depth, c, false);
        hi = bound(d, v, lo, hi, depth, c, true);
        if (lo == hi)
            break;
        int32_t id = d->ids[lo];
        if (vocab_token(v, id).size == depth + 1 && (special || v->kind[id] == TOKEN_USER_DEFINED))
            best = id;
    }
    return best;
}

int added_find(const struct added *d, const struct vocab *v, const char *text, size_t at, size_t n, bool special, size_t *begin,
               int32_t *id)
{
    uint8_t wanted = special ? ANY : USER_DEFINED;
    for (; at < n; at++) {
        if (!(d->begins[(unsigned char)text[at]] & wanted))
            continue;
        *id = longest_at(d, v, text + at, n - at, special);
        if (*id >= 0) {
            *begin = at;
            return 1;
        }
    }
    return 0;
}
