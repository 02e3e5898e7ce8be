/* gguf.c: reads one GGUF file (ggml's docs/gguf.md): header, values, tensor table, where the data lies.
 *
 * One cursor walks the mapped bytes. Nothing is believed before it is checked: a count is compared with the bytes that remain
 * at the smallest size an item can have, a length with the bytes themselves, products with overflow checks; so memory stays
 * within a small multiple of the file's size. Strings and data are never copied (only tensor names, for their NUL): a table of
 * 150000 tokens costs one walk to prove it and one to note where each lies. Growing an array of strings while walking once
 * was the alternative: it copies as much as it saves, and a table that turns out broken has taken its memory by then.
 *
 * It refuses what no known file has and what would make trouble later: version 1 and big-endian files, arrays of arrays, keys
 * and names that are empty, not UTF-8, or hold control characters (they are printed in messages, JSON and journals), names
 * that occur twice, more than 4 dimensions, alignment below 8 or not a power of two, data that overlaps. Data that lies in
 * another order than the table, or with gaps, is read. Tensors of a type that hone does not know stay in the table. */
#include "model/gguf.h"

#include "model/gguf_index.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are used in place");
_Static_assert(sizeof(size_t) == 8, "file offsets are size_t");

enum {
    KEY_MAX = 65535,
    NAME_MAX_BYTES = 255,  /* ggml has 63 */
    VALUES_MAX = 65536,    /* real files have below 100 */
    TENSORS_MAX = 131072,  /* the most in a known file is about 14000 */
    STRINGS_MAX = 1 << 22, /* in all arrays; real vocabularies with their merges have below 800000 */
    VALUE_BYTES_MIN = 8 + 1 + 4 + 1,
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8,
};

struct reader {
    struct gguf *g;
    const uint8_t *data;
    size_t size, at;
    uint64_t n_strings;      /* in arrays so far */
    const char *kind;        /* "key" or "tensor": what is being read, for messages; NULL: neither */
    struct gguf_string name; /* its name, once known to be printable */
    struct hone_error *e;
};

/* As many bytes of s as fit n without cutting a character. */
static int clip(struct gguf_string s, int n)
{
    if (s.size <= (uint64_t)n)
        return (int)s.size;
    while (n > 0 && ((unsigned char)s.data[n] & 0xc0) == 0x80)
        n--;
    return n;
}

__attribute__((format(printf, 3, 4))) static int fail(const struct reader *r, size_t at, const char *format, ...)
{
    char what[200], name[120] = "";
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    if (r->kind)
        snprintf(name, sizeof name, "%s '%.*s%s': ", r->kind, clip(r->name, 90), r->name.data, r->name.size > 90 ? "..." : "");
    /* The end of a long path says more than its beginning. */
    const char *path = r->g->path;
    size_t n = strlen(path);
    return err_set(r->e, HONE_EINPUT, "%s%s: byte %zu: %s%s", n > 160 ? "..." : "", n > 160 ? path + n - 157 : path, at, name,
                   what);
}

static int out_of_memory(const struct reader *r)
{
    return err_set(r->e, HONE_ERESOURCE, "%s: out of memory for its tables", r->g->path);
}

/* The next n bytes, or NULL when fewer remain. */
static const uint8_t *take(struct reader *r, size_t n, const char *what)
{
    if (n > r->size - r->at) {
        fail(r, r->at, "the file ends inside %s (%zu bytes wanted, %zu remain)", what, n, r->size - r->at);
        return NULL;
    }
    r->at += n;
    return r->data + r->at - n;
}

static int take_u32(struct reader *r, uint32_t *v, const char *what)
{
    const uint8_t *p = take(r, sizeof *v, what);
    if (!p)
        return HONE_EINPUT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int take_u64(struct reader *r, uint64_t *v, const char *what)
{
    const uint8_t *p = take(r, sizeof *v, what);
    if (!p)
        return HONE_EINPUT;
    memcpy(v, p, sizeof *v);
    return 0;
}

static int take_string(struct reader *r, struct gguf_string *s, const char *what)
{
    size_t at = r->at;
    uint64_t n;
    int rc = take_u64(r, &n, what);
    if (rc)
        return rc;
    if (n > r->size - r->at)
        return fail(r, at, "%s of %llu bytes, but only %zu remain", what, (unsigned long long)n, r->size - r->at);
    *s = (struct gguf_string){.data = (const char *)r->data + r->at, .size = n};
    r->at += n;
    return 0;
}

/* A key or a tensor's name. It becomes the name in messages. */
static int take_name(struct reader *r, struct gguf_string *s, const char *kind, const char *noun, size_t longest)
{
    size_t at = r->at;
    r->kind = NULL;
    int rc = take_string(r, s, noun);
    if (rc)
        return rc;
    if (!s->size)
        return fail(r, at, "an empty %s", noun);
    if (s->size > longest)
        return fail(r, at, "a %s of %llu bytes (at most %zu)", noun, (unsigned long long)s->size, longest);
    for (uint64_t i = 0; i < s->size;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s->data + i, (utf8proc_ssize_t)(s->size - i), &c);
        if (n <= 0 || c < 0x20 || c == 0x7f)
            return fail(r, at + 8 + i, "a %s with the byte 0x%02x in it (%s)", noun, (unsigned char)s->data[i],
                        n <= 0 ? "not UTF-8" : "a control character");
        i += (uint64_t)n;
    }
    r->kind = kind;
    r->name = *s;
    return 0;
}

