/* synth_vocab.c: a byte-level BPE vocabulary of any size without a corpus: the 256 bytes, then every word of one letter behind
 * a space, of two letters, of two behind a space, of three, and so on, each merged from the word before its last letter; the
 * last two tokens are the beginning and the end of text.
 *
 * Any text can be encoded and any id decoded, English comes out at about two characters a token, and the file has as many
 * tokens and merges as a real one, so that loading it costs as much. Bytes alone would have done for correctness, but a prompt
 * would be four times as long as a real model's. */
#include "model/synth_vocab.h"

#include <string.h>

static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz"; /* by frequency in English */
enum { N_LETTERS = 26, TOKEN_IS_NORMAL = 1, TOKEN_IS_CONTROL = 3 };

struct vocab {
    struct arena *arena;
    struct gguf_string *tokens, *merges;
    int32_t *types;
    int32_t n, cap;
    int32_t n_merges;
};

static struct gguf_string string_of(struct vocab *v, const char *s, size_t n)
{
    return (struct gguf_string){arena_strndup(v->arena, s, n), n};
}

/* GPT-2's spelling of a byte as a character: printable ones as they are, the rest from U+0100 on. */
static void add_bytes(struct vocab *v)
{
    unsigned other = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        unsigned c = itself ? b : other++;
        char s[2] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
        v->tokens[v->n++] = string_of(v, s, c < 0x80 ? 1 : 2);
    }
}

/* All words of `size` letters, with the mark of a space (U+0120) in front or not, as far as there is room. */
static void add_words(struct vocab *v, int size, bool space)
{
    int64_t n = 1;
    for (int i = 0; i < size; i++)
        n *= N_LETTERS;
    for (int64_t word = 0; word < n && v->n < v->cap; word++) {
        char s[16], merge[16];
        size_t at = 0;
        if (space) {
            s[at++] = (char)0xc4;
            s[at++] = (char)0xa0;
        }
        int64_t rest = word, unit = n;
        for (int i = 0; i < size; i++) {
            unit /= N_LETTERS;
            s[at++] = letters[rest / unit];
            rest %= unit;
        }
        memcpy(merge, s, at - 1);
        merge[at - 1] = ' ';
        merge[at] = s[at - 1];
        v->merges[v->n_merges++] = string_of(v, merge, at + 1);
        v->tokens[v->n++] = string_of(v, s, at);
    }
}

int synth_vocab_write(struct gguf_writer *w, int32_t n, const char *pre, bool add_bos, struct arena *arena,
                      struct hone_error *e)
{
    struct vocab v = {.arena = arena, .cap = n - 2};
    v.tokens = arena_array(arena, (size_t)n, sizeof *v.tokens);
    v.merges = arena_array(arena, (size_t)n, sizeof *v.merges);
    v.types = arena_array(arena, (size_t)n, sizeof *v.types);
    if (!v.tokens || !v.merges || !v.types)
        return err_set(e, HONE_ERESOURCE, "out of memory for %d tokens", n);
    add_bytes(&v);
    for (int size = 1; v.n < v.cap; size++) {
        add_words(&v, size, true);
        add_words(&v, size + 1, false);
    }
    for (int32_t i = 0; i < v.n; i++) {
        v.types[i] = TOKEN_IS_NORMAL;
        if (!v.tokens[i].data || (i < v.n_merges && !v.merges[i].data))
            return err_set(e, HONE_ERESOURCE, "out of memory for %d tokens", n);
    }
    v.tokens[v.n] = (struct gguf_string){"<|begin_of_text|>", 17};
    v.tokens[v.n + 1] = (struct gguf_string){"<|end_of_text|>", 15};
    v.types[v.n] = v.types[v.n + 1] = TOKEN_IS_CONTROL;

    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", pre);
    gguf_write_strings(w, "tokenizer.ggml.tokens", v.tokens, (uint64_t)n);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, v.types, (uint64_t)n);
    gguf_write_strings(w, "tokenizer.ggml.merges", v.merges, (uint64_t)v.n_merges);
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)n - 2);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)n - 1);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", add_bos);
    return 0;
}
