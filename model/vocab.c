/* vocab.c: reads a vocabulary out of a GGUF file and finds tokens by their text.
 *
 * The index is open addressing over 64-bit hashes, half full at most; a slot holds an id and half of the hash, so a miss seldom
 * touches a text. Two tokens of one text are an error (which id would be meant?), but empty texts are not indexed: files have
 * several. Texts made to collide would make insertion quadratic, so a probe of more than LONGEST_PROBE slots is an error too
 * (honest vocabularies of 262144 tokens stay below 64).
 *
 * Markers that end a turn count as control tokens whatever the file says, so that a user's text cannot end one: files exist
 * that list <|im_end|> as user-defined. Those that are ordinary words elsewhere ("</s>" is strike-through in Gemma's
 * vocabulary) do so only where the file itself makes them control tokens. */
#include "model/vocab.h"

#include "base/half.h"
#include "base/hash.h"
#include "base/log.h"

#include <string.h>

enum { LONGEST_PROBE = 512 };

static const struct end_marker {
    const char *text;
    bool always; /* a marker in every vocabulary that has it */
} end_markers[] = {
    {"<|im_end|>", true},
    {"<|eot_id|>", true},
    {"<|eom_id|>", true},
    {"<end_of_turn>", true},
    {"<turn|>", true},
    {"<|end|>", true},
    {"<|return|>", true},
    {"<|call|>", true},
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"<end_of_utterance>", true},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true},
    {"<EOT>", false},
    {"[EOT]", false},
    {"[EOS]", false},
    {"</s>", false},
    {"<eos>", false},
    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},
    {"<|file_sep|>", false},
};

/* The slot of a text or the free one where it would go; NULL after too long a probe. */
static struct vocab_slot *vocab_probe(const struct vocab *v, const char *text, size_t size, uint64_t h)
{
    for (uint32_t i = 0; i < LONGEST_PROBE; i++) {
        struct vocab_slot *s = &v->slots[((uint32_t)h + i) & v->mask];
        if (s->id < 0)
            return s;
        if (s->tag != (uint32_t)(h >> 32))
            continue;
        struct gguf_string other = vocab_token(v, s->id);
        if (other.size == size && !memcmp(other.data, text, size))
            return s;
    }
    return NULL;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t size)
{
    if (size == 0 || size > v->longest)
        return -1;
    struct vocab_slot *s = vocab_probe(v, text, size, hash64(text, size));
    return s ? s->id : -1;
}

/* An array key of n items that are integers, or (floats) f32s: NULL and 0 when it is absent. */
static int array_of(const struct gguf *g, const char *key, bool floats, int64_t n, const struct gguf_value **out,
                    struct hone_error *e)
{
    const struct gguf_value *v = *out = gguf_find(g, key);
    if (!v)
        return 0;
    bool fits = v->type == GGUF_ARRAY && (floats ? v->element == GGUF_F32 : gguf_is_integer(v->element));
    if (!fits)
        return err_set(e, HONE_EINPUT, "%s: %s is not an array of %s", g->path, key, floats ? "f32" : "integers");
    if (v->n != (uint64_t)n)
        return err_set(e, HONE_EINPUT, "%s: %s has %llu items for %lld tokens", g->path, key, (unsigned long long)v->n,
                       (long long)n);
    return 0;
}

static int read_texts(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_value *tokens = gguf_find(g, key);
    if (!tokens)
        return err_set(e, HONE_EINPUT, "%s: %s is missing", g->path, key);
    if (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING)
        return err_set(e, HONE_EINPUT, "%s: %s is not an array of strings", g->path, key);
    if (tokens->n < 1 || tokens->n > INT32_MAX / 4)
        return err_set(e, HONE_EINPUT, "%s: %s has %llu tokens", g->path, key, (unsigned long long)tokens->n);
    v->n = (int32_t)tokens->n;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < v->n; i++)
        bytes += tokens->strings[i].size;
    if (bytes > INT32_MAX)
        return err_set(e, HONE_EINPUT, "%s: the texts of %s are %llu bytes long", g->path, key, (unsigned long long)bytes);
    v->text = arena_alloc(a, bytes);
    v->start = arena_array(a, (size_t)v->n + 1, sizeof *v->start);
    if (!v->text || !v->start)
        return err_set(e, HONE_ERESOURCE, "out of memory for %d tokens", v->n);
    uint32_t at = 0;
    for (int32_t i = 0; i < v->n; i++) {
        size_t size = tokens->strings[i].size;
        memcpy(v->text + at, tokens->strings[i].data, size);
        v->start[i] = at;
        at += (uint32_t)size;
        if (size > v->longest)
            v->longest = size;
    }
    v->start[v->n] = at;
    return 0;
}

