/* tokenizer.c (fuzz): the first byte picks what the others are.
 *
 *   0, 1: a GGUF file, as it is: a vocabulary that is hostile in its bytes.
 *   2, 3: tokens, kinds, scores and merges, from which a well-formed file is made: a vocabulary that is hostile in its meaning.
 *   else: a text for one of two small vocabularies that can say every byte. What is encoded must decode to the text.
 *
 * Any vocabulary that opens encodes and decodes a few texts. Ids must be in range, and from the small
 * ones a control token comes only on demand. */
#include "model/tokenizer.h"
#include "tests/tiny_vocab.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct tokenizer *tiny[3];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (int kind = TINY_BPE; kind <= TINY_SPM_NO_PREFIX; kind++) {
        struct hone_error e = {0};
        char path[] = "/tmp/hone-fuzz-XXXXXX";
        int fd = mkstemp(path);
        INVARIANT(fd >= 0);
        close(fd);
        INVARIANT(tiny_open(&tiny[kind], path, (enum tiny_kind)kind, "llama-bpe", &e) == 0);
    }
    return 0;
}

static void check_text(const struct tokenizer *t, const char *text, size_t n, bool complete, bool marks_spaces)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        struct hone_error e = {0};
        struct token_list l = {0};
        struct text x = {0};
        bool special = flags & TOKENIZE_SPECIAL;
        if (tokenizer_encode(t, text, n, flags, &l, &e)) {
            INVARIANT(!complete && e.code < 0 && e.message[0]);
            continue;
        }
        for (size_t i = 0; i < l.n; i++) {
            INVARIANT(l.ids[i] >= 0 && l.ids[i] < tokenizer_size(t));
            INVARIANT(flags || !complete || tokenizer_kind(t, l.ids[i]) != TOKEN_CONTROL);
        }
        /* A bos that the text did not have would show. */
        bool bos = (flags & TOKENIZE_BOS) && tokenizer_add_bos(t);
        INVARIANT(tokenizer_decode(t, bos ? l.ids + 1 : l.ids, l.n - bos, special, &x, &e) == 0);
        if (complete && !(marks_spaces && memmem(text, n, "\xe2\x96\x81", 3)))
            INVARIANT(x.n == n && (n == 0 || !memcmp(x.data, text, n)));
        size_t shown = utf8_complete(text, n);
        INVARIANT(shown <= n && n - shown <= 3);
        token_list_free(&l);
        text_free(&x);
    }
}

static void check_vocabulary(const void *file, size_t size)
{
    static const char *const texts[] = {"", "hello  world\n", "<s>aaaaaaaabbabab ab\t12345",
                                        "\xff\xe2\x96\x81 \xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80", "AAAA<|x|><0x41>"};
    struct hone_error e = {0};
    struct gguf *g;
    struct tokenizer *t;
    if (gguf_open_memory(&g, file, size, "fuzz", &e))
        return;
    if (tokenizer_open(&t, g, &e)) {
        INVARIANT(e.code < 0 && !strncmp(e.message, "fuzz: ", 6) && !strchr(e.message, '\n'));
        gguf_close(g);
        return;
    }
    gguf_close(g);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_text(t, texts[i], strlen(texts[i]), false, true);
    for (int32_t id = -1; id <= tokenizer_size(t) && id < 1000; id++) {
        struct gguf_string s = tokenizer_token(t, id);
        INVARIANT(!s.size || tokenizer_find(t, s.data, s.size) == id);
        check_text(t, s.data, s.size < 4096 ? s.size : 4096, false, true);
        tokenizer_is_end(t, id);
    }
    tokenizer_close(t);
}

/* ---- a file from a few bytes */

struct file {
    struct text bytes;
    uint64_t n_keys;
};

static void put(struct file *f, const void *data, size_t n)
{
    INVARIANT(text_append(&f->bytes, data, n, NULL) == 0);
}

static void put_u32(struct file *f, uint32_t v)
{
    put(f, &v, sizeof v);
}

static void put_string(struct file *f, const void *s, uint64_t n)
{
    put(f, &n, sizeof n);
    put(f, s, n);
}

static void put_key(struct file *f, const char *key, enum gguf_type type)
{
    put_string(f, key, strlen(key));
    put_u32(f, type);
    f->n_keys++;
}

static void put_array(struct file *f, const char *key, enum gguf_type element, uint64_t n)
{
    put_key(f, key, GGUF_ARRAY);
    put_u32(f, element);
    put(f, &n, sizeof n);
}

struct reader {
    const uint8_t *data;
    size_t n;
};

static uint8_t take(struct reader *r)
{
    return r->n ? r->n--, *r->data++ : 0;
}

/* Strings until the count is reached; each has a byte of length, and the bytes. */
static void put_strings(struct file *f, struct reader *r, const char *key, uint64_t n)
{
    put_array(f, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++) {
        size_t size = take(r) % 24;
        size = size < r->n ? size : r->n;
        put_string(f, r->data, size);
        r->data += size;
        r->n -= size;
    }
}

static void check_made(const uint8_t *data, size_t size)
{
    static const char *const models[] = {"gpt2", "llama", "gemma4", "llama"};
    static const char *const pres[] = {"llama-bpe", "gpt-2", "deepseek-llm", "default"};
    struct reader r = {data, size};
    struct file f = {0};
    uint8_t shape = take(&r);
    uint64_t n = take(&r), n_merges = take(&r);
    put(&f, "GGUF\3\0\0\0", 8);
    put(&f, (uint64_t[]){0, 0}, 16);
    put_key(&f, "tokenizer.ggml.model", GGUF_STRING);
    put_string(&f, models[shape & 3], strlen(models[shape & 3]));
    if (!(shape & 0x10)) {
        put_key(&f, "tokenizer.ggml.pre", GGUF_STRING);
        put_string(&f, pres[shape >> 2 & 3], strlen(pres[shape >> 2 & 3]));
    }
    put_array(&f, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++)
        put_u32(&f, take(&r) % 7);
    if (shape & 1) {
        put_array(&f, "tokenizer.ggml.scores", GGUF_F32, n);
        for (uint64_t i = 0; i < n; i++)
            put_u32(&f, (uint32_t)take(&r) << 24 | (uint32_t)take(&r) << 16);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const ids[] = {"bos", "eos", "unknown", "eot"};
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        put_key(&f, key, GGUF_U32);
        put_u32(&f, take(&r));
    }
    put_strings(&f, &r, "tokenizer.ggml.tokens", n);
    put_strings(&f, &r, "tokenizer.ggml.merges", n_merges);
    memcpy(f.bytes.data + 16, &f.n_keys, sizeof f.n_keys);
    check_vocabulary(f.bytes.data, f.bytes.n);
    text_free(&f.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    int kind = data[0] < 4 ? -1 : data[0] % 3;
    if (data[0] < 2)
        check_vocabulary(data + 1, size - 1);
    else if (kind < 0)
        check_made(data + 1, size - 1);
    else
        check_text(tiny[kind], (const char *)data + 1, size - 1, true, kind != TINY_BPE);
    return 0;
}
