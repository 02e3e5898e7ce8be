/* loader.c: keys with ranges, tensors with shapes. Every number that later sizes an allocation or a loop is checked against
 * a range here, once. A tensor that the architecture did not ask for is an error too: a bias that is silently left out gives a
 * model that is only slightly wrong. */
#include "model/loader.h"

#include "base/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void loader_refuse(struct loader *l, const char *format, ...)
{
    if (l->error.code)
        return;
    char text[sizeof l->error.message];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    err_set(&l->error, HONE_EINPUT, "%s: %.380s", l->model->gguf->path, text);
}

static const struct gguf_value *find(struct loader *l, const char *key, int optional)
{
    char full[256];
    snprintf(full, sizeof full, "%s.%s", l->prefix, key);
    const struct gguf_value *v = l->error.code ? NULL : gguf_find(l->model->gguf, full);
    if (!v && !optional)
        loader_refuse(l, "the key %s is missing", full);
    return v;
}

static int32_t int_in_range(struct loader *l, const struct gguf_value *v, uint64_t i, int32_t lo, int32_t hi)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    if (!gguf_is_integer(t)) {
        loader_refuse(l, "the key %.*s (offset %llu) is of type %s, not an integer", (int)v->key.size, v->key.data,
                      (unsigned long long)v->offset, gguf_type_name(t));
        return lo;
    }
    int64_t x = gguf_integer(v, i);
    if (x < lo || x > hi) {
        loader_refuse(l, "the key %.*s (offset %llu) is %lld; allowed: %d to %d", (int)v->key.size, v->key.data,
                      (unsigned long long)v->offset, (long long)x, lo, hi);
        return lo;
    }
    return (int32_t)x;
}

int32_t loader_int(struct loader *l, const char *key, int optional, int32_t fallback, int32_t lo, int32_t hi)
{
    const struct gguf_value *v = find(l, key, optional);
    if (!v)
        return fallback;
    if (v->type == GGUF_ARRAY) {
        loader_refuse(l, "the key %s.%s (offset %llu) is an array, not a number", l->prefix, key, (unsigned long long)v->offset);
        return lo;
    }
    return int_in_range(l, v, 0, lo, hi);
}

int32_t loader_layer_int(struct loader *l, const char *key, int layer, int optional, int32_t fallback, int32_t lo, int32_t hi)
{
    const struct gguf_value *v = find(l, key, optional);
    if (!v)
        return fallback;
    if (v->type == GGUF_ARRAY && (uint64_t)layer >= v->n) {
        loader_refuse(l, "the key %s.%s (offset %llu) has %llu items, too few for layer %d", l->prefix, key,
                      (unsigned long long)v->offset, (unsigned long long)v->n, layer);
        return lo;
    }
    return int_in_range(l, v, v->type == GGUF_ARRAY ? (uint64_t)layer : 0, lo, hi);
}

float loader_float(struct loader *l, const char *key, int optional, float fallback, float lo, float hi)
{
    const struct gguf_value *v = find(l, key, optional);
    if (!v)
        return fallback;
    if (v->type == GGUF_ARRAY || v->type == GGUF_STRING || v->type == GGUF_BOOL) {
        loader_refuse(l, "the key %s.%s (offset %llu) is of type %s, not a number", l->prefix, key,
                      (unsigned long long)v->offset, gguf_type_name(v->type));
        return lo;
    }
    double x = gguf_number(v, 0);
    if (!(x >= (double)lo && x <= (double)hi)) { /* also a NaN */
        loader_refuse(l, "the key %s.%s (offset %llu) is %g; allowed: %g to %g", l->prefix, key,
                      (unsigned long long)v->offset, x, (double)lo, (double)hi);
        return lo;
    }
    return (float)x;
}

struct gguf_string loader_string(struct loader *l, const char *key)
{
    struct gguf_string s = {"", 0};
    const struct gguf_value *v = find(l, key, OPTIONAL);
    if (v && v->type != GGUF_STRING)
        loader_refuse(l, "the key %s.%s (offset %llu) is of type %s, not a string", l->prefix, key,
                      (unsigned long long)v->offset, gguf_type_name(v->type));
    else if (v)
        s = v->strings[0];
    return s;
}