static int read_strings(struct reader *r, struct gguf_value *v)
{
    size_t start = r->at;
    if (v->n > (r->size - r->at) / 8)
        return fail(r, r->at, "%llu strings, but only %zu bytes remain", (unsigned long long)v->n, r->size - r->at);
    /* A sparse file of zeros would justify billions of empty strings. */
    r->n_strings += v->n;
    if (r->n_strings > STRINGS_MAX)
        return fail(r, r->at, "%llu strings in arrays so far (at most %d are read)", (unsigned long long)r->n_strings,
                    STRINGS_MAX);
    struct gguf_string s;
    for (uint64_t i = 0; i < v->n; i++) {
        int rc = take_string(r, &s, "a string");
        if (rc)
            return rc;
    }
    v->strings = arena_array(&r->g->arena, v->n, sizeof *v->strings);
    if (!v->strings)
        return out_of_memory(r);
    const uint8_t *p = r->data + start;
    for (uint64_t i = 0; i < v->n; i++) {
        uint64_t n;
        memcpy(&n, p, sizeof n);
        v->strings[i] = (struct gguf_string){.data = (const char *)p + 8, .size = n};
        p += 8 + n;
    }
    return 0;
}

static int read_items(struct reader *r, struct gguf_value *v, enum gguf_type type)
{
    size_t at = r->at, bytes;
    const uint8_t *p = r->data + at;
    if (__builtin_mul_overflow(v->n, gguf_type_bytes(type), &bytes) || bytes > r->size - r->at)
        return fail(r, at, "%llu items of type %s, but only %zu bytes remain", (unsigned long long)v->n, gguf_type_name(type),
                    r->size - r->at);
    r->at += bytes;
    v->data = p;
    for (size_t i = 0; type == GGUF_BOOL && i < bytes; i++)
        if (p[i] > 1)
            return fail(r, at + i, "a bool of value %u", p[i]);
    return 0;
}

static int read_value(struct reader *r, struct gguf_value *v)
{
    v->offset = r->at;
    int rc = take_name(r, &v->key, "key", "key", KEY_MAX);
    if (rc)
        return rc;
    size_t at = r->at;
    uint32_t type, element;
    if ((rc = take_u32(r, &type, "the type")))
        return rc;
    if (type >= GGUF_N_TYPES)
        return fail(r, at, "unknown value type %u", type);
    v->type = type;
    v->n = 1;
    if (type == GGUF_ARRAY) {
        at = r->at;
        if ((rc = take_u32(r, &element, "the element type")) || (rc = take_u64(r, &v->n, "the number of items")))
            return rc;
        if (element == GGUF_ARRAY)
            return fail(r, at, "an array of arrays");
        if (element >= GGUF_N_TYPES)
            return fail(r, at, "unknown element type %u", element);
        v->element = type = element;
    }
    return type == GGUF_STRING ? read_strings(r, v) : read_items(r, v, type);
}

static int read_values(struct reader *r, uint64_t n)
{
    struct gguf *g = r->g;
    if (n > VALUES_MAX || n > (r->size - r->at) / VALUE_BYTES_MIN)
        return fail(r, 16, "%llu keys announced (%zu bytes remain, at most %d keys are read)", (unsigned long long)n,
                    r->size - r->at, VALUES_MAX);
    g->values = arena_array(&g->arena, n, sizeof *g->values);
    if (!g->values)
        return out_of_memory(r);
    for (uint64_t i = 0; i < n; i++) {
        int rc = read_value(r, &g->values[i]);
        if (rc)
            return rc;
    }
    g->n_values = (int64_t)n;
    r->kind = NULL;
    int64_t twin;
    int rc = gguf_index_create(&g->value_index, &g->arena, g->values, sizeof *g->values, g->n_values, &twin, r->e);
    if (rc != HONE_EINPUT)
        return rc;
    if (twin < 0)
        return fail(r, 24, "keys that were made to collide");
    r->kind = "key";
    r->name = g->values[twin].key;
    return fail(r, g->values[twin].offset, "is there twice");
}

