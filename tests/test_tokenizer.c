/* test_tokenizer.c: text to ids and back, on two tiny vocabularies (tiny_vocab.h): naive quadratic encoders that merge
 * strings, the cache, added tokens, special ids, refusals, long words. Real vocabularies: test_vocabs.c.
 *
 * `test_tokenizer seeds FOLDER` writes the seeds of the fuzz target instead. */
#include "model/pretokenizer.h"
#include "model/tokenizer.h"

#include "base/log.h"
#include "base/rng.h"
#include "model/utf8.h"
#include "tests/tiny_vocab.h"
#include "tests/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char tiny_path[] = "/tmp/hone-tokenizer-XXXXXX.gguf";

static struct tokenizer *open_tiny(enum tiny_kind kind, const char *pre)
{
    struct hone_error e = {0};
    struct tokenizer *t = NULL;
    if (tiny_open(&t, tiny_path, kind, pre, &e))
        fail_msg("%s", e.message);
    return t;
}

/* The ids of the texts named, which end with NULL. */
static void assert_tokens(const struct tokenizer *t, const char *text, unsigned flags, const char *const *expected)
{
    struct token_list l = encode(t, text, strlen(text), flags);
    size_t n = 0;
    for (; expected[n]; n++) {
        int32_t id = tokenizer_find(t, expected[n], strlen(expected[n]));
        if (n >= l.n || id != l.ids[n])
            fail_msg("'%s': token %zu is not '%s'", text, n, expected[n]);
    }
    assert_int_equal(l.n, n);
    token_list_free(&l);
}
#define TOKENS(t, text, flags, ...) assert_tokens(t, text, flags, (const char *const[]){__VA_ARGS__, NULL})

/* ---- naive encoders: strings in an array, the best pair found by looking at all, no table but the lists in tiny_vocab.h */

struct piece {
    char text[64];
    size_t n;
};

static void join(struct piece *p, size_t *n, size_t i)
{
    memcpy(p[i].text + p[i].n, p[i + 1].text, p[i + 1].n);
    p[i].n += p[i + 1].n;
    memmove(p + i + 1, p + i + 2, (*n - i - 2) * sizeof *p);
    --*n;
}

struct naive {
    const struct tokenizer *t;
    const char *text;
    int32_t ids[1024];
    size_t n;
};

static int naive_bpe_word(void *context, size_t begin, size_t end)
{
    struct naive *x = context;
    static struct piece p[512];
    size_t n = 0;
    for (size_t i = begin; i < end; i++, n++)
        p[n].n = tiny_spell(p[n].text, (unsigned char)x->text[i]);
    for (bool merged = true; merged;) {
        merged = false;
        for (int m = 0; m < TINY_COUNT(tiny_merges) && !merged; m++)
            for (size_t i = 0; i + 1 < n && !merged; i++) {
                char pair[130];
                snprintf(pair, sizeof pair, "%.*s %.*s", (int)p[i].n, p[i].text, (int)p[i + 1].n, p[i + 1].text);
                merged = !strcmp(pair, tiny_merges[m]);
                if (merged)
                    join(p, &n, i);
            }
    }
    for (size_t i = 0; i < n; i++)
        x->ids[x->n++] = tokenizer_find(x->t, p[i].text, p[i].n);
    return 0;
}

static int piece_rank(const struct piece *a, const struct piece *b)
{
    for (int i = 0; i < TINY_COUNT(tiny_pieces); i++)
        if (strlen(tiny_pieces[i]) == a->n + b->n && !memcmp(tiny_pieces[i], a->text, a->n) &&
            !memcmp(tiny_pieces[i] + a->n, b->text, b->n))
            return i / 2;
    return INT32_MAX;
}

