/* tokenizer_spm.c: SentencePiece's BPE (Kudo and Richardson 2018; the "llama" model of GGUF): neighbours whose joined text is a
 * token join, the best score first. Spaces are U+2581; characters that are no token fall back to byte tokens.
 *
 * SentencePiece merges the whole text as one word, so its heap and list grow with the text and miss every cache. But a merge
 * can only reach across a place if some token does, and almost no token has a U+2581 behind another character (Gemma's 262144
 * have one:
 * ">", U+2581, "</"). So the text is cut before each U+2581, unless the byte before it is the last of a character that some
 * token has there. That is exact, and it makes the words short and repeated, so most come from the cache of words.
 *
 * Tokens are looked up by text, two look-ups a merge. A table of pairs of ids as BPE has it would have to be made at load from
 * all ways to cut 262144 tokens in two: 1.5 million look-ups, against which the merging of a prompt is nothing. */
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

#include <string.h>

static const char space_mark[] = "\xe2\x96\x81";
enum { SPACE_MARK = 3 };

static bool is_space_mark(const char *s, size_t n)
{
    return n >= SPACE_MARK && !memcmp(s, space_mark, SPACE_MARK);
}

/* Marks the bytes that some token has right before a U+2581. */
static void find_cuts(struct tokenizer *t)
{
    memset(t->cuts, true, sizeof t->cuts);
    for (int32_t id = 0; id < t->vocab.n; id++) {
        if (!vocab_is_spelled(&t->vocab, id))
            continue;
        struct gguf_string s = vocab_token(&t->vocab, id);
        for (size_t i = 1; i + SPACE_MARK <= s.size; i++)
            if (is_space_mark(s.data + i, s.size - i) &&
                !(i >= SPACE_MARK && is_space_mark(s.data + i - SPACE_MARK, SPACE_MARK)))
                t->cuts[(unsigned char)s.data[i - 1]] = false;
    }
}

int spm_open(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    if (!t->vocab.order)
        return err_set(e, HONE_EINPUT, "%s: tokenizer.ggml.scores is missing", g->path);
    struct vocab *v = &t->vocab;
    /* Files from before these keys mean the texts that SentencePiece gives them. */
    int32_t bos = vocab_find(v, "<s>", 3), eos = vocab_find(v, "</s>", 4);
    if (!gguf_find(g, "tokenizer.ggml.bos_token_id") && bos >= 0 && v->kind[bos] == TOKEN_CONTROL)
        v->bos = bos;
    if (!gguf_find(g, "tokenizer.ggml.eos_token_id") && eos >= 0 && v->kind[eos] == TOKEN_CONTROL) {
        v->eos = eos;
        v->ends[eos] = 1;
    }
    if (v->unknown < 0) {
        int32_t unknown = vocab_find(v, "<unk>", 5);
        v->unknown = unknown >= 0 && v->kind[unknown] == TOKEN_UNKNOWN ? unknown : -1;
    }
    t->add_bos = true;
    t->space_prefix = true;
    byte_tokens_find(t);
    find_cuts(t);
    return 0;
}

int spm_token_bytes(struct gguf_string token, struct text *out, struct hone_error *e)
{
    int rc = 0;
    size_t from = 0;
    for (size_t i = 0; i < token.size && !rc;) {
        if (!is_space_mark(token.data + i, token.size - i)) {
            i++;
            continue;
        }
        rc = text_append(out, token.data + from, i - from, e);
        if (!rc)
            rc = text_append(out, " ", 1, e);
        from = i += SPACE_MARK;
    }
    return rc ? rc : text_append(out, token.data + from, token.size - from, e);
}

static void join_texts(const void *context, struct symbol *left, const struct symbol *right)
{
    const struct encoder *x = context;
    const struct vocab *v = &x->t->vocab;
    int32_t id = vocab_find(v, x->word.data + left->at, (size_t)left->size + right->size);
    if (id >= 0 && vocab_is_spelled(v, id)) {
        left->rank = v->order[id];
        left->joined = id;
    }
}

/* The word as the vocabulary spells it, into x->word, and its characters as symbols. */
static int spell(struct encoder *x, const char *word, size_t size, bool prefix)
{
    x->word.n = 0;
    int rc = merger_reset(&x->merger, size + 1, x->e);
    if (!rc && prefix) {
        merger_add(&x->merger, -1, 0, SPACE_MARK);
        rc = text_append(&x->word, space_mark, SPACE_MARK, x->e);
    }
    for (size_t i = 0, step; i < size && !rc; i += step) {
        step = utf8_step(word + i, size - i);
        bool space = word[i] == ' ';
        merger_add(&x->merger, -1, x->word.n, space ? SPACE_MARK : step);
        rc = space ? text_append(&x->word, space_mark, SPACE_MARK, x->e) : text_append(&x->word, word + i, step, x->e);
    }
    return rc;
}

static int merge_word(struct encoder *x, const char *word, size_t size, bool prefix)
{
    int rc = spell(x, word, size, prefix);
    if (rc)
        return rc;
    struct merger *m = &x->merger;
    const struct vocab *v = &x->t->vocab;
    merger_run(m, join_texts, x);
    for (int32_t i = 0; i >= 0 && !rc; i = m->symbols[i].next) {
        const char *s = x->word.data + m->symbols[i].at;
        size_t n = m->symbols[i].size;
        int32_t id = m->symbols[i].id >= 0 ? m->symbols[i].id : vocab_find(v, s, n);
        rc = id >= 0 && vocab_is_spelled(v, id) ? token_list_add(x->out, id, x->e) : encoder_bytes(x, s, n);
    }
    return rc;
}

/* Where the word that begins at `begin` ends: before the next space that no token can span. */
static size_t word_end(const struct encoder *x, size_t begin, size_t end)
{
    const char *s = x->text;
    for (size_t i = begin + 1; i < end; i++) {
        bool space = s[i] == ' ' || is_space_mark(s + i, end - i);
        if (!space || !x->t->cuts[(unsigned char)s[i - 1]])
            continue;
        bool after_space = s[i - 1] == ' ' || (i - begin >= SPACE_MARK && is_space_mark(s + i - SPACE_MARK, SPACE_MARK));
        if (!after_space)
            return i;
    }
    return end;
}

int spm_encode(struct encoder *x, size_t begin, size_t end, bool prefix)
{
    int rc = 0;
    for (size_t at = begin, to; at < end && !rc; at = to) {
        to = word_end(x, at, end);
        bool with_prefix = prefix && at == begin, known = false;
        struct cached_word *slot = NULL;
        if (!with_prefix)
            rc = encoder_recall(x, at, to, &known, &slot);
        size_t first_id = x->out->n;
        if (!rc && !known)
            rc = merge_word(x, x->text + at, to - at, with_prefix);
        if (!rc && !known)
            encoder_note(x, slot, at, to, first_id);
    }
    return rc;
}
