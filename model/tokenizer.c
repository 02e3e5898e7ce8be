/* tokenizer.c: opens a vocabulary, and the way through a text that both models share: cut out the added tokens, hand what lies
 * between them to the model, and back.
 *
 * Decoding inverts encoding exactly for plain text, with two exceptions that lie in SentencePiece: a U+2581 in a text comes
 * back as a space, and so it must, since the ids are the same. Where a file wants a space before a text, encoding puts one at
 * the beginning and behind every added token, and decoding takes it away in the same places.
 *
 * A byte that a byte-level vocabulary lacks (SmolLM2's has no control characters and not all of 0xF1 to 0xFF) is left out with
 * a warning. That is what its model was trained with; the unknown token that such files name is their end of text.
 *
 * A call keeps a small direct-mapped cache of words: an entry points at an earlier place of the same text and at the ids it
 * gave there, so it stores no strings and costs no lock. (FIGURES)
 *
 * Refused: vocabularies whose model hone does not know ("bert", "t5", "rwkv" ...); and, at encode, "no_vocab". */
#include "model/tokenizer.h"

#include "base/hash.h"
#include "base/log.h"
#include "model/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_MIN_TEXT = 512, CACHE_MAX_WORDS = 16384, CACHE_LONGEST = 32 };

const char *printable(const char *s, size_t n, char *out, size_t room)
{
    size_t i = 0;
    for (; i < n && i + 1 < room; i++)
        out[i] = s[i] >= 32 && s[i] < 127 ? s[i] : '?';
    out[i] = 0;
    return out;
}

void byte_tokens_find(struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", b);
        t->byte_id[b] = vocab_find(&t->vocab, s, 6);
    }
}

/* Opening. */

static int read_model(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    static const struct {
        const char *name;
        enum tokenizer_model model;
    } models[] = {
        {"gpt2", MODEL_BPE}, {"llama", MODEL_SPM}, {"gemma4", MODEL_BPE_SP}, {"no_vocab", MODEL_NONE}, {"none", MODEL_NONE}};
    struct gguf_string name;
    int rc = gguf_get_string(g, "tokenizer.ggml.model", true, &name, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (name.size == strlen(models[i].name) && !memcmp(name.data, models[i].name, name.size)) {
            t->model = models[i].model;
            return 0;
        }
    char shown[40];
    return err_set(e, HONE_EINPUT, "%s: tokenizer.ggml.model is \"%s\"; known: gpt2, llama, gemma4, no_vocab", g->path,
                   printable(name.data, name.size, shown, sizeof shown));
}

static int read_template(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    struct gguf_string s = {0};
    int rc = gguf_get_string(g, "tokenizer.chat_template", false, &s, e);
    if (rc || !s.data)
        return rc;
    t->chat_template = arena_strndup(&t->arena, s.data, s.size);
    return t->chat_template ? 0 : err_set(e, HONE_ERESOURCE, "out of memory for a chat template");
}

static int read_all(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    int rc;
    if ((rc = read_model(t, g, e)) || (rc = read_template(t, g, e)) || t->model == MODEL_NONE)
        return rc;
    if ((rc = vocab_read(&t->vocab, &t->arena, g, e)))
        return rc;
    if ((rc = t->model == MODEL_SPM ? spm_open(t, g, e) : bpe_open(t, g, e)))
        return rc;
    if ((rc = added_build(&t->added, &t->arena, &t->vocab, e)))
        return rc;
    if ((rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &t->add_bos, e)))
        return rc;
    /* Only SentencePiece knows the prefix; byte-level files carry the key too, always false. */
    return t->model == MODEL_SPM ? gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &t->space_prefix, e) : 0;
}

int tokenizer_open(struct tokenizer **out, const struct gguf *g, struct hone_error *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, HONE_ERESOURCE, "out of memory for a tokenizer");
    t->vocab.bos = t->vocab.eos = t->vocab.unknown = -1;
    int rc = read_all(t, g, e);
    if (rc) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    pretokenizer_close(t->pre);
    arena_free(&t->arena);
    free(t);
}

/* Asking. */

static bool in_range(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n;
}

int32_t tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.n;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos && t->vocab.bos >= 0;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->vocab.ends[id];
}

struct gguf_string tokenizer_token(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) ? vocab_token(&t->vocab, id) : (struct gguf_string){"", 0};
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) ? (enum token_kind)t->vocab.kind[id] : TOKEN_UNUSED;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t size)
{
    return t->model == MODEL_NONE ? -1 : vocab_find(&t->vocab, text, size);
}

const char *tokenizer_chat_template(const struct tokenizer *t)
{
    return t->chat_template;
}

/* Encoding. */

int encoder_recall(struct encoder *x, size_t begin, size_t end, bool *known, struct cached_word **slot)
{
    size_t size = end - begin;
    *known = false;
    *slot = NULL;
    if (!x->cache || size > CACHE_LONGEST)
        return 0;
    uint64_t hash = hash64(x->text + begin, size);
    struct cached_word *w = *slot = &x->cache[hash & x->cache_mask];
    if (w->hash != hash || w->size != size || memcmp(x->text + w->at, x->text + begin, size)) {
        w->hash = hash;
        w->size = 0;
        return 0;
    }
    *known = true;
    int rc = 0;
    for (uint32_t i = 0; i < w->n_ids && !rc; i++)
        rc = token_list_add(x->out, x->out->ids[w->first_id + i], x->e);
    return rc;
}

