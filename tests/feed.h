/* feed.h: the tokens that tests of sessions use on the small models of HONE_DATA, and how they are fed. */
#ifndef TESTS_FEED_H
#define TESTS_FEED_H

#include "tests/test.h"

#include "engine/engine.h"

enum { N = 24 };
static const int32_t ids[N] = {11,  48, 85, 122, 159, 36, 73, 110, 147, 24,  61, 98,
                               135, 12, 49, 86,  123, 0,  37, 74,  111, 148, 25, 62};

/* n tokens at most N. */
static inline int feed(struct hone_session *s, int32_t seq, const int32_t *tokens, int n, struct hone_error *e)
{
    struct hone_token t[N];
    for (int i = 0; i < n; i++)
        t[i] = (struct hone_token){tokens[i], seq, true};
    return hone_session_eval(s, t, (size_t)n, e);
}

static inline void feed_ok(struct hone_session *s, int32_t seq, const int32_t *tokens, int n)
{
    struct hone_error e = {0};
    if (feed(s, seq, tokens, n, &e))
        fail_msg("%s", e.message);
}

#endif