/* SentencePiece over the whole text at once, nothing cut. */
static void naive_spm(struct naive *x, size_t size, bool prefix)
{
    static struct piece p[512];
    size_t n = 0;
    if (prefix && size)
        p[n++] = (struct piece){M, 3};
    for (size_t i = 0, step; i < size; i += step, n++) {
        step = utf8_step(x->text + i, size - i);
        p[n].n = x->text[i] == ' ' ? 3 : step;
        memcpy(p[n].text, x->text[i] == ' ' ? M : x->text + i, p[n].n);
    }
    for (;;) {
        int best = INT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (piece_rank(&p[i], &p[i + 1]) < best) {
                best = piece_rank(&p[i], &p[i + 1]);
                at = i;
            }
        if (best == INT32_MAX)
            break;
        join(p, &n, at);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = tokenizer_find(x->t, p[i].text, p[i].n);
        if (id >= 0 && tokenizer_kind(x->t, id) == TOKEN_NORMAL)
            x->ids[x->n++] = id;
        else
            for (size_t k = 0; k < p[i].n; k++)
                x->ids[x->n++] = 3 + (unsigned char)p[i].text[k];
    }
}

static size_t random_text(struct rng *r, char *out, bool space_marks)
{
    static const char *const parts[] = {
        "he",
        "hello",
        " hello",
        " world",
        "wor",
        "ld",
        "l",
        "o",
        " ",
        "  ",
        "\n",
        "a",
        "b",
        "ab",
        "aaaa",
        "12",
        "3",
        "'s",
        ">",
        ">" M "<",
        "<",
        "\xc3\xa9",
        "\xc3\xa9\xc3\xa9",
        "\xe4\xbd\xa0",
        "\xe5\xa5\xbd",
        "\xff",
        "\xc3",
        "\xf0\x9f\x98\x80",
        "\xe2\x96",
        "\x81",
        "0x4",
        "s",
        "x",
        "\r\n",
        M,
    };
    size_t n = 0, kinds = sizeof parts / sizeof *parts - !space_marks;
    for (uint64_t k = rng_below(r, 40); k > 0; k--) {
        const char *part = parts[rng_below(r, kinds)];
        if (!space_marks && strstr(part, M))
            continue;
        memcpy(out + n, part, strlen(part));
        n += strlen(part);
    }
    return n;
}

static void assert_same(const struct naive *x, const struct token_list *l, size_t size)
{
    bool same = x->n == l->n && (!x->n || !memcmp(x->ids, l->ids, x->n * sizeof *x->ids));
    if (!same)
        for (size_t i = 0; i < x->n && i < l->n; i++)
            if (x->ids[i] != l->ids[i])
                fail_msg("'%.*s': token %zu is %d, naively %d", (int)size, x->text, i, l->ids[i], x->ids[i]);
    assert_true(same);
}

static void test_naive_bpe(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct tokenizer *t = open_tiny(TINY_BPE, "gpt-2");
    struct pretokenizer *p = NULL;
    assert_int_equal(pretokenizer_open(&p, "gpt-2", 5, &e), 0);
    struct rng r = rng_seed(1);
    static struct naive x;
    for (int round = 0; round < 1000; round++) {
        char text[1024];
        size_t n = random_text(&r, text, true);
        x = (struct naive){.t = t, .text = text};
        assert_int_equal(pretokenizer_split(p, text, n, naive_bpe_word, &x, &e), 0);
        struct token_list l = encode(t, text, n, 0);
        assert_same(&x, &l, n);
        assert_decodes(t, &l, false, text, n);
        token_list_free(&l);
    }
    pretokenizer_close(p);
    tokenizer_close(t);
}

static void naive_spm_rounds(enum tiny_kind kind, uint64_t seed, bool space_marks)
{
    struct tokenizer *t = open_tiny(kind, NULL);
    struct rng r = rng_seed(seed);
    static struct naive x;
    for (int round = 0; round < 1000; round++) {
        char text[1024];
        size_t n = random_text(&r, text, space_marks);
        x = (struct naive){.t = t, .text = text};
        naive_spm(&x, n, kind == TINY_SPM);
        struct token_list l = encode(t, text, n, 0);
        assert_same(&x, &l, n);
        if (!memmem(text, n, M, 3))
            assert_decodes(t, &l, false, text, n);
        token_list_free(&l);
    }
    tokenizer_close(t);
}

