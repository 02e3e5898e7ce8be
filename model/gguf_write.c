/* gguf_write.c: writes GGUF files, version 3.
 *
 * Values and the tensor table are gathered in memory, for the header states how many there are and where each tensor's data
 * will lie; at the first data the head is written, and from there on bytes stream through. The file is there when it is whole
 * (base/whole.h), so a model that is mapped can be replaced by a new one.
 *
 * The first error sticks, so callers declare without checking. Misuse (a key twice, data past a tensor's end, a shape that the
 * format cannot hold) is HONE_EFAULT: callers build from what the reader or they themselves have checked. A process that
 * runs under a file size limit must ignore SIGXFSZ, or the signal ends it before the error can be seen. */
#include "model/gguf.h"

#include "base/hash.h"
#include "base/whole.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bytes {
    uint8_t *data; /* malloc'd */
    size_t n, cap;
};

struct gguf_writer {
    struct arena arena;
    char *path;
    struct whole out;
    struct hone_error error; /* the first; sticks */
    struct bytes values, tensors;
    struct bytes names; /* uint64_t hashes of keys and tensor names, to find twins */
    struct bytes sizes; /* uint64_t bytes of each tensor */
    uint64_t n_values, n_tensors;
    uint64_t data_end; /* where the next tensor's data goes, from the start of the data */
    uint32_t alignment;
    bool head_written, holes;
    uint64_t current; /* the tensor that data goes to */
    uint64_t filled;  /* bytes of it written */
};

