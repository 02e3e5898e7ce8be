/* tokenizer_bpe.c: byte-pair encoding: the pre-tokenizer's words, each merged by a table from pairs of ids to (rank, id).
 *
 * GPT-2's vocabularies spell a byte as one printable character (Radford et al. 2019: printable ones as themselves, the others
 * as U+0100 and up). Only texts of the vocabulary are in that spelling; hone's words stay bytes, a byte's token comes from a
 * table of 256, and from then on ids are merged, not strings. A merge whose parts or result are no tokens can never end in a
 * token, so it is dropped (and counted in the log); so is one that would make a control token out of plain text.
 *
 * The table is open addressing, half full at most. Ids that a file chose to collide could make building it quadratic, hence
 * LONGEST_PROBE.
 *
 * Gemma 4's model ("gemma4") is the same merging over characters, with SentencePiece's U+2581 for spaces and <0x00> byte
 * tokens. */
#include "base/hash.h"
#include "base/log.h"
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

#include <string.h>

#define MERGE_FREE UINT64_MAX
enum { LONGEST_PROBE = 512, LONGEST_WHOLE_WORD = 256 };

/* The character that spells a byte. */
static unsigned byte_character(unsigned byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return byte;
    /* The 68 others in their order: 0 to 32, 127 to 160, 173. */
    return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

/* UTF-8 of a character below U+0800. Returns its size. */
static size_t put_character(char *out, unsigned c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* The byte that a character spells, or -1. */
static int character_byte(unsigned c)
{
    if (c >= 256 && c < 324)
        return (int)(c <= 288 ? c - 256 : c < 323 ? c - 256 - 33 + 127 : 173);
    return c < 256 && byte_character(c) == c ? (int)c : -1;
}

int bpe_token_bytes(struct gguf_string token, struct text *out, struct hone_error *e)
{
    int rc = 0;
    for (size_t i = 0, step; i < token.size && !rc; i += step) {
        const unsigned char *u = (const unsigned char *)token.data + i;
        step = utf8_step(token.data + i, token.size - i);
        int byte = step == 1 && u[0] < 0x80 ? character_byte(u[0])
                   : step == 2              ? character_byte((u[0] & 0x1fu) << 6 | (u[1] & 0x3f))
                                            : -1;
        char c = (char)byte;
        rc = byte >= 0 ? text_append(out, &c, 1, e) : text_append(out, u, step, e);
    }
    return rc;
}

static uint64_t pair_hash(uint64_t pair)
{
    pair ^= pair >> 32;
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 29;
}

/* The slot of a pair or the free one where it would go; NULL after too long a probe. */
static struct merge *merge_probe(const struct tokenizer *t, uint64_t pair)
{
    uint64_t h = pair_hash(pair);
    for (uint64_t i = 0; i < LONGEST_PROBE; i++) {
        struct merge *m = &t->merges[(h + i) & t->merges_mask];
        if (m->pair == pair || m->pair == MERGE_FREE)
            return m;
    }
    return NULL;
}

/* The ids of a merge "left right" and of what they make. False when one of them is no token that text can become. */
static bool merge_ids(const struct vocab *v, const char *left, size_t left_size, const char *right, size_t right_size,
                      char *room, uint64_t *pair, int32_t *id)
{
    if (left_size + right_size > v->longest)
        return false;
    int32_t l = vocab_find(v, left, left_size), r = vocab_find(v, right, right_size);
    if (l < 0 || r < 0)
        return false;
    memcpy(room, left, left_size);
    memcpy(room + left_size, right, right_size);
    *id = vocab_find(v, room, left_size + right_size);
    *pair = (uint64_t)l << 32 | (uint32_t)r;
    return *id >= 0 && vocab_is_spelled(v, *id);
}

static int read_merges(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_value *merges = gguf_find(g, key);
    if (!merges)
        return err_set(e, HONE_EINPUT, "%s: %s is missing", g->path, key);
    if (merges->type != GGUF_ARRAY || merges->element != GGUF_STRING)
        return err_set(e, HONE_EINPUT, "%s: %s is not an array of strings", g->path, key);
    if (merges->n > INT32_MAX / 4)
        return err_set(e, HONE_EINPUT, "%s: %s has %llu items", g->path, key, (unsigned long long)merges->n);
    uint64_t slots = 16, dropped = 0;
    while (slots < merges->n + merges->n / 2)
        slots *= 2;
    t->merges = arena_array(&t->arena, slots, sizeof *t->merges);
    char *room = arena_alloc(&t->arena, t->vocab.longest);
    if (!t->merges || !room)
        return err_set(e, HONE_ERESOURCE, "out of memory for %llu merges", (unsigned long long)merges->n);
    t->merges_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++)
        t->merges[i].pair = MERGE_FREE;
    for (uint64_t i = 0; i < merges->n; i++) {
        const char *s = merges->strings[i].data;
        size_t size = merges->strings[i].size;
        /* From the second byte on: the left part may be a space itself. */
        const char *space = size > 2 ? memchr(s + 1, ' ', size - 2) : NULL;
        if (!space)
            return err_set(e, HONE_EINPUT, "%s: %s: item %llu is not two tokens with a space between them", g->path, key,
                           (unsigned long long)i);
        uint64_t pair;
        int32_t id;
        size_t left = (size_t)(space - s);
        if (!merge_ids(&t->vocab, s, left, space + 1, size - left - 1, room, &pair, &id)) {
            dropped++;
            continue;
        }
        struct merge *m = merge_probe(t, pair);
        if (!m)
            return err_set(e, HONE_EINPUT, "%s: %s: pairs made to collide, at item %llu", g->path, key, (unsigned long long)i);
        if (m->pair == MERGE_FREE) /* of two that are alike the first counts */
            *m = (struct merge){pair, (uint32_t)i, id};
    }
    if (dropped)
        log_line(LOG_WARN, "%s: %llu of %llu merges name texts that are no tokens; they are ignored", g->path,
                 (unsigned long long)dropped, (unsigned long long)merges->n);
    return 0;
}

static int open_pretokenizer(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    const char *key = "tokenizer.ggml.pre";
    struct gguf_string name = {"default", 7};
    if (t->model == MODEL_BPE_SP) {
        name = (struct gguf_string){"gemma4", 6};
    } else {
        if (!gguf_find(g, key))
            log_line(LOG_WARN,
                     "%s: %s is missing: the pre-tokenizer \"default\" is assumed, and where that is wrong the model reads "
                     "broken words",
                     g->path, key);
        int rc = gguf_get_string(g, key, false, &name, e);
        if (rc)
            return rc;
    }
    int rc = pretokenizer_open(&t->pre, name.data, name.size, e);
    return rc ? err_prefix(e, "%s: %s", g->path, key) : 0;
}

int bpe_open(struct tokenizer *t, const struct gguf *g, struct hone_error *e)
{
    int rc = open_pretokenizer(t, g, e);
    if (!rc)
        rc = read_merges(t, g, e);
    if (rc)
        return rc;
    t->add_bos = pretokenizer_adds_bos(t->pre) || t->model == MODEL_BPE_SP;
    if (t->model == MODEL_BPE_SP) {
        byte_tokens_find(t);
        return 0;
    }
    for (unsigned b = 0; b < 256; b++) {
        char s[2];
        t->byte_id[b] = vocab_find(&t->vocab, s, put_character(s, byte_character(b)));
    }
    return 0;
}

static void join_pair(const void *context, struct symbol *left, const struct symbol *right)
{
    if (left->id < 0 || right->id < 0)
        return;
    const struct merge *m = merge_probe(context, (uint64_t)left->id << 32 | (uint32_t)right->id);
    if (m && m->pair != MERGE_FREE) {
        left->rank = m->rank;
        left->joined = m->id;
    }
}

/* The token that a whole word is, where the pre-tokenizer says that this needs no merging; else -1. */
static int32_t whole_word(const struct encoder *x, const char *word, size_t size)
{
    const struct vocab *v = &x->t->vocab;
    int32_t id = -1;
    if (x->t->model == MODEL_BPE_SP) {
        if (word[0] == '\n')
            id = vocab_find(v, word, size);
    } else if (pretokenizer_ignores_merges(x->t->pre) && size <= LONGEST_WHOLE_WORD) {
        char spelled[2 * LONGEST_WHOLE_WORD];
        size_t n = 0;
        for (size_t i = 0; i < size; i++)
            n += put_character(spelled + n, byte_character((unsigned char)word[i]));
        id = vocab_find(v, spelled, n);
    }
    return id >= 0 && vocab_is_spelled(v, id) ? id : -1;
}

static void add_symbols(struct encoder *x, const char *word, size_t size)
{
    const struct tokenizer *t = x->t;
    for (size_t i = 0, step; i < size; i += step) {
        step = t->model == MODEL_BPE ? 1 : utf8_step(word + i, size - i);
        int32_t id = t->byte_id[(unsigned char)word[i]];
        if (t->model == MODEL_BPE_SP) {
            id = word[i] == ' ' ? vocab_find(&t->vocab, "\xe2\x96\x81", 3) : vocab_find(&t->vocab, word + i, step);
            id = id >= 0 && vocab_is_spelled(&t->vocab, id) ? id : -1;
        }
        merger_add(&x->merger, id, i, step);
    }
}

static int merge_word(struct encoder *x, const char *word, size_t size)
{
    int32_t id = whole_word(x, word, size);
    if (id >= 0)
        return token_list_add(x->out, id, x->e);
    struct merger *m = &x->merger;
    int rc = merger_reset(m, size, x->e);
    if (rc)
        return rc;
    add_symbols(x, word, size);
    merger_run(m, join_pair, x->t);
    for (int32_t i = 0; i >= 0 && !rc; i = m->symbols[i].next) {
        const struct symbol *s = &m->symbols[i];
        rc = s->id >= 0 ? token_list_add(x->out, s->id, x->e) : encoder_bytes(x, word + s->at, s->size);
    }
    return rc;
}

static int encode_word(void *context, size_t begin, size_t end)
{
    struct encoder *x = context;
    struct cached_word *slot;
    bool known;
    begin += x->at;
    end += x->at;
    int rc = encoder_recall(x, begin, end, &known, &slot);
    if (rc || known)
        return rc;
    size_t first_id = x->out->n;
    rc = merge_word(x, x->text + begin, end - begin);
    if (!rc)
        encoder_note(x, slot, begin, end, first_id);
    return rc;
}

int bpe_encode(struct encoder *x, size_t begin, size_t end)
{
    x->at = begin;
    return pretokenizer_split(x->t->pre, x->text + begin, end - begin, encode_word, x, x->e);
}