static void test_naive_spm(void **state)
{
    (void)state;
    naive_spm_rounds(TINY_SPM, 2, false);
    naive_spm_rounds(TINY_SPM, 3, true);
    naive_spm_rounds(TINY_SPM_NO_PREFIX, 4, true);
}

/* A long text, most words of it from the cache, gives the ids that its pieces give without. */
static void test_cache(void **state)
{
    (void)state;
    for (int kind = TINY_BPE; kind <= TINY_SPM_NO_PREFIX; kind++) {
        struct tokenizer *t = open_tiny((enum tiny_kind)kind, NULL);
        struct rng r = rng_seed(5);
        static char text[64 * 1024];
        size_t n = 0;
        while (n < sizeof text - 1024)
            n += random_text(&r, text + n, false);
        struct token_list whole = encode(t, text, n, 0);
        if (kind == TINY_BPE) /* some bytes happen to make a U+2581 */
            assert_decodes(t, &whole, false, text, n);
        /* Piece by piece, too short for a cache. */
        struct token_list pieces = {0};
        struct hone_error e = {0};
        if (kind != TINY_SPM) {
            for (size_t at = 0, to; at < n; at = to) {
                to = at + 100 < n ? at + 100 : n;
                while (to < n && !(text[to] == ' ' && text[to - 1] >= 'a' && text[to - 1] <= 'z'))
                    to++;
                if (to - at < 512)
                    assert_int_equal(tokenizer_encode(t, text + at, to - at, 0, &pieces, &e), 0);
                else
                    fail_msg("the text has no place to cut");
            }
            assert_int_equal(whole.n, pieces.n);
            assert_memory_equal(whole.ids, pieces.ids, whole.n * sizeof *whole.ids);
        }
        token_list_free(&whole);
        token_list_free(&pieces);
        tokenizer_close(t);
    }
}

static void test_added(void **state)
{
    (void)state;
    struct tokenizer *t = open_tiny(TINY_BPE, NULL);
    TOKENS(t, "hello<tag>hello", 0, "hello", "<tag>", "hello");
    TOKENS(t, "<tag", 0, "<t", "a", "g");
    TOKENS(t, "<tag>>", 0, "<tag>", ">");
    TOKENS(t, "<tag>>", TOKENIZE_SPECIAL, "<tag>>");
    TOKENS(t, "[toxicity=0][toxicity=1]", 0, "[toxicity=0]", "[", "t", "o", "x", "i", "c", "i", "t", "y", "=", "1", "]");
    TOKENS(t, "<|im_start|>", TOKENIZE_SPECIAL, "<|im_start|>");
    TOKENS(t, "<|im_start|>", 0, "<", "|", "i", "m", "_", "s", "t", "a", "r", "t", "|", ">");
    TOKENS(t, "<<|im_end|>>", TOKENIZE_SPECIAL, "<", "<|im_end|>", ">");
    TOKENS(t, "\xc3\x96x", 0, "\xc3\x96x");
    TOKENS(t, "aXbXaXbXc", 0, "a", "X", "b", "X", "aXbXc");
    TOKENS(t, " hello <tag> world", 0, SP, "hello", SP, "<tag>", SP "world");
    /* A byte that begins an added token, but none that is there (the search once gave its place all the same). */
    struct token_list l = encode(t, "\xc3\x96pfel", 6, 0);
    assert_decodes(t, &l, false, "\xc3\x96pfel", 6);
    token_list_free(&l);
    tokenizer_close(t);

    t = open_tiny(TINY_SPM, NULL);
    /* A virtual space before the text and behind an added token; decoding takes both away. */
    TOKENS(t, "hello<ud>hello<ud> hello", 0, M "hello", "<ud>", M "hello", "<ud>", M M, "hello");
    TOKENS(t, "<s>hello", TOKENIZE_SPECIAL, "<s>", M "hello");
    TOKENS(t, "x  \tx", 0, M, "x", "  \t", M, "x");
    const char *const texts[] = {"hello<ud>hello<ud> hello", "<s>hello world</s>  x", " ", "  <ud>  ", "<ud><ud> <s>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        l = encode(t, texts[i], strlen(texts[i]), TOKENIZE_SPECIAL);
        assert_decodes(t, &l, true, texts[i], strlen(texts[i]));
        token_list_free(&l);
    }
    /* Text cannot spell a control or a byte token, though the pieces "<s" and "<0" exist. */
    TOKENS(t, "<s>x", 0, M "<", "s", ">", "x");
    TOKENS(t, "a<0x41>", 0, M, "a", "<0", "x4", "1", ">");
    tokenizer_close(t);
}