static void note_missing(struct loader *l, const char *name)
{
    size_t n = strlen(l->missing);
    if (n + strlen(name) + 3 < sizeof l->missing)
        snprintf(l->missing + n, sizeof l->missing - n, "%s%s", n ? ", " : "", name);
    l->n_missing++;
}

static char *shape_text(int n_dims, const int64_t *ne, char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < n_dims && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? ", " : "[", (long long)ne[i]);
    if (n < size)
        snprintf(text + n, size - n, "]");
    return text;
}

/* A vector that each layer asks for is one tensor: what is made of it, a copy on a device, is made once, and goes with the model. */
static struct tensor *had_before(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_weights; i++)
        if (!strcmp(m->weights[i]->name, name))
            return m->weights[i];
    return NULL;
}

struct tensor *loader_tensor(struct loader *l, const char *name, int optional, int64_t ne0, int64_t ne1, int64_t ne2)
{
    struct model *m = l->model;
    char full[NAME_SIZE + 32];
    const char *suffix = strchr(name, '.') ? "" : ".weight";
    int bare = (int)strlen(name) - (name[strlen(name) - 1] == '.');
    if (l->layer >= 0)
        snprintf(full, sizeof full, "blk.%d.%.*s%s", l->layer, bare, name, suffix);
    else
        snprintf(full, sizeof full, "%.*s%s", bare, name, suffix);
    if (l->error.code)
        return NULL;
    const struct gguf_tensor *f = gguf_tensor(m->gguf, full);
    if (!f) {
        if (!optional)
            note_missing(l, full);
        return NULL;
    }
    int64_t want[4] = {ne0, ne1, ne2, 0};
    int n_dims = ne2 ? 3 : ne1 ? 2 : 1;
    bool same = true;
    for (int i = 0; i < 4; i++)
        same &= (i < f->n_dims ? f->ne[i] : 1) == (want[i] ? want[i] : 1);
    char has[100], wanted[100];
    if (!f->known)
        loader_refuse(l, "the tensor %s has type %d, which hone does not read", full, f->gguf_type);
    else if (!same)
        loader_refuse(l, "the tensor %s (part %d, offset %llu) has shape %s; the architecture %s wants %s", full, f->part + 1,
                      (unsigned long long)f->offset, shape_text(f->n_dims, f->ne, has, sizeof has), l->prefix,
                      shape_text(n_dims, want, wanted, sizeof wanted));
    else if (!format_get(f->format)->unpack || (n_dims == 1 && f->format != FORMAT_F32))
        loader_refuse(l, "the tensor %s has type %s where %s is wanted", full, format_get(f->format)->name,
                      n_dims == 1 ? "F32" : "a float type");
    if (l->error.code)
        return NULL;
    struct tensor *t = n_dims == 1 && l->used[f - m->gguf->tensors] ? had_before(m, full) : NULL;
    if (t)
        return t;
    t = arena_alloc(&m->arena, sizeof *t);
    if (!t) {
        err_set(&l->error, HONE_ERESOURCE, "no memory for tensor %s", full);
        return NULL;
    }
    t->kind = TENSOR_WEIGHT;
    tensor_shape(t, f->format, n_dims, want);
    t->rows = f->data;
    t->data = (void *)(uintptr_t)f->data; /* mapped read-only: nothing writes through it */
    snprintf(t->name, sizeof t->name, "%.*s", NAME_SIZE - 1, full);
    if (!l->used[f - m->gguf->tensors])
        m->weights[m->n_weights++] = t;
    l->used[f - m->gguf->tensors] = true;
    return t;
}

void loader_leave_out(struct loader *l, const char *what_it_does)
{
    struct model *m = l->model;
    char prefix[32];
    int n = 0;
    double bytes = 0;
    if (l->error.code)
        return;
    size_t size = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", l->layer);
    for (int64_t i = 0; i < m->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &m->gguf->tensors[i];
        if (strncmp(t->cname, prefix, size) != 0)
            continue;
        l->used[i] = true;
        bytes += (double)t->bytes;
        n++;
    }
    char text[160];
    snprintf(text, sizeof text, "block %d, which %s: %d tensors, %.1f MiB", l->layer, what_it_does, n, bytes / 0x1p20);
    size_t used = strlen(m->left_out);
    snprintf(m->left_out + used, sizeof m->left_out - used, "%s%s", used ? "; " : "", text);
    log_line(LOG_INFO, "%s: left out of the main pass: %s", m->gguf->path, text);
}