void encoder_note(struct encoder *x, struct cached_word *slot, size_t begin, size_t end, size_t first_id)
{
    if (!slot || x->out->n > UINT32_MAX)
        return;
    slot->at = (uint32_t)begin;
    slot->size = (uint32_t)(end - begin);
    slot->first_id = (uint32_t)first_id;
    slot->n_ids = (uint32_t)(x->out->n - first_id);
}

int encoder_bytes(struct encoder *x, const char *data, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        int32_t id = x->t->byte_id[(unsigned char)data[i]];
        if (id < 0 && x->t->model != MODEL_BPE)
            id = x->t->vocab.unknown;
        if (id >= 0)
            rc = token_list_add(x->out, id, x->e);
        else
            x->lost++;
    }
    return rc;
}

static int encode_pieces(struct encoder *x, size_t size, bool special)
{
    const struct tokenizer *t = x->t;
    bool after_added = true; /* the beginning of a text counts as one */
    int rc = 0;
    for (size_t at = 0; at < size && !rc;) {
        size_t begin = size;
        int32_t id = -1;
        int found = added_find(&t->added, &t->vocab, x->text, at, size, special, &begin, &id);
        if (begin > at) {
            rc = t->model == MODEL_SPM ? spm_encode(x, at, begin, t->space_prefix && after_added) : bpe_encode(x, at, begin);
            after_added = false;
        }
        at = begin;
        if (found && !rc) {
            rc = token_list_add(x->out, id, x->e);
            at += vocab_token(&t->vocab, id).size;
            after_added = true;
        }
    }
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, unsigned flags, struct token_list *out,
                     struct hone_error *e)
{
    if (t->model == MODEL_NONE)
        return err_set(e, HONE_EINPUT, "the file has no vocabulary: give token ids instead of text");
    if (size > INT32_MAX / 4)
        return err_set(e, HONE_EINPUT, "a text of %zu bytes is too long: at most %d", size, INT32_MAX / 4);
    struct encoder x = {.t = t, .text = text, .out = out, .e = e};
    size_t before = out->n;
    int rc = 0;
    if (size >= CACHE_MIN_TEXT) {
        uint64_t words = 64;
        while (words < CACHE_MAX_WORDS && words < size / 16)
            words *= 2;
        x.cache = calloc(words, sizeof *x.cache);
        x.cache_mask = words - 1; /* without memory for it there is no cache */
    }
    if ((flags & TOKENIZE_BOS) && tokenizer_add_bos(t))
        rc = token_list_add(out, t->vocab.bos, e);
    if (!rc)
        rc = encode_pieces(&x, size, flags & TOKENIZE_SPECIAL);
    if (rc)
        out->n = before;
    else if (x.lost)
        log_line(LOG_WARN, "the vocabulary has no tokens for %zu bytes of the text; they are left out", x.lost);
    merger_free(&x.merger);
    text_free(&x.word);
    free(x.cache);
    return rc;
}

/* Decoding. */

/* The byte of a token "<0x41>", or -1. */
static int byte_of(struct gguf_string s)
{
    if (s.size != 6 || memcmp(s.data, "<0x", 3) || s.data[5] != '>')
        return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        char c = s.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        byte = byte * 16 + digit;
    }
    return byte;
}

int tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool special, struct text *out, struct hone_error *e)
{
    if (!in_range(t, id))
        return err_set(e, HONE_EINPUT, "token id %d: the vocabulary has %d tokens", id, t->vocab.n);
    struct gguf_string s = vocab_token(&t->vocab, id);
    int byte = byte_of(s);
    char c = (char)byte;
    switch ((enum token_kind)t->vocab.kind[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        return special ? text_append(out, s.data, s.size, e) : 0;
    case TOKEN_USER_DEFINED:
        return text_append(out, s.data, s.size, e);
    case TOKEN_BYTE:
        if (byte >= 0)
            return text_append(out, &c, 1, e);
        break;
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
        break;
    }
    return t->model == MODEL_BPE ? bpe_token_bytes(s, out, e) : spm_token_bytes(s, out, e);
}

static bool is_added(const struct tokenizer *t, int32_t id)
{
    enum token_kind kind = tokenizer_kind(t, id);
    return kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN || kind == TOKEN_USER_DEFINED;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct text *out,
                     struct hone_error *e)
{
    size_t before = out->n;
    bool after_added = true;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        size_t at = out->n;
        rc = tokenizer_token_bytes(t, ids[i], special, out, e);
        if (!rc && after_added && t->space_prefix && !is_added(t, ids[i]) && out->n > at && out->data[at] == ' ') {
            memmove(out->data + at, out->data + at + 1, out->n - at);
            out->n--;
        }
        after_added = is_added(t, ids[i]);
    }
    if (rc && out->data) {
        out->n = before;
        out->data[before] = 0;
    }
    return rc;
}