static void test_specials(void **state)
{
    (void)state;
    struct tokenizer *t = open_tiny(TINY_BPE, NULL);
    int32_t end = tokenizer_find(t, "<|im_end|>", 10);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), tokenizer_find(t, "<|endoftext|>", 13));
    assert_false(tokenizer_add_bos(t));
    assert_true(tokenizer_is_end(t, tokenizer_eos(t)));
    assert_true(tokenizer_is_end(t, end));
    assert_false(tokenizer_is_end(t, 0));
    assert_false(tokenizer_is_end(t, -1));
    assert_false(tokenizer_is_end(t, tokenizer_size(t)));
    assert_int_equal(tokenizer_kind(t, end), TOKEN_CONTROL);
    assert_int_equal(tokenizer_token(t, -5).size, 0);
    assert_null(tokenizer_chat_template(t));
    struct token_list l = encode(t, "a", 1, TOKENIZE_BOS);
    assert_int_equal(l.n, 1);
    token_list_free(&l);
    /* Control tokens show only on demand; ids that no token has are refused and leave the text as it was. */
    struct hone_error e = {0};
    struct text x = {0};
    assert_int_equal(tokenizer_token_bytes(t, end, false, &x, &e), 0);
    assert_int_equal(x.n, 0);
    assert_int_equal(tokenizer_token_bytes(t, end, true, &x, &e), 0);
    assert_string_equal(x.data, "<|im_end|>");
    int32_t ids[] = {0, tokenizer_size(t)};
    assert_int_equal(tokenizer_decode(t, ids, 2, false, &x, &e), HONE_EINPUT);
    assert_string_equal(x.data, "<|im_end|>");
    text_free(&x);
    tokenizer_close(t);

    t = open_tiny(TINY_SPM, NULL); /* its file names no ids: they follow from the texts */
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_add_bos(t));
    TOKENS(t, "hello", TOKENIZE_BOS, "<s>", M "hello");
    l = encode(t, "hello", 5, TOKENIZE_BOS);
    assert_decodes(t, &l, false, "hello", 5);
    token_list_free(&l);
    l = encode(t, "", 0, 0);
    assert_int_equal(l.n, 0);
    tokenizer_close(t);
}

