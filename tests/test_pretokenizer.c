/* test_pretokenizer.c: words are cut as an independent engine cuts them (golden/pretokenizer.json, made by
 * golden/pretokenizer.py), for one name of each kind of pattern; names that share a pattern agree; invalid UTF-8 is cut as if
 * each bad byte were U+FFFD; and no pattern takes more than linear time on any long run. */
#include "model/pretokenizer.h"

#include "base/rng.h"
#include "model/utf8.h"
#include "tests/tokens.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words {
    size_t size[4096];
    size_t n, end;
};

static int collect(void *context, size_t begin, size_t end)
{
    struct words *w = context;
    assert_int_equal(begin, w->end);
    assert_true(end > begin);
    if (w->n < 4096)
        w->size[w->n] = end - begin;
    w->n++;
    w->end = end;
    return 0;
}

static struct pretokenizer *open_named(const char *name)
{
    struct hone_error e = {0};
    struct pretokenizer *p = NULL;
    if (pretokenizer_open(&p, name, strlen(name), &e))
        fail_msg("%s: %s", name, e.message);
    return p;
}

static void cut(const struct pretokenizer *p, const char *text, size_t n, struct words *w)
{
    struct hone_error e = {0};
    w->n = w->end = 0;
    if (pretokenizer_split(p, text, n, collect, w, &e))
        fail_msg("%s", e.message);
    assert_int_equal(w->end, n);
}

static size_t unhex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (char)strtoul(two, NULL, 16);
    }
    return n;
}

static void test_golden(void **state)
{
    (void)state;
    json_error_t why;
    json_t *all = json_load_file("tests/golden/pretokenizer.json", 0, &why), *texts = json_object_get(all, "texts"), *rows;
    if (!all)
        fail_msg("tests/golden/pretokenizer.json: %s", why.text);
    const char *name;
    int compared = 0;
    static struct words w;
    json_object_foreach(all, name, rows)
    {
        if (rows == texts)
            continue;
        struct pretokenizer *p = open_named(name);
        assert_int_equal(json_array_size(rows), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            char text[1024];
            json_t *sizes = json_array_get(rows, i);
            size_t n = unhex(json_string_value(json_array_get(texts, i)), text);
            cut(p, text, n, &w);
            bool same = w.n == json_array_size(sizes);
            for (size_t k = 0; same && k < w.n; k++)
                same = (json_int_t)w.size[k] == json_integer_value(json_array_get(sizes, k));
            if (!same)
                fail_msg("%s cuts text %zu '%.*s' otherwise", name, i, (int)n, text);
            compared++;
        }
        pretokenizer_close(p);
    }
    assert_true(compared >= 18 * 80);
    json_decref(all);
}

static void test_names(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct pretokenizer *p;
    int n = 0;
    for (; pretokenizer_name(n); n++)
        pretokenizer_close(open_named(pretokenizer_name(n)));
    assert_true(n > 50);
    assert_int_equal(pretokenizer_open(&p, "gpt-9\n", 6, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "\"gpt-9?\""));
    assert_non_null(strstr(e.message, "llama-bpe"));
    assert_null(strchr(e.message, '\n'));
    static const char *const same[][2] = {
        {"llama-bpe", "glm4"}, {"qwen2", "deepseek-r1-qwen"}, {"gpt-4o", "llama4"}, {"smollm", "refact"}};
    static struct words a, b;
    const char *text = "It's 12345 \xc3\xa9t\xc3\xa9  \n\n x/y\n/ A1b2";
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct pretokenizer *x = open_named(same[i][0]), *y = open_named(same[i][1]);
        cut(x, text, strlen(text), &a);
        cut(y, text, strlen(text), &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.size, b.size, a.n * sizeof *a.size);
        pretokenizer_close(x);
        pretokenizer_close(y);
    }
}

/* A text of random bytes is cut where its repaired copy is, at the corresponding places. */
static void test_invalid_utf8(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen35", "gpt-4o", "deepseek-llm", "deepseek-v3", "default"};
    static const char *const parts[] = {"a",    " ",    "\n",   "1",        "\xc3\xa9",     "\xe4\xbd\xa0",
                                        "\x80", "\xff", "\xc3", "\xe4\xbd", "\xed\xa0\x80", "\xf0\x9f\x98",
                                        "'s",   "!"};
    static struct words raw, repaired;
    struct rng r = rng_seed(7);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pretokenizer *p = open_named(names[i]);
        for (int round = 0; round < 200; round++) {
            char text[128], good[512];
            size_t n = 0, m = 0, to_good[129];
            for (uint64_t k = rng_below(&r, 20); k > 0; k--) {
                const char *part = parts[rng_below(&r, sizeof parts / sizeof *parts)];
                memcpy(text + n, part, strlen(part));
                n += strlen(part);
            }
            for (size_t k = 0; k < n;) {
                size_t step = utf8_sequence(text + k, n - k);
                to_good[k] = m;
                memcpy(good + m, step ? text + k : "\xef\xbf\xbd", step ? step : 3);
                m += step ? step : 3;
                k += step ? step : 1;
            }
            to_good[n] = m;
            cut(p, text, n, &raw);
            cut(p, good, m, &repaired);
            assert_int_equal(raw.n, repaired.n);
            for (size_t k = 0, at = 0; k < raw.n; k++) {
                assert_int_equal(to_good[at + raw.size[k]] - to_good[at], repaired.size[k]);
                at += raw.size[k];
            }
        }
        pretokenizer_close(p);
    }
}

static int count(void *context, size_t begin, size_t end)
{
    (void)begin;
    *(size_t *)context = end;
    return 0;
}

/* 64 KB of one thing, with and without an end that makes a greedy match give it back: 1 ms. PCRE2's JIT saves some quadratic
 * patterns; its interpreter, where the JIT is forbidden, does not: \s+$, as deepseek-llm's file has it, took 30 s there. */
static void test_linear(void **state)
{
    (void)state;
    static const char *const units[] = {
        " ", "\n",       "\t",       "\r\n",         " \n",          "1",    "a",        "A",  "aA", "!",
        "'", "\xc3\xa9", "\xcc\x81", "\xe4\xbd\xa0", "\xe3\x80\x80", "\xff", "\xc2\xa0", "a ", ". "};
    static const char *const ends[] = {"", "x", "\n", "1", "!"};
    enum { SIZE = 64 * 1024 };
    char *text = malloc(SIZE + 8);
    assert_non_null(text);
    for (int i = 0; pretokenizer_name(i); i++) {
        struct pretokenizer *p = open_named(pretokenizer_name(i));
        for (size_t u = 0; u < sizeof units / sizeof *units; u++)
            for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
                size_t n = 0, unit = strlen(units[u]), end = 0;
                for (; n < SIZE; n += unit)
                    memcpy(text + n, units[u], unit);
                memcpy(text + n, ends[k], strlen(ends[k]));
                n += strlen(ends[k]);
                struct hone_error e = {0};
                double before = cpu_seconds();
                if (pretokenizer_split(p, text, n, count, &end, &e))
                    fail_msg("%s: %s", pretokenizer_name(i), e.message);
                double spent = cpu_seconds() - before;
                assert_int_equal(end, n);
                if (spent > 0.5)
                    fail_msg("%s takes %.1f s for 64 KB of unit %zu with end %zu", pretokenizer_name(i), spent, u, k);
            }
        pretokenizer_close(p);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