static int append(struct gguf_writer *w, struct bytes *b, const void *data, size_t n)
{
    if (w->error.code)
        return w->error.code;
    if (n > b->cap - b->n) {
        size_t cap = b->cap ? b->cap : 4096;
        while (cap < b->n || cap - b->n < n) {
            if (cap > SIZE_MAX / 2)
                return err_set(&w->error, HONE_ERESOURCE, "%s: out of memory", w->path);
            cap *= 2;
        }
        uint8_t *grown = realloc(b->data, cap);
        if (!grown)
            return err_set(&w->error, HONE_ERESOURCE, "%s: out of memory", w->path);
        b->data = grown;
        b->cap = cap;
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
    return 0;
}

static void append_u32(struct gguf_writer *w, struct bytes *b, uint32_t v)
{
    append(w, b, &v, sizeof v);
}

static void append_u64(struct gguf_writer *w, struct bytes *b, uint64_t v)
{
    append(w, b, &v, sizeof v);
}

static void append_string(struct gguf_writer *w, struct bytes *b, const char *s, size_t n)
{
    append_u64(w, b, n);
    append(w, b, s, n);
}

static void put(struct gguf_writer *w, const void *data, size_t n)
{
    if (!w->error.code && n && fwrite(data, 1, n, w->out.file) != n)
        err_set(&w->error, HONE_ERESOURCE, "%s: cannot write: %s", w->path, strerror(errno));
}

/* Zeros from byte `at` of the file up to the alignment. */
static void put_padding(struct gguf_writer *w, uint64_t at)
{
    static const uint8_t zeros[64];
    for (uint64_t n = -at & (w->alignment - 1); n && !w->error.code;) {
        size_t step = n < sizeof zeros ? (size_t)n : sizeof zeros;
        put(w, zeros, step);
        n -= step;
    }
}

/* A name may be declared once among its kind, and only before the data. */
static bool declare(struct gguf_writer *w, const char *kind, const char *name, size_t n)
{
    if (w->error.code)
        return false;
    if (w->head_written || !n) {
        err_set(&w->error, HONE_EFAULT, "%s: %s '%.*s' declared %s", w->path, kind, (int)n, name,
                n ? "after data was written" : "without a name");
        return false;
    }
    uint64_t h = hash64(name, n) ^ (*kind == 'k');
    for (size_t i = 0; i < w->names.n / sizeof h; i++) {
        uint64_t other;
        memcpy(&other, w->names.data + i * sizeof h, sizeof other);
        if (other == h) {
            err_set(&w->error, HONE_EFAULT, "%s: %s '%.*s' declared twice", w->path, kind, (int)n, name);
            return false;
        }
    }
    append_u64(w, &w->names, h);
    return !w->error.code;
}

static void writer_free(struct gguf_writer *w)
{
    free(w->values.data);
    free(w->tensors.data);
    free(w->names.data);
    free(w->sizes.data);
    arena_free(&w->arena);
    free(w);
}

int gguf_writer_create(struct gguf_writer **out, const char *path, struct hone_error *e)
{
    *out = NULL;
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
    w->alignment = 32;
    w->path = arena_strdup(&w->arena, path);
    int rc = w->path ? whole_begin(&w->out, path, e) : err_set(e, HONE_ERESOURCE, "%s: out of memory", path);
    if (rc) {
        writer_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void gguf_write_value(struct gguf_writer *w, const char *key, const struct gguf_value *v)
{
    struct gguf_string k = key ? (struct gguf_string){key, strlen(key)} : v->key;
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    size_t bytes = 0;
    if (!declare(w, "key", k.data, k.size))
        return;
    if ((t != GGUF_STRING && !gguf_type_bytes(t)) || __builtin_mul_overflow(v->n, gguf_type_bytes(t), &bytes) ||
        (v->type != GGUF_ARRAY && v->n != 1)) {
        err_set(&w->error, HONE_EFAULT, "%s: key '%.*s' has no value that a file can hold", w->path, (int)k.size, k.data);
        return;
    }
    if (k.size == 17 && !memcmp(k.data, "general.alignment", 17)) {
        uint32_t a = 0;
        if (v->type == GGUF_U32)
            memcpy(&a, v->data, sizeof a);
        if (a < 8 || a & (a - 1)) {
            err_set(&w->error, HONE_EFAULT, "%s: general.alignment is no u32 that is a power of two of at least 8", w->path);
            return;
        }
        w->alignment = a;
    }
    append_string(w, &w->values, k.data, k.size);
    append_u32(w, &w->values, v->type);
    if (v->type == GGUF_ARRAY) {
        append_u32(w, &w->values, t);
        append_u64(w, &w->values, v->n);
    }
    if (t == GGUF_STRING)
        for (uint64_t i = 0; i < v->n && !w->error.code; i++)
            append_string(w, &w->values, v->strings[i].data, v->strings[i].size);
    else
        append(w, &w->values, v->data, bytes);
    w->n_values++;
}

static void write_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *data)
{
    gguf_write_value(w, key, &(struct gguf_value){.type = type, .n = 1, .data = data});
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    write_scalar(w, key, GGUF_U32, &v);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float v)
{
    write_scalar(w, key, GGUF_F32, &v);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    write_scalar(w, key, GGUF_BOOL, &byte);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *v)
{
    struct gguf_string s = {v, strlen(v)};
    gguf_write_value(w, key, &(struct gguf_value){.type = GGUF_STRING, .n = 1, .strings = &s});
}

void gguf_write_strings(struct gguf_writer *w, const char *key, const struct gguf_string *v, uint64_t n)
{
    struct gguf_string *strings = (struct gguf_string *)(uintptr_t)v; /* only read */
    gguf_write_value(w, key, &(struct gguf_value){.type = GGUF_ARRAY, .element = GGUF_STRING, .n = n, .strings = strings});
}

void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *items, uint64_t n)
{
    gguf_write_value(w, key, &(struct gguf_value){.type = GGUF_ARRAY, .element = element, .n = n, .data = items});
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, enum format_id format, int n_dims, const int64_t *ne)
{
    const struct format *f = format_get(format);
    int64_t elements = 1;
    size_t bytes = 0;
    uint64_t end;
    if (!declare(w, "tensor", name, strlen(name)))
        return;
    bool good = n_dims >= 1 && n_dims <= 4 && f->gguf_type >= 0 && ne[0] % f->block == 0;
    for (int i = 0; good && i < n_dims; i++)
        good = ne[i] > 0 && !__builtin_mul_overflow(elements, ne[i], &elements);
    if (!good || __builtin_mul_overflow((size_t)(elements / f->block), (size_t)f->bytes, &bytes) ||
        __builtin_add_overflow(w->data_end, bytes + w->alignment, &end) || bytes > SIZE_MAX / 2) {
        err_set(&w->error, HONE_EFAULT, "%s: tensor '%s' has a shape that %s in a file cannot hold", w->path, name, f->name);
        return;
    }
    append_string(w, &w->tensors, name, strlen(name));
    append_u32(w, &w->tensors, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        append_u64(w, &w->tensors, (uint64_t)ne[i]);
    append_u32(w, &w->tensors, (uint32_t)f->gguf_type);
    append_u64(w, &w->tensors, w->data_end);
    append_u64(w, &w->sizes, bytes);
    w->data_end += bytes;
    w->data_end += -w->data_end & (w->alignment - 1);
    w->n_tensors++;
}

static void put_head(struct gguf_writer *w)
{
    if (w->head_written)
        return;
    const uint32_t version = 3;
    put(w, "GGUF", 4);
    put(w, &version, sizeof version);
    put(w, &w->n_tensors, sizeof w->n_tensors);
    put(w, &w->n_values, sizeof w->n_values);
    put(w, w->values.data, w->values.n);
    put(w, w->tensors.data, w->tensors.n);
    if (w->n_tensors)
        put_padding(w, 24 + w->values.n + w->tensors.n);
    w->head_written = true;
}

static uint64_t size_of(const struct gguf_writer *w, uint64_t tensor)
{
    uint64_t n;
    memcpy(&n, w->sizes.data + tensor * sizeof n, sizeof n);
    return n;
}

static void put_hole(struct gguf_writer *w, size_t size)
{
    if (!w->error.code && fseeko(w->out.file, (off_t)size, SEEK_CUR))
        err_set(&w->error, HONE_ERESOURCE, "%s: cannot write: %s", w->path, strerror(errno));
}

/* data NULL: a hole. */
static int write_bytes(struct gguf_writer *w, const void *data, size_t size, struct hone_error *e)
{
    put_head(w);
    if (!w->error.code && size) {
        if (w->current == w->n_tensors || size > size_of(w, w->current) - w->filled)
            err_set(&w->error, HONE_EFAULT, "%s: %zu bytes are more than tensor %llu of %llu takes", w->path, size,
                    (unsigned long long)w->current, (unsigned long long)w->n_tensors);
        if (data)
            put(w, data, size);
        else
            put_hole(w, size);
        w->filled += size;
        if (!w->error.code && w->filled == size_of(w, w->current)) {
            put_padding(w, w->filled);
            w->filled = 0;
            w->current++;
        }
    }
    if (w->error.code)
        err_set(e, w->error.code, "%s", w->error.message);
    return w->error.code;
}

int gguf_write_data(struct gguf_writer *w, const void *data, size_t size, struct hone_error *e)
{
    return write_bytes(w, data, size, e);
}

int gguf_write_hole(struct gguf_writer *w, size_t size, struct hone_error *e)
{
    w->holes = true;
    return write_bytes(w, NULL, size, e);
}

int gguf_writer_close(struct gguf_writer *w, bool keep, struct hone_error *e)
{
    if (keep) {
        put_head(w);
        if (w->current < w->n_tensors)
            err_set(&w->error, HONE_EFAULT, "%s: data of %llu of %llu tensors was written", w->path,
                    (unsigned long long)w->current, (unsigned long long)w->n_tensors);
    }
    /* The file is as long as what was written last; a hole at its end is none yet. */
    if (keep && w->holes && !w->error.code && (fflush(w->out.file) || ftruncate(fileno(w->out.file), ftello(w->out.file))))
        err_set(&w->error, HONE_ERESOURCE, "%s: cannot write: %s", w->path, strerror(errno));
    whole_end(&w->out, keep && !w->error.code, &w->error);
    int rc = keep ? w->error.code : 0;
    if (rc)
        err_set(e, rc, "%s", w->error.message);
    writer_free(w);
    return rc;
}