static void test_utf8_complete(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t waits; /* bytes held back */
    } cases[] = {{"", 0},
                 {"a", 0},
                 {"\xc3\xa9", 0},
                 {"\xc3", 1},
                 {"a\xe4", 1},
                 {"\xe4\xbd", 2},
                 {"\xe4\xbd\xa0", 0},
                 {"\xf0", 1},
                 {"\xf0\x9f", 2},
                 {"\xf0\x9f\x98", 3},
                 {"\xf0\x9f\x98\x80", 0},
                 {"\x80", 0},
                 {"\xff", 0},
                 {"\xc0", 0},
                 {"\xc1\x80", 0},
                 {"\xed\xa0", 0},
                 {"\xed\x9f", 2},
                 {"\xe0\x80", 0},
                 {"\xe0\xa0", 2},
                 {"\xf4\x90", 0},
                 {"\xf4\x8f\xbf", 3},
                 {"\xf5", 0},
                 {"\xc3\xc3", 1},
                 {"\x80\x80\x80\x80", 0},
                 {"\xe4\x41", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        if (utf8_complete(cases[i].text, n) != n - cases[i].waits)
            fail_msg("case %zu", i);
    }
    /* Against the rule itself: hold back the longest tail of at most 3 bytes that some continuation makes valid. */
    struct rng r = rng_seed(6);
    for (int round = 0; round < 100000; round++) {
        static const unsigned char bytes[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2,
                                              0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5};
        char text[8];
        size_t n = rng_below(&r, 5), waits = 0;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)bytes[rng_below(&r, sizeof bytes)];
        for (size_t tail = 1; tail <= 3 && tail <= n; tail++) {
            static const char *const rest[] = {"\x80",     "\xa0",     "\x90",         "\x80\x80",
                                               "\xa0\x80", "\x90\x80", "\x80\x80\x80", "\x90\x80\x80"};
            for (size_t k = 0; k < sizeof rest / sizeof *rest; k++) {
                char whole[8];
                size_t more = strlen(rest[k]);
                memcpy(whole, text + n - tail, tail);
                memcpy(whole + tail, rest[k], more);
                if (utf8_sequence(whole, tail + more) == tail + more)
                    waits = tail;
            }
        }
        assert_int_equal(utf8_complete(text, n), n - waits);
    }
}

/* ---- refusals: a GGUF with these keys, and what the message must say */

static char warnings[4096];

static void keep_warning(void *user, enum log_level level, const char *line)
{
    (void)user;
    size_t n = strlen(warnings);
    if (level == LOG_WARN)
        snprintf(warnings + n, sizeof warnings - n, "%s\n", line);
}

typedef void write_fn(struct gguf_writer *w);

static int open_written(struct tokenizer **t, write_fn *write, struct hone_error *e)
{
    struct gguf_writer *w;
    struct gguf *g;
    assert_int_equal(gguf_writer_create(&w, tiny_path, e), 0);
    write(w);
    assert_int_equal(gguf_writer_close(w, true, e), 0);
    assert_int_equal(gguf_open(&g, tiny_path, e), 0);
    int rc = tokenizer_open(t, g, e);
    gguf_close(g);
    remove(tiny_path);
    return rc;
}

static void assert_refused(write_fn *write, const char *says)
{
    struct hone_error e = {0};
    struct tokenizer *t = NULL;
    assert_int_equal(open_written(&t, write, &e), HONE_EINPUT);
    if (!strstr(e.message, says) || !strstr(e.message, tiny_path) || strchr(e.message, '\n'))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static void strings(struct gguf_writer *w, const char *key, int n, const char *const *texts)
{
    struct gguf_string s[8];
    for (int i = 0; i < n; i++)
        s[i] = (struct gguf_string){texts[i], strlen(texts[i])};
    gguf_write_strings(w, key, s, (uint64_t)n);
}
#define STRINGS(w, key, ...)                                                                                                   \
    strings(w, key, TINY_COUNT(((const char *const[]){__VA_ARGS__})), (const char *const[]){__VA_ARGS__})

static void no_model(struct gguf_writer *w)
{
    gguf_write_string(w, "general.architecture", "llama");
}

static void bert(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "be\nrt");
}

static void bpe_start(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", "gpt-2");
}

static void no_tokens(struct gguf_writer *w)
{
    bpe_start(w);
    STRINGS(w, "tokenizer.ggml.merges", "a b");
}

static void tokens_of_numbers(struct gguf_writer *w)
{
    bpe_start(w);
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_I32, (int32_t[]){1, 2}, 2);
}

static void twin_tokens(struct gguf_writer *w)
{
    bpe_start(w);
    STRINGS(w, "tokenizer.ggml.tokens", "a", "", "b", "", "a");
}

static void no_merges(struct gguf_writer *w)
{
    bpe_start(w);
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b");
}

static void broken_merge(struct gguf_writer *w)
{
    no_merges(w);
    STRINGS(w, "tokenizer.ggml.merges", "a b", "ab");
}