static int build_index(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e)
{
    uint32_t slots = 16;
    while (slots < (uint32_t)v->n * 2)
        slots *= 2;
    v->slots = arena_array(a, slots, sizeof *v->slots);
    if (!v->slots)
        return err_set(e, HONE_ERESOURCE, "out of memory for an index of %d tokens", v->n);
    memset(v->slots, 0xff, slots * sizeof *v->slots);
    v->mask = slots - 1;
    for (int32_t i = 0; i < v->n; i++) {
        struct gguf_string s = vocab_token(v, i);
        if (!s.size)
            continue;
        uint64_t h = hash64(s.data, s.size);
        struct vocab_slot *slot = vocab_probe(v, s.data, s.size, h);
        if (!slot)
            return err_set(e, HONE_EINPUT, "%s: tokenizer.ggml.tokens: texts made to collide, at token %d", g->path, i);
        if (slot->id >= 0)
            return err_set(e, HONE_EINPUT, "%s: tokenizer.ggml.tokens: tokens %d and %d have the same text", g->path, slot->id,
                           i);
        *slot = (struct vocab_slot){.id = i, .tag = (uint32_t)(h >> 32)};
    }
    return 0;
}

static int read_kinds(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_value *kinds;
    int rc = array_of(g, key, false, v->n, &kinds, e);
    if (rc)
        return rc;
    v->kind = arena_array(a, (size_t)v->n, 1);
    v->ends = arena_array(a, (size_t)v->n, 1);
    if (!v->kind || !v->ends)
        return err_set(e, HONE_ERESOURCE, "out of memory for %d tokens", v->n);
    for (int32_t i = 0; i < v->n; i++) {
        int64_t kind = kinds ? gguf_integer(kinds, (uint64_t)i) : TOKEN_NORMAL;
        if (kind < 0 || kind > TOKEN_BYTE)
            return err_set(e, HONE_EINPUT, "%s: %s: token %d is of the unknown type %lld", g->path, key, i, (long long)kind);
        v->kind[i] = kind ? (uint8_t)kind : TOKEN_NORMAL;
    }
    return 0;
}

/* A float as an integer that is the smaller the larger the float is; NaN comes last, and no result is UINT32_MAX. */
static uint32_t falling_order(float score)
{
    if (score != score)
        return UINT32_MAX - 1;
    uint32_t bits = bits_from_f32(score + 0.0f); /* -0 becomes +0 */
    return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}

static int read_scores(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e)
{
    const struct gguf_value *scores;
    int rc = array_of(g, "tokenizer.ggml.scores", true, v->n, &scores, e);
    if (rc || !scores)
        return rc;
    v->order = arena_array(a, (size_t)v->n, sizeof *v->order);
    if (!v->order)
        return err_set(e, HONE_ERESOURCE, "out of memory for %d scores", v->n);
    for (int32_t i = 0; i < v->n; i++)
        v->order[i] = falling_order((float)gguf_number(scores, (uint64_t)i));
    return 0;
}

/* tokenizer.ggml.<name>_token_id, or -1. An id that no token has is warned of and ignored: real files have them. */
static int special_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id, struct hone_error *e)
{
    *id = -1;
    const struct gguf_value *value = gguf_find(g, key);
    if (!value)
        return 0;
    if (!gguf_is_integer(value->type))
        return err_set(e, HONE_EINPUT, "%s: %s is not an integer", g->path, key);
    int64_t n = gguf_integer(value, 0);
    if (n >= 0 && n < v->n)
        *id = (int32_t)n;
    else
        log_line(LOG_WARN, "%s: %s is %lld, but there are %d tokens: ignored", g->path, key, (long long)n, v->n);
    return 0;
}

static void mark_end(struct vocab *v, int32_t id)
{
    if (id >= 0)
        v->ends[id] = 1;
}

static int read_specials(struct vocab *v, const struct gguf *g, struct hone_error *e)
{
    int32_t eot, eom;
    int rc;
    if ((rc = special_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, e)) ||
        (rc = special_id(v, g, "tokenizer.ggml.eos_token_id", &v->eos, e)) ||
        (rc = special_id(v, g, "tokenizer.ggml.unknown_token_id", &v->unknown, e)) ||
        (rc = special_id(v, g, "tokenizer.ggml.eot_token_id", &eot, e)) ||
        (rc = special_id(v, g, "tokenizer.ggml.eom_token_id", &eom, e)))
        return rc;
    for (size_t i = 0; i < sizeof end_markers / sizeof *end_markers; i++) {
        int32_t id = vocab_find(v, end_markers[i].text, strlen(end_markers[i].text));
        if (id < 0 || (!end_markers[i].always && v->kind[id] != TOKEN_CONTROL))
            continue;
        v->kind[id] = TOKEN_CONTROL;
        v->ends[id] = 1;
    }
    /* In the Harmony format "<|end|>" closes one message of a turn, "<|return|>" the turn. */
    int32_t end = vocab_find(v, "<|end|>", 7);
    if (end >= 0 && vocab_find(v, "<|return|>", 10) >= 0)
        v->ends[end] = 0;
    mark_end(v, v->eos);
    mark_end(v, eot);
    mark_end(v, eom);
    return 0;
}

int vocab_read(struct vocab *v, struct arena *a, const struct gguf *g, struct hone_error *e)
{
    int rc;
    *v = (struct vocab){0};
    if ((rc = read_texts(v, a, g, e)) || (rc = build_index(v, a, g, e)) || (rc = read_kinds(v, a, g, e)) ||
        (rc = read_scores(v, a, g, e)))
        return rc;
    return read_specials(v, g, e);
}
