/* malformed.h: an assembler of GGUF files that may be wrong in any place, for test_malformed.c.
 *
 * A struct doc is a file before its bytes: header fields, keys with the bytes of their values, tensors with shape, type and
 * offset. doc_model fills it with a tiny model that works (llama, one layer, a SentencePiece vocabulary of 262 tokens); a case
 * then spoils one thing. It shares no code with the writer under model/, which refuses to write most of what is needed here. */
#ifndef TESTS_MALFORMED_H
#define TESTS_MALFORMED_H

#include "base/arena.h"
#include "model/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blob {
    uint8_t *data;
    size_t n, cap;
};

struct doc_key {
    struct gguf_string name;
    uint64_t claims;   /* length that the file states for the name */
    struct blob value; /* type and what follows it */
};

struct doc_tensor {
    struct gguf_string name;
    uint32_t n_dims;
    uint64_t ne[5];
    uint32_t type;
    uint64_t offset; /* UINT64_MAX: behind the one before */
    struct blob data;
};

struct doc {
    struct arena arena;
    char name[64]; /* of the file */
    char magic[5];
    uint32_t version;
    uint64_t n_keys, n_tensors;           /* what is there */
    uint64_t claims_keys, claims_tensors; /* what the header says; UINT64_MAX: the truth */
    size_t keep, cut;                     /* the first so many bytes only; less so many at the end */
    struct doc_key keys[48];
    struct doc_tensor tensors[16];
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void blob_add(struct doc *d, struct blob *b, const void *data, size_t n)
{
    if (n > b->cap - b->n) {
        size_t cap = 2 * (b->n + n) + 64;
        uint8_t *grown = must(arena_alloc(&d->arena, cap));
        if (b->n)
            memcpy(grown, b->data, b->n);
        b->data = grown;
        b->cap = cap;
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void blob_u32(struct doc *d, struct blob *b, uint32_t v)
{
    blob_add(d, b, &v, sizeof v);
}

static void blob_u64(struct doc *d, struct blob *b, uint64_t v)
{
    blob_add(d, b, &v, sizeof v);
}

static void blob_string(struct doc *d, struct blob *b, const char *s, size_t n)
{
    blob_u64(d, b, n);
    blob_add(d, b, s, n);
}

/* The key of a name; made, at the end, if it is not there. */
static struct doc_key *key(struct doc *d, const char *name)
{
    for (uint64_t i = 0; i < d->n_keys; i++)
        if (d->keys[i].name.size == strlen(name) && !memcmp(d->keys[i].name.data, name, strlen(name)))
            return &d->keys[i];
    struct doc_key *k = &d->keys[d->n_keys++];
    *k = (struct doc_key){.name = {name, strlen(name)}, .claims = strlen(name)};
    return k;
}

/* A value of any type with n bytes behind the type. */
static void set(struct doc *d, const char *name, uint32_t type, const void *data, size_t n)
{
    struct doc_key *k = key(d, name);
    k->value.n = 0;
    blob_u32(d, &k->value, type);
    blob_add(d, &k->value, data, n);
}

static void set_u32(struct doc *d, const char *name, uint32_t v)
{
    set(d, name, GGUF_U32, &v, sizeof v);
}

static void set_f32(struct doc *d, const char *name, float v)
{
    set(d, name, GGUF_F32, &v, sizeof v);
}

static void set_string(struct doc *d, const char *name, const char *s)
{
    set(d, name, GGUF_STRING, NULL, 0);
    blob_string(d, &key(d, name)->value, s, strlen(s));
}

/* An array that says it has `claims` items of a type, and n bytes behind that. */
static void set_array(struct doc *d, const char *name, uint32_t element, uint64_t claims, const void *data, size_t n)
{
    set(d, name, GGUF_ARRAY, NULL, 0);
    blob_u32(d, &key(d, name)->value, element);
    blob_u64(d, &key(d, name)->value, claims);
    blob_add(d, &key(d, name)->value, data, n);
}

static void drop(struct doc *d, const char *name)
{
    size_t i = (size_t)(key(d, name) - d->keys);
    memmove(&d->keys[i], &d->keys[i + 1], (--d->n_keys - i) * sizeof *d->keys);
}

static struct doc_tensor *tensor(struct doc *d, const char *name)
{
    for (uint64_t i = 0; i < d->n_tensors; i++)
        if (d->tensors[i].name.size == strlen(name) && !memcmp(d->tensors[i].name.data, name, strlen(name)))
            return &d->tensors[i];
    struct doc_tensor *t = &d->tensors[d->n_tensors++];
    *t = (struct doc_tensor){.name = {name, strlen(name)}, .offset = UINT64_MAX};
    return t;
}

static void drop_tensor(struct doc *d, const char *name)
{
    size_t i = (size_t)(tensor(d, name) - d->tensors);
    memmove(&d->tensors[i], &d->tensors[i + 1], (--d->n_tensors - i) * sizeof *d->tensors);
}

static void add_f32(struct doc *d, const char *name, uint64_t ne0, uint64_t ne1)
{
    struct doc_tensor *t = tensor(d, name);
    t->n_dims = ne1 ? 2 : 1;
    t->ne[0] = ne0;
    t->ne[1] = ne1;
    uint64_t n = ne0 * (ne1 ? ne1 : 1);
    uint32_t state = (uint32_t)d->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        float v = ne1 ? (float)(state >> 8) / (1 << 24) - 0.5f : 1;
        blob_add(d, &t->data, &v, sizeof v);
    }
}

enum { DOC_TOKENS = 262 };

static void doc_vocabulary(struct doc *d)
{
    struct blob tokens = {0}, scores = {0}, kinds = {0};
    static const char *const first[] = {"<unk>", "<s>", "</s>"}, *const last[] = {"\xe2\x96\x81", "x", "\xe2\x96\x81x"};
    for (int i = 0; i < DOC_TOKENS; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned char)(i - 3));
        const char *s = i < 3 ? first[i] : i < 259 ? byte : last[i - 259];
        blob_string(d, &tokens, s, strlen(s));
        float score = i < 259 ? 0 : (float)-i;
        blob_add(d, &scores, &score, sizeof score);
        blob_u32(d, &kinds, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    }
    set_string(d, "tokenizer.ggml.model", "llama");
    set_array(d, "tokenizer.ggml.tokens", GGUF_STRING, DOC_TOKENS, tokens.data, tokens.n);
    set_array(d, "tokenizer.ggml.scores", GGUF_F32, DOC_TOKENS, scores.data, scores.n);
    set_array(d, "tokenizer.ggml.token_type", GGUF_I32, DOC_TOKENS, kinds.data, kinds.n);
    set_u32(d, "tokenizer.ggml.bos_token_id", 1);
    set_u32(d, "tokenizer.ggml.eos_token_id", 2);
    set_u32(d, "tokenizer.ggml.unknown_token_id", 0);
}

/* Nothing but a header. */
static void doc_empty(struct doc *d)
{
    arena_reset(&d->arena);
    *d = (struct doc){.arena = d->arena, .name = "m.gguf", .magic = "GGUF", .version = 3};
    d->claims_keys = d->claims_tensors = UINT64_MAX;
    d->keep = SIZE_MAX;
}

static void doc_model(struct doc *d)
{
    doc_empty(d);
    set_string(d, "general.architecture", "llama");
    set_u32(d, "llama.block_count", 1);
    set_u32(d, "llama.context_length", 64);
    set_u32(d, "llama.embedding_length", 32);
    set_u32(d, "llama.feed_forward_length", 64);
    set_u32(d, "llama.attention.head_count", 2);
    set_u32(d, "llama.attention.head_count_kv", 1);
    set_f32(d, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set_u32(d, "llama.rope.dimension_count", 16);
    set_f32(d, "llama.rope.freq_base", 10000);
    doc_vocabulary(d);
    add_f32(d, "token_embd.weight", 32, DOC_TOKENS);
    add_f32(d, "output_norm.weight", 32, 0);
    add_f32(d, "blk.0.attn_norm.weight", 32, 0);
    add_f32(d, "blk.0.attn_q.weight", 32, 32);
    add_f32(d, "blk.0.attn_k.weight", 32, 16);
    add_f32(d, "blk.0.attn_v.weight", 32, 16);
    add_f32(d, "blk.0.attn_output.weight", 32, 32);
    add_f32(d, "blk.0.ffn_norm.weight", 32, 0);
    add_f32(d, "blk.0.ffn_gate.weight", 32, 64);
    add_f32(d, "blk.0.ffn_up.weight", 32, 64);
    add_f32(d, "blk.0.ffn_down.weight", 64, 32);
}

/* The bytes of the file, in d's arena. */
static struct blob doc_bytes(struct doc *d)
{
    static const uint8_t zeros[32];
    struct blob b = {0};
    uint64_t at = 0;
    blob_add(d, &b, d->magic, 4);
    blob_u32(d, &b, d->version);
    blob_u64(d, &b, d->claims_tensors == UINT64_MAX ? d->n_tensors : d->claims_tensors);
    blob_u64(d, &b, d->claims_keys == UINT64_MAX ? d->n_keys : d->claims_keys);
    for (uint64_t i = 0; i < d->n_keys; i++) {
        blob_u64(d, &b, d->keys[i].claims);
        blob_add(d, &b, d->keys[i].name.data, d->keys[i].name.size);
        blob_add(d, &b, d->keys[i].value.data, d->keys[i].value.n);
    }
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        const struct doc_tensor *t = &d->tensors[i];
        blob_string(d, &b, t->name.data, t->name.size);
        blob_u32(d, &b, t->n_dims);
        for (uint32_t k = 0; k < t->n_dims && k < 5; k++)
            blob_u64(d, &b, t->ne[k]);
        blob_u32(d, &b, t->type);
        blob_u64(d, &b, t->offset == UINT64_MAX ? at : t->offset);
        at += (t->data.n + 31) / 32 * 32;
    }
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        blob_add(d, &b, zeros, -b.n & 31);
        blob_add(d, &b, d->tensors[i].data.data, d->tensors[i].data.n);
    }
    b.n = b.n < d->keep ? b.n : d->keep;
    if (d->cut > b.n)
        abort();
    b.n -= d->cut;
    return b;
}

#endif