static void few_types(struct gguf_writer *w)
{
    no_merges(w);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[]){1}, 1);
}

static void strange_type(struct gguf_writer *w)
{
    no_merges(w);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[]){1, 77}, 2);
}

static void types_of_floats(struct gguf_writer *w)
{
    no_merges(w);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_F32, (float[]){1, 1}, 2);
}

static void text_as_bos(struct gguf_writer *w)
{
    no_merges(w);
    gguf_write_string(w, "tokenizer.ggml.bos_token_id", "a");
}

static void unknown_pre(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", "gpt-17");
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b");
    STRINGS(w, "tokenizer.ggml.merges", "a b");
}

static void no_scores(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "llama");
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b");
}

static void scores_as_bytes(struct gguf_writer *w)
{
    no_scores(w);
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_U8, (uint8_t[]){1, 1}, 2);
}

static void missing_pre(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b", "ab", "<|im_end|>");
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[]){1, 1, 1, 4}, 4);
    STRINGS(w, "tokenizer.ggml.merges", "a b", "b z");
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 99);
}

static void nan_scores(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "llama");
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b", "ab", "ba", "aba");
    float nan = __builtin_nanf("");
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, (float[]){nan, nan, nan, __builtin_inff(), -0.0f}, 5);
}

static void zero_scores(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "llama");
    STRINGS(w, "tokenizer.ggml.tokens", "a", "b", "ab", "ba");
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, (float[]){-1, -1, -0.0f, 0.0f}, 4);
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

static void no_vocab(struct gguf_writer *w)
{
    gguf_write_string(w, "tokenizer.ggml.model", "no_vocab");
    gguf_write_string(w, "tokenizer.chat_template", "x");
}

static void test_refusals(void **state)
{
    (void)state;
    assert_refused(no_model, "tokenizer.ggml.model");
    assert_refused(bert, "\"be?rt\"; known: gpt2, llama");
    assert_refused(no_tokens, "tokenizer.ggml.tokens is missing");
    assert_refused(tokens_of_numbers, "tokenizer.ggml.tokens is not an array of strings");
    assert_refused(twin_tokens, "tokens 0 and 4 have the same text");
    assert_refused(no_merges, "tokenizer.ggml.merges is missing");
    assert_refused(broken_merge, "item 1 is not two tokens");
    assert_refused(few_types, "token_type has 1 items for 2 tokens");
    assert_refused(strange_type, "token 1 is of the unknown type 77");
    assert_refused(types_of_floats, "is not an array of integers");
    assert_refused(text_as_bos, "tokenizer.ggml.bos_token_id is not an integer");
    assert_refused(unknown_pre, "unknown pre-tokenizer \"gpt-17\"; known: gpt-2");
    assert_refused(no_scores, "tokenizer.ggml.scores is missing");
    assert_refused(scores_as_bytes, "tokenizer.ggml.scores is not an array of f32");
}