static int read_alignment(struct reader *r)
{
    const struct gguf_value *v = gguf_find(r->g, "general.alignment");
    r->g->alignment = 32;
    if (!v)
        return 0;
    r->kind = "key";
    r->name = v->key;
    if (v->type != GGUF_U32)
        return fail(r, v->offset, "is of type %s, not u32", gguf_type_name(v->type));
    uint32_t a;
    memcpy(&a, v->data, sizeof a);
    if (a < 8 || a & (a - 1))
        return fail(r, v->offset, "%u is not a power of two of at least 8", a);
    r->g->alignment = a;
    return 0;
}

/* Shape and size. t->offset is still relative to the data. */
static int read_tensor(struct reader *r, struct gguf_tensor *t)
{
    int rc = take_name(r, &t->name, "tensor", "tensor name", NAME_MAX_BYTES);
    if (rc)
        return rc;
    size_t at = r->at;
    uint32_t n_dims, type;
    if ((rc = take_u32(r, &n_dims, "the number of dimensions")))
        return rc;
    if (n_dims < 1 || n_dims > 4)
        return fail(r, at, "%u dimensions (1 to 4 are read)", n_dims);
    t->n_dims = (int)n_dims;
    int64_t elements = 1;
    for (uint32_t d = 0; d < 4; d++) {
        uint64_t n = 1;
        if (d < n_dims && (rc = take_u64(r, &n, "the dimensions")))
            return rc;
        if (!n || n > INT64_MAX || __builtin_mul_overflow(elements, (int64_t)n, &elements))
            return fail(r, at + 4 + 8 * d, n ? "dimension %u, %llu, makes its size overflow" : "dimension %u is %llu", d,
                        (unsigned long long)n);
        t->ne[d] = (int64_t)n;
    }
    at = r->at;
    if ((rc = take_u32(r, &type, "the type")) || (rc = take_u64(r, &t->offset, "the offset")))
        return rc;
    if (type > INT32_MAX)
        return fail(r, at, "type number %u", type);
    t->gguf_type = (int)type;
    t->known = !format_by_gguf_type(type, &t->format);
    t->cname = arena_strndup(&r->g->arena, t->name.data, t->name.size);
    if (!t->cname)
        return out_of_memory(r);
    if (!t->known)
        return 0;
    const struct format *f = format_get(t->format);
    if (t->ne[0] % f->block)
        return fail(r, at, "rows of %lld values in %s, which has blocks of %d", (long long)t->ne[0], f->name, f->block);
    if (__builtin_mul_overflow((size_t)(elements / f->block), (size_t)f->bytes, &t->bytes))
        return fail(r, at, "its size overflows");
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(struct gguf_tensor *const *)a, *y = *(struct gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Of a tensor whose type is not known, one byte is taken to be there. */
static uint64_t end_of(const struct gguf_tensor *t)
{
    return t->offset + (t->known ? t->bytes : 1);
}

/* Real files are in order, so the sorted copy is rarely made. */
static int check_overlap(struct reader *r)
{
    struct gguf *g = r->g;
    bool ordered = true;
    for (int64_t i = 1; i < g->n_tensors; i++)
        ordered = ordered && g->tensors[i].offset >= end_of(&g->tensors[i - 1]);
    if (ordered)
        return 0;
    struct gguf_tensor **t = malloc((size_t)g->n_tensors * sizeof(struct gguf_tensor *));
    if (!t)
        return out_of_memory(r);
    for (int64_t i = 0; i < g->n_tensors; i++)
        t[i] = &g->tensors[i];
    qsort(t, (size_t)g->n_tensors, sizeof(struct gguf_tensor *), by_offset);
    int rc = 0;
    for (int64_t i = 1; !rc && i < g->n_tensors; i++)
        if (t[i]->offset < end_of(t[i - 1])) {
            r->kind = "tensor";
            r->name = t[i]->name;
            rc = fail(r, t[i]->offset, "its data overlaps that of '%.*s'", clip(t[i - 1]->name, 90), t[i - 1]->cname);
        }
    free(t);
    return rc;
}

static int place_data(struct reader *r)
{
    struct gguf *g = r->g;
    size_t mask = g->alignment - 1, start = (r->at + mask) & ~mask;
    r->kind = "tensor";
    for (int64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t relative = t->offset;
        r->name = t->name;
        if (relative & mask)
            return fail(r, r->at, "data offset %llu is not a multiple of %u", (unsigned long long)relative, g->alignment);
        if (start > r->size || relative > r->size - start)
            return fail(r, r->at, "data offset %llu lies behind the file's end", (unsigned long long)relative);
        t->offset = start + relative;
        size_t wanted = t->known ? t->bytes : 1;
        if (wanted > r->size - t->offset)
            return fail(r, t->offset, "its data has %zu bytes, but the file ends after %zu (truncated?)", wanted,
                        (size_t)(r->size - t->offset));
        t->data = r->data + t->offset;
    }
    r->kind = NULL;
    return check_overlap(r);
}

static int read_tensors(struct reader *r, uint64_t n)
{
    struct gguf *g = r->g;
    r->kind = NULL;
    if (n > (r->size - r->at) / TENSOR_BYTES_MIN || n > TENSORS_MAX)
        return fail(r, 8, "%llu tensors announced (%zu bytes remain, at most %d tensors are read)", (unsigned long long)n,
                    r->size - r->at, TENSORS_MAX);
    g->tensors = arena_array(&g->arena, n, sizeof *g->tensors);
    if (!g->tensors)
        return out_of_memory(r);
    for (uint64_t i = 0; i < n; i++) {
        int rc = read_tensor(r, &g->tensors[i]);
        if (rc)
            return rc;
    }
    g->n_tensors = (int64_t)n;
    r->kind = NULL;
    int64_t twin;
    int rc = gguf_index_create(&g->tensor_index, &g->arena, g->tensors, sizeof *g->tensors, g->n_tensors, &twin, r->e);
    if (rc != HONE_EINPUT)
        return rc ? rc : place_data(r);
    if (twin < 0)
        return fail(r, r->at, "tensor names that were made to collide");
    r->kind = "tensor";
    r->name = g->tensors[twin].name;
    return fail(r, (size_t)(g->tensors[twin].name.data - (const char *)r->data), "is there twice");
}

static int read_file(struct gguf *g, struct hone_error *e)
{
    struct reader r = {.g = g, .data = g->map.data, .size = g->map.size, .e = e};
    uint64_t n_tensors, n_values;
    int rc;
    if (r.size < 4 || memcmp(r.data, "GGUF", 4))
        return fail(&r, 0, r.size ? "not a GGUF file (it does not begin with the letters GGUF)" : "the file is empty");
    r.at = 4;
    if ((rc = take_u32(&r, &g->version, "the header")))
        return rc;
    if (g->version && !(g->version & 0xffff))
        return fail(&r, 4, "a big-endian file; only little-endian ones are read");
    if (g->version < 2 || g->version > 3)
        return fail(&r, 4, "GGUF version %u; versions 2 and 3 are read", g->version);
    if ((rc = take_u64(&r, &n_tensors, "the header")) || (rc = take_u64(&r, &n_values, "the header")))
        return rc;
    if ((rc = read_values(&r, n_values)) || (rc = read_alignment(&r)))
        return rc;
    return read_tensors(&r, n_tensors);
}

/* Takes over *map, also on failure. */
static int open_mapping(struct gguf **out, struct mapping *map, bool borrowed, const char *path, struct hone_error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    int rc = 0;
    if (!g) {
        if (!borrowed)
            mapping_close(map);
        return err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
    }
    g->map = *map;
    g->borrowed = borrowed;
    g->n_parts = 1;
    g->path = arena_strdup(&g->arena, path);
    g->parts = arena_alloc(&g->arena, sizeof *g->parts);
    g->part_paths = arena_alloc(&g->arena, sizeof *g->part_paths);
    if (!g->path || !g->parts || !g->part_paths) {
        rc = err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
        goto done;
    }
    g->parts[0] = g->map;
    g->part_paths[0] = g->path;
    rc = read_file(g, e);
done:
    if (rc) {
        gguf_close(g);
        g = NULL;
    }
    *out = g;
    return rc;
}

int gguf_open_file(struct gguf **out, const char *path, struct hone_error *e)
{
    struct mapping map;
    *out = NULL;
    int rc = mapping_open(&map, path, e);
    return rc ? rc : open_mapping(out, &map, false, path, e);
}

int gguf_open(struct gguf **out, const char *path, struct hone_error *e)
{
    struct gguf *g;
    int rc = gguf_open_file(&g, path, e);
    if (!rc && (rc = gguf_join_parts(&g, e))) {
        gguf_close(g);
        g = NULL;
    }
    *out = g;
    return rc;
}

int gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *label, struct hone_error *e)
{
    struct mapping map = {.data = data, .size = size};
    return open_mapping(out, &map, true, label, e);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (int i = 0; g->others && i < g->n_parts - 1; i++)
        gguf_close(g->others[i]);
    if (!g->borrowed)
        mapping_close(&g->map);
    arena_free(&g->arena);
    free(g);
}
