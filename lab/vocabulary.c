/* vocabulary.c: tokenizers compared key by key as the files have them, not by what hone makes of them: a key that hone does not
 * read yet (a newer pre-tokenizer's option, say) is a difference all the same. Only the chat template is left out: it shapes
 * prompts before they are tokenized, and files of one model are often published with a corrected one.
 *
 * The probe text comes last and sees what keys cannot show: that the same keys give the same ids. Comparing hashes alone was
 * the alternative; it says that something is different and leaves the finding to whoever reads it. */
#include "lab/vocabulary.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "tokenizer.", chat_template[] = "tokenizer.chat_template";

static const char probe[] = "The quick brown fox can't jump 12345 times,  or 3.14!\n\n\tif (x != 0) { y += \"z\"; }\n"
                            "Gr\xc3\xbc\xc3\x9f"
                            "e, \xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xe4\xbd\xa0\xe5\xa5\xbd, "
                            "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xf0\x9f\x98\x80 don't DON'T I'll    end<|im_end|></s>";

static bool begins(struct gguf_string s, const char *word)
{
    return s.size >= strlen(word) && !memcmp(s.data, word, strlen(word));
}

/* Of no consequence for what a text becomes, and often added or left out by whoever converts a model. */
static bool is_minor(const struct gguf_value *v)
{
    static const char *const names[] = {"padding_token_id", "seperator_token_id", "separator_token_id",
                                        "mask_token_id",    "cls_token_id",       "fim_",
                                        "prefix_token_id",  "suffix_token_id",    "middle_token_id"};
    if (!begins(v->key, "tokenizer.ggml."))
        return true;
    struct gguf_string rest = {v->key.data + 15, v->key.size - 15};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (begins(rest, names[i]))
            return true;
    return false;
}

static bool concerns(const struct gguf_value *v)
{
    return begins(v->key, prefix) && !begins(v->key, chat_template);
}

static bool is_string(const struct gguf_value *v)
{
    return v->type == GGUF_STRING || (v->type == GGUF_ARRAY && v->element == GGUF_STRING);
}

static size_t item_bytes(const struct gguf_value *v)
{
    return gguf_type_bytes(v->type == GGUF_ARRAY ? v->element : v->type);
}

static uint64_t value_hash(const struct gguf_value *v)
{
    uint64_t h[3] = {hash64(v->key.data, v->key.size), v->n, 0};
    if (!is_string(v))
        h[2] = hash64(v->data, item_bytes(v) * v->n);
    for (uint64_t i = 0; is_string(v) && i < v->n; i++)
        h[2] = h[2] * 0x9e3779b97f4a7c15u + hash64(v->strings[i].data, v->strings[i].size);
    return hash64(h, sizeof h);
}

uint64_t vocabulary_hash(const struct gguf *g)
{
    uint64_t sum = 0; /* in any order of the keys */
    for (int64_t i = 0; i < g->n_values; i++)
        if (concerns(&g->values[i]) && !is_minor(&g->values[i]))
            sum += value_hash(&g->values[i]);
    return sum;
}

static bool item_equal(const struct gguf_value *a, const struct gguf_value *b, uint64_t i)
{
    if (is_string(a))
        return a->strings[i].size == b->strings[i].size && !memcmp(a->strings[i].data, b->strings[i].data, a->strings[i].size);
    size_t n = item_bytes(a);
    return !memcmp((const char *)a->data + i * n, (const char *)b->data + i * n, n);
}

/* As a sentence can hold it: 40 bytes at most, whole characters, no control bytes. */
static void item_text(const struct gguf_value *v, uint64_t i, char *text, size_t size)
{
    if (!is_string(v)) {
        snprintf(text, size, "%.9g", gguf_number(v, i));
        return;
    }
    size_t n = v->strings[i].size < 40 ? v->strings[i].size : 40, at = 0;
    n = v->strings[i].size > n ? utf8_complete(v->strings[i].data, n) : n;
    text[at++] = '\'';
    for (size_t j = 0; j < n && at + 8 < size; j++) {
        unsigned char c = (unsigned char)v->strings[i].data[j];
        at += (size_t)snprintf(text + at, size - at, c < 0x20 || c == 0x7f ? "\\x%02x" : "%c", c);
    }
    snprintf(text + at, size - at, v->strings[i].size > n ? "...'" : "'");
}