static void test_tolerated(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct tokenizer *t = NULL;
    struct token_list l = {0};
    /* No pre-tokenizer: "default", and said so. A marker of a chat family is a control token whatever the file says. A byte
     * without a token is left out, and said so. */
    log_to(keep_warning, NULL, LOG_WARN);
    assert_int_equal(open_written(&t, missing_pre, &e), 0);
    assert_non_null(strstr(warnings, "tokenizer.ggml.pre is missing: the pre-tokenizer \"default\" is assumed"));
    assert_non_null(strstr(warnings, "bos_token_id is 99"));
    assert_non_null(strstr(warnings, "1 of 2 merges"));
    assert_int_equal(tokenizer_bos(t), -1);
    TOKENS(t, "ab<|im_end|>", TOKENIZE_SPECIAL, "ab", "<|im_end|>");
    TOKENS(t, "ab<|im_end|>", 0, "ab");
    assert_int_equal(tokenizer_kind(t, 3), TOKEN_CONTROL);
    assert_true(tokenizer_is_end(t, 3));
    warnings[0] = 0;
    l = encode(t, "abc", 3, 0);
    assert_int_equal(l.n, 1);
    assert_non_null(strstr(warnings, "no tokens for 1 bytes"));
    log_to(NULL, NULL, LOG_WARN);
    token_list_free(&l);
    tokenizer_close(t);
    /* Scores that are no numbers come last; merging still ends. */
    assert_int_equal(open_written(&t, nan_scores, &e), 0);
    l = encode(t, "aba", 3, 0);
    assert_true(l.n > 0);
    token_list_free(&l);
    tokenizer_close(t);
    /* The two zeros are one score: of equals the leftmost. */
    assert_int_equal(open_written(&t, zero_scores, &e), 0);
    TOKENS(t, "aba", 0, "ab", "a");
    tokenizer_close(t);
    /* No vocabulary: opens, refuses text. */
    assert_int_equal(open_written(&t, no_vocab, &e), 0);
    assert_int_equal(tokenizer_size(t), 0);
    assert_int_equal(tokenizer_find(t, "a", 1), -1);
    assert_string_equal(tokenizer_chat_template(t), "x");
    assert_int_equal(tokenizer_encode(t, "a", 1, 0, &l, &e), HONE_EINPUT);
    tokenizer_close(t);
}

/* One word of 1 MB, in both models: merging is n log n. */
static void test_long_word(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "ab", " ", "\n", "\xc3\xa9", "\xff", "hello"};
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 8);
    assert_non_null(text);
    for (int kind = TINY_BPE; kind <= TINY_SPM; kind++) {
        struct tokenizer *t = open_tiny((enum tiny_kind)kind, "gemma4"); /* one line, one word */
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = 0;
            for (; n < SIZE; n += strlen(units[u]))
                memcpy(text + n, units[u], strlen(units[u]));
            double before = cpu_seconds();
            struct token_list l = encode(t, text, n, 0);
            double spent = cpu_seconds() - before;
            assert_decodes(t, &l, false, text, n);
            token_list_free(&l);
            if (spent > 10)
                fail_msg("a word of 1 MB takes %.1f s (kind %d, unit %zu)", spent, kind, u);
        }
        tokenizer_close(t);
    }
    free(text);
}

static void write_seed(const char *folder, const char *name, char kind, const void *data, size_t n)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fputc(kind, f) != kind || fwrite(data, 1, n, f) != n || fclose(f))
        perror(path);
}

static int write_seeds(const char *folder)
{
    static const char *const texts[] = {"hello<tag> world <|im_start|>x<|im_end|>\n",
                                        " hello<ud>  \t<s>>\xe2\x96\x81< \xff\xc3\xa9", "It's 12345\r\n\r\n  \xe4\xbd\xa0"};
    char name[32];
    for (int i = 0; i < 3; i++) {
        static char file[65536];
        struct hone_error e = {0};
        if (tiny_write(tiny_path, (enum tiny_kind)i, NULL, &e))
            return 1;
        FILE *f = fopen(tiny_path, "rb");
        size_t n = f ? fread(file, 1, sizeof file, f) : 0;
        if (f)
            fclose(f);
        snprintf(name, sizeof name, "vocab%d", i);
        write_seed(folder, name, 0, file, n);
        snprintf(name, sizeof name, "text%d", i);
        write_seed(folder, name, (char)(6 + i), texts[i], strlen(texts[i]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    int fd = mkstemps(tiny_path, 5);
    if (fd < 0)
        return 1;
    close(fd);
    if (argc == 3 && !strcmp(argv[1], "seeds")) {
        int rc = write_seeds(argv[2]);
        remove(tiny_path);
        return rc;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive_bpe), cmocka_unit_test(test_naive_spm), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_added),     cmocka_unit_test(test_specials),  cmocka_unit_test(test_utf8_complete),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_tolerated), cmocka_unit_test(test_long_word),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove(tiny_path);
    return rc;
}
