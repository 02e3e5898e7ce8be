/* test_vocabs.c: the tokenizer on real vocabularies: those of HONE_DATA, each line of their .inp and .out files, and, with
 * HONE_MODELS (the folder that examples/fetch.sh fills), those of the two real models; all of them against ids of llama.cpp
 * (golden/tokenizer.json, made by golden/tokenizer.py); every pair of bytes; and the speed. */
#include "model/tokenizer.h"

#include "base/rng.h"
#include "tests/tokens.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t unhex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (char)strtoul(two, NULL, 16);
    }
    return n;
}

static void assert_ids(const char *where, size_t i, const struct token_list *l, const json_t *ids)
{
    bool same = l->n == json_array_size(ids);
    for (size_t k = 0; k < l->n && k < json_array_size(ids); k++)
        if (l->ids[k] != json_integer_value(json_array_get(ids, k)))
            fail_msg("%s, text %zu: token %zu is %d, not %lld", where, i, k, l->ids[k],
                     (long long)json_integer_value(json_array_get(ids, k)));
    if (!same)
        fail_msg("%s, text %zu: %zu tokens, not %zu", where, i, l->n, json_array_size(ids));
}

static void compare_golden(const json_t *all, const char *name, const char *path)
{
    const json_t *texts = json_object_get(all, "texts"), *v = json_object_get(all, name), *lossy = json_object_get(v, "lossy");
    struct tokenizer *t = open_file(path);
    assert_true(json_array_size(json_object_get(v, "plain")) == json_array_size(texts) && json_array_size(texts) > 250);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        char text[1024];
        size_t n = unhex(json_string_value(json_array_get(texts, i)), text);
        const json_t *plain = json_array_get(json_object_get(v, "plain"), i);
        const json_t *special = json_array_get(json_object_get(v, "special"), i);
        struct token_list l = encode(t, text, n, 0);
        assert_ids(name, i, &l, plain);
        bool loses = false;
        for (size_t k = 0; k < json_array_size(lossy); k++)
            loses |= json_integer_value(json_array_get(lossy, k)) == (json_int_t)i;
        if (!loses)
            assert_decodes(t, &l, true, text, n);
        token_list_free(&l);
        l = encode(t, text, n, TOKENIZE_SPECIAL);
        assert_ids(name, i, &l, json_is_null(special) ? plain : special);
        token_list_free(&l);
    }
    tokenizer_close(t);
}

/* FILE.inp: texts with a line of their own between them; FILE.out: a line of ids a text. */
static void compare_lines(const char *path)
{
    char name[600], line[8192];
    snprintf(name, sizeof name, "%s.inp", path);
    FILE *in = fopen(name, "rb");
    snprintf(name, sizeof name, "%s.out", path);
    FILE *out = fopen(name, "rb");
    assert_true(in && out);
    static char texts[65536];
    size_t n = fread(texts, 1, sizeof texts - 1, in);
    texts[n] = 0;
    struct tokenizer *t = open_file(path);
    const char *between = "\n__ggml_vocab_test__\n", *at = texts;
    int lines = 0;
    for (; fgets(line, sizeof line, out); lines++) {
        const char *end = strstr(at, between);
        size_t size = end ? (size_t)(end - at) : strlen(at);
        struct token_list l = encode(t, at, size, 0);
        size_t k = 0;
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), k++)
            if (k >= l.n || l.ids[k] != atoi(word))
                fail_msg("%s, text %d '%.*s': token %zu is not %s", path, lines, (int)size, at, k, word);
        assert_int_equal(k, l.n);
        assert_decodes(t, &l, false, at, size);
        token_list_free(&l);
        at = end ? end + strlen(between) : at + size;
    }
    assert_true(lines >= 46 && *at == 0);
    tokenizer_close(t);
    fclose(in);
    fclose(out);
}

static const char *const vocabs[] = {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-bpe.gguf", "ggml-vocab-llama-spm.gguf",
                                     "ggml-vocab-qwen35.gguf"};
