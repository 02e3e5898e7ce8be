/* tiny_vocab.h: two vocabularies small enough to reason about, each able to say every byte: for test_tokenizer and the fuzz
 * target. They are written as GGUF files by hone's own writer. */
#ifndef TESTS_TINY_VOCAB_H
#define TESTS_TINY_VOCAB_H

#include "model/gguf.h"
#include "model/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Byte-level BPE: 256 byte tokens (ids 0 to 255), what the merges make, added tokens. \xc4\xa0 spells a space, \xc4\x8a a
 * newline. */
#define SP "\xc4\xa0"
#define NL "\xc4\x8a"
static const char *const tiny_merges[] = {
    "h e",           "l l",
    "he ll",         "hell o",
    SP " w",         "o r",
    SP "w or",       "l d",
    SP "wor ld",     SP " " SP,
    SP SP " " SP SP, "1 2",
    "12 3",          NL " " NL,
    "l o",           "a b",
    "b a",           "ab ab",
    "a a",           "aa aa",
    "' s",           "\xc3\x83 \xc2\xa9",
    SP " he",        SP "he llo",
    "w or",          "\xc3\xb0 \xc5\x81",
    "a b", /* again: the first counts */
};
static const char *const tiny_user_defined[] = {"<tag>", "[toxicity=0]", "\xc3\x96x", "<t", "aXbXc"};
static const char *const tiny_control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tag>>"};

/* SentencePiece: <unk>, <s>, </s>, 256 byte tokens (ids 3 to 258), then these by falling score, then the added tokens. */
#define M "\xe2\x96\x81"
static const char *const tiny_pieces[] = {
    M "t",
    "he",
    "ll",
    M M,
    "or",
    "in",
    M "the",
    "hell",
    M M M M,
    "hello",
    M "hello",
    M "w",
    "ld",
    M "wor",
    M "world",
    ">" M "<",
    "<>",
    M "<",
    "> ",
    "\xc3\xa9\xc3\xa9",
    "\xe4\xbd\xa0\xe5\xa5\xbd",
    "aa",
    "aaaa",
    "aaa",
    "ab",
    "ba",
    "<s",
    "<0",
    "x4",
    "<s>x",
    "\n\n",
    M,
    "a",
    "b",
    "d",
    "e",
    "h",
    "i",
    "l",
    "n",
    "o",
    "r",
    "s",
    "t",
    "w",
    "x",
    "<",
    ">",
    "0",
    "4",
    "1",
    "\xc3\xa9",
    "\xe4\xbd\xa0",
    "\n",
};
static const char *const tiny_spm_user[] = {"<ud>", "  \t"};

enum tiny_kind { TINY_BPE, TINY_SPM, TINY_SPM_NO_PREFIX };
#define TINY_COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

struct tiny {
    struct gguf_string texts[600];
    int32_t kinds[600];
    float scores[600];
    char room[16384];
    size_t used;
    int n;
};

static inline void tiny_add(struct tiny *t, const char *text, size_t size, int32_t kind, float score)
{
    memcpy(t->room + t->used, text, size);
    t->texts[t->n] = (struct gguf_string){t->room + t->used, size};
    t->kinds[t->n] = kind;
    t->scores[t->n++] = score;
    t->used += size;
}

/* GPT-2's spelling of a byte, by counting: the printable ones are themselves, the others follow U+0100 in their order. */
static inline size_t tiny_spell(char *out, int byte)
{
    int c = 256;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte)
            c = printable ? b : c;
        else
            c += !printable;
    }
    if (c < 128) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 + c / 64);
    out[1] = (char)(0x80 + c % 64);
    return 2;
}

static inline void tiny_fill_bpe(struct tiny *t)
{
    char s[64];
    for (int b = 0; b < 256; b++)
        tiny_add(t, s, tiny_spell(s, b), TOKEN_NORMAL, 0);
    for (int i = 0; i < TINY_COUNT(tiny_merges); i++) {
        const char *space = strchr(tiny_merges[i], ' ');
        size_t n = (size_t)snprintf(s, sizeof s, "%.*s%s", (int)(space - tiny_merges[i]), tiny_merges[i], space + 1);
        bool there = false;
        for (int k = 0; k < t->n; k++)
            there |= t->texts[k].size == n && !memcmp(t->texts[k].data, s, n);
        if (!there)
            tiny_add(t, s, n, TOKEN_NORMAL, 0);
    }
    for (int i = 0; i < TINY_COUNT(tiny_user_defined); i++)
        tiny_add(t, tiny_user_defined[i], strlen(tiny_user_defined[i]), TOKEN_USER_DEFINED, 0);
    for (int i = 0; i < TINY_COUNT(tiny_control); i++)
        tiny_add(t, tiny_control[i], strlen(tiny_control[i]), TOKEN_CONTROL, 0);
}

static inline void tiny_fill_spm(struct tiny *t)
{
    char s[64];
    tiny_add(t, "<unk>", 5, TOKEN_UNKNOWN, 0);
    tiny_add(t, "<s>", 3, TOKEN_CONTROL, 0);
    tiny_add(t, "</s>", 4, TOKEN_CONTROL, 0);
    for (int b = 0; b < 256; b++)
        tiny_add(t, s, (size_t)snprintf(s, sizeof s, "<0x%02X>", (unsigned)b), TOKEN_BYTE, 0);
    for (int i = 0; i < TINY_COUNT(tiny_pieces); i++)
        tiny_add(t, tiny_pieces[i], strlen(tiny_pieces[i]), TOKEN_NORMAL, (float)(-i / 2)); /* pairs of equal scores */
    for (int i = 0; i < TINY_COUNT(tiny_spm_user); i++)
        tiny_add(t, tiny_spm_user[i], strlen(tiny_spm_user[i]), TOKEN_USER_DEFINED, 0);
}

/* Writes a vocabulary; pre NULL: "gpt-2". */
static inline int tiny_write(const char *path, enum tiny_kind kind, const char *pre, struct hone_error *e)
{
    struct tiny t = {0};
    struct gguf_writer *w;
    int rc = gguf_writer_create(&w, path, e);
    if (rc)
        return rc;
    gguf_write_string(w, "general.architecture", "llama");
    gguf_write_string(w, "tokenizer.ggml.model", kind == TINY_BPE ? "gpt2" : "llama");
    if (kind == TINY_BPE) {
        tiny_fill_bpe(&t);
        struct gguf_string merges[64];
        for (int i = 0; i < TINY_COUNT(tiny_merges); i++)
            merges[i] = (struct gguf_string){tiny_merges[i], strlen(tiny_merges[i])};
        gguf_write_strings(w, "tokenizer.ggml.merges", merges, TINY_COUNT(tiny_merges));
        gguf_write_string(w, "tokenizer.ggml.pre", pre ? pre : "gpt-2");
        gguf_write_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)t.n - 4);
    } else {
        tiny_fill_spm(&t);
        gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, t.scores, (uint64_t)t.n);
        gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", kind == TINY_SPM);
    }
    gguf_write_strings(w, "tokenizer.ggml.tokens", t.texts, (uint64_t)t.n);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, t.kinds, (uint64_t)t.n);
    return gguf_writer_close(w, true, e);
}

static inline int tiny_open(struct tokenizer **out, const char *path, enum tiny_kind kind, const char *pre,
                            struct hone_error *e)
{
    struct gguf *g;
    int rc = tiny_write(path, kind, pre, e);
    if (!rc)
        rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = tokenizer_open(out, g, e);
    gguf_close(g);
    remove(path);
    return rc;
}

#endif