/* A sentence; one that is no UTF-8 (a byte-level token) loses what is none. */
static void say(json_t *list, char *text)
{
    json_t *s = json_string(text);
    for (char *p = text; !s && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json_array_append_new(list, s ? s : json_string(text));
}

static void compare_value(json_t *list, const char *key, const struct gguf_value *a, const struct gguf_value *b)
{
    char text[400], x[120], y[120];
    if (!a || !b) {
        snprintf(text, sizeof text, "%s: only %s has it", key, a ? "A" : "B");
        say(list, text);
        return;
    }
    if (is_string(a) != is_string(b) || (!is_string(a) && item_bytes(a) != item_bytes(b))) {
        snprintf(text, sizeof text, "%s: %s in A, %s in B", key, gguf_type_name(a->type), gguf_type_name(b->type));
        say(list, text);
        return;
    }
    uint64_t n = a->n < b->n ? a->n : b->n, differ = 0, first = 0;
    for (uint64_t i = 0; i < n; i++)
        if (!item_equal(a, b, i)) {
            first = differ ? first : i;
            differ++;
        }
    if (a->n != b->n) {
        snprintf(text, sizeof text, "%s: %llu items in A, %llu in B", key, (unsigned long long)a->n, (unsigned long long)b->n);
        say(list, text);
    }
    if (!differ)
        return;
    item_text(a, first, x, sizeof x);
    item_text(b, first, y, sizeof y);
    if (a->type == GGUF_ARRAY)
        snprintf(text, sizeof text, "%s: %llu of %llu differ, the first is number %llu: %s in A, %s in B", key,
                 (unsigned long long)differ, (unsigned long long)n, (unsigned long long)first, x, y);
    else
        snprintf(text, sizeof text, "%s: %s in A, %s in B", key, x, y);
    say(list, text);
}

static int probe_ids(const struct gguf *g, struct token_list *ids, struct hone_error *e)
{
    struct tokenizer *t;
    int rc = tokenizer_open(&t, g, e);
    if (!rc && tokenizer_size(t))
        rc = tokenizer_encode(t, probe, strlen(probe), TOKENIZE_BOS | TOKENIZE_SPECIAL, ids, e);
    if (!rc)
        tokenizer_close(t);
    return rc;
}

static void compare_probe(json_t *list, const struct gguf *a, const struct gguf *b)
{
    struct token_list x = {0}, y = {0};
    struct hone_error e = {0}, f = {0};
    char text[700];
    int rc_a = probe_ids(a, &x, &e), rc_b = probe_ids(b, &y, &f);
    size_t i = 0;
    while (i < x.n && i < y.n && x.ids[i] == y.ids[i])
        i++;
    if (rc_a || rc_b) {
        snprintf(text, sizeof text, "the tokenizer of %s cannot be used: %.400s", rc_a ? "A" : "B",
                 rc_a ? e.message : f.message);
        say(list, text);
    } else if (x.n != y.n || i < x.n) {
        snprintf(text, sizeof text,
                 "a probe text gives %zu ids in A and %zu in B; the first to differ is number %zu: %d in A, %d in B", x.n, y.n,
                 i, i < x.n ? x.ids[i] : -1, i < y.n ? y.ids[i] : -1);
        say(list, text);
    }
    token_list_free(&x);
    token_list_free(&y);
}

/* A's keys, then those that only B has; those that matter or those that do not. */
static void compare_keys(json_t *list, const struct gguf *a, const struct gguf *b, bool minor)
{
    for (int pass = 0; pass < 2; pass++) {
        const struct gguf *own = pass ? b : a, *other = pass ? a : b;
        for (int64_t i = 0; i < own->n_values; i++) {
            const struct gguf_value *v = &own->values[i];
            char key[256];
            if (!concerns(v) || is_minor(v) != minor || v->key.size >= sizeof key)
                continue;
            memcpy(key, v->key.data, v->key.size);
            key[v->key.size] = 0;
            const struct gguf_value *w = gguf_find(other, key);
            if (!pass)
                compare_value(list, key, v, w);
            else if (!w)
                compare_value(list, key, NULL, v);
        }
    }
}

json_t *vocabulary_differences(const struct gguf *a, const struct gguf *b, json_t **minor)
{
    json_t *list = json_array();
    if (minor)
        *minor = json_array();
    if (!list || (minor && !*minor))
        return list;
    compare_keys(list, a, b, false);
    compare_probe(list, a, b);
    if (minor)
        compare_keys(*minor, a, b, true);
    return list;
}