static const char *const models[] = {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"};

static const char *folder(const char *variable)
{
    const char *path = getenv(variable);
    if (!path || access(path, R_OK)) {
        print_message("skipped: %s names no folder\n", variable);
        skip();
    }
    return path;
}

static void test_vocab_lines(void **state)
{
    (void)state;
    const char *data = folder("HONE_DATA");
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        char path[500];
        snprintf(path, sizeof path, "%s/vocab/%s", data, vocabs[i]);
        compare_lines(path);
    }
}

static void golden_of(const char *root, const char *below, const char *const *names, size_t n)
{
    json_error_t why;
    json_t *all = json_load_file("tests/golden/tokenizer.json", 0, &why);
    if (!all)
        fail_msg("tests/golden/tokenizer.json: %s", why.text);
    for (size_t i = 0; i < n; i++) {
        char path[500];
        snprintf(path, sizeof path, "%s%s/%s", root, below, names[i]);
        compare_golden(all, names[i], path);
    }
    json_decref(all);
}

static void test_vocab_golden(void **state)
{
    (void)state;
    golden_of(folder("HONE_DATA"), "/vocab", vocabs, sizeof vocabs / sizeof *vocabs);
}

static void test_model_golden(void **state)
{
    (void)state;
    golden_of(folder("HONE_MODELS"), "", models, sizeof models / sizeof *models);
}

/* Every text of at most two bytes, and all 256 at once, in every real vocabulary. */
static void test_all_bytes(void **state)
{
    (void)state;
    const char *data = folder("HONE_DATA");
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        char path[500], text[256];
        snprintf(path, sizeof path, "%s/vocab/%s", data, vocabs[v]);
        struct tokenizer *t = open_file(path);
        for (int i = 0; i < 256; i++)
            text[i] = (char)i;
        struct token_list l = encode(t, text, 256, TOKENIZE_SPECIAL);
        assert_decodes(t, &l, true, text, 256);
        for (int i = 0; i < 65536; i++) {
            text[0] = (char)(i / 256);
            text[1] = (char)i;
            l.n = 0;
            struct hone_error e = {0};
            assert_int_equal(tokenizer_encode(t, text, 2, 0, &l, &e), 0);
            assert_true(l.n >= 1 && l.n <= 4);
            assert_decodes(t, &l, false, text, 2);
        }
        token_list_free(&l);
        tokenizer_close(t);
    }
}

/* 1 MB of words with the lengths and frequencies of English, in under a second of processor time. */
static void test_speed(void **state)
{
    (void)state;
    const char *data = folder("HONE_DATA");
    enum { SIZE = 1000000, WORDS = 20000 };
    char *text = malloc(SIZE + 64);
    assert_non_null(text);
    struct rng r = rng_seed(8);
    static char words[WORDS][12];
    for (int i = 0; i < WORDS; i++)
        for (uint64_t k = 0, n = 2 + rng_below(&r, 8); k < n; k++)
            words[i][k] = "etaoinshrdlcumwfgypbvk"[rng_below(&r, 1 + rng_below(&r, 22))];
    size_t n = 0;
    while (n < SIZE) {
        double u = rng_uniform(&r);
        n += (size_t)sprintf(text + n, "%s%s", words[(int)(u * u * u * u * WORDS)],
                             rng_below(&r, 12)  ? " "
                             : rng_below(&r, 5) ? ", "
                                                : ".\n");
    }
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        char path[500];
        snprintf(path, sizeof path, "%s/vocab/%s", data, vocabs[v]);
        struct tokenizer *t = open_file(path);
        double before = cpu_seconds();
        struct token_list l = encode(t, text, SIZE, 0);
        double spent = cpu_seconds() - before;
        print_message("%s: 1 MB, %zu tokens, %.0f ms\n", vocabs[v], l.n, spent * 1e3);
#ifndef HONE_SANITIZED
        assert_true(spent < 1);
#endif
        assert_decodes(t, &l, false, text, SIZE);
        token_list_free(&l);
        tokenizer_close(t);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocab_lines), cmocka_unit_test(test_vocab_golden), cmocka_unit_test(test_model_golden),
        cmocka_unit_test(test_all_bytes),   cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
