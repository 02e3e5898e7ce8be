/* node.c: what a tensor is in bytes: shape, strides, span, and the two calls by which references read and write rows.
 *
 * Everything here takes a tensor at its word: shapes were checked where they came in (the file reader, the shape rules), so
 * products fit. A span is counted from the strides and not from the elements, because a padded or permuted view touches more
 * bytes than it has (rule 8). References read whole rows as f32: every format and layout has an unpack for that, and no
 * reference needs to know which it got. An accessor for single elements lost: the call for each one cost more than the
 * arithmetic. */
#include "ops/node.h"

#include <stdio.h>
#include <string.h>

bool tensor_shape_fits(enum format_id format, const int64_t ne[MAX_DIMS])
{
    if ((unsigned)format >= N_FORMATS || ne[0] < 0 || ne[0] % format_get(format)->block != 0)
        return false;
    /* Empty dimensions count as one, so that strides and row numbers of an empty tensor fit as well. */
    int64_t bytes;
    if (__builtin_mul_overflow(ne[0] / format_get(format)->block + (ne[0] == 0), (int64_t)format_get(format)->bytes, &bytes) ||
        ne[0] > INT64_MAX / 16)
        return false;
    int64_t elements = ne[0] + (ne[0] == 0);
    for (int i = 1; i < MAX_DIMS; i++) {
        int64_t n = ne[i] + (ne[i] == 0);
        if (n < 0 || __builtin_mul_overflow(bytes, n, &bytes) || __builtin_mul_overflow(elements, n, &elements))
            return false;
    }
    return bytes <= INT64_MAX / 16 && elements <= INT64_MAX / 16;
}

void tensor_shape(struct tensor *t, enum format_id format, int n_dims, const int64_t *ne)
{
    const struct format *f = format_get(format);
    t->format = format;
    for (int i = 0; i < MAX_DIMS; i++)
        t->ne[i] = i < n_dims ? ne[i] : 1;
    t->nb[0] = (size_t)f->bytes;
    t->nb[1] = format_row_bytes(f, t->ne[0]);
    for (int i = 2; i < MAX_DIMS; i++)
        t->nb[i] = t->nb[i - 1] * (size_t)t->ne[i - 1];
}

int64_t tensor_elements(const struct tensor *t)
{
    return t->ne[0] * tensor_rows(t);
}

int64_t tensor_rows(const struct tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3];
}

size_t tensor_nbytes(const struct tensor *t)
{
    if (tensor_elements(t) == 0)
        return 0;
    if (t->layout)
        return t->layout->bytes(t->ne[0], tensor_rows(t));
    const struct format *f = format_get(t->format);
    size_t last = (size_t)(t->ne[0] / f->block - 1) * t->nb[0];
    for (int i = 1; i < MAX_DIMS; i++)
        last += (size_t)(t->ne[i] - 1) * t->nb[i];
    return last + (size_t)f->bytes;
}

bool tensor_rows_contiguous(const struct tensor *t)
{
    const struct format *f = format_get(t->format);
    return !t->layout && (t->nb[0] == (size_t)f->bytes || t->ne[0] <= f->block);
}

bool tensor_contiguous(const struct tensor *t)
{
    if (!tensor_rows_contiguous(t))
        return false;
    /* The stride of a dimension of one is never used. */
    size_t expected = format_row_bytes(format_get(t->format), t->ne[0]);
    for (int i = 1; i < MAX_DIMS; i++) {
        if (t->ne[i] != 1 && t->nb[i] != expected)
            return false;
        expected *= (size_t)t->ne[i];
    }
    return true;
}

bool tensor_same_shape(const struct tensor *a, const struct tensor *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

bool tensor_broadcasts(const struct tensor *a, const struct tensor *b)
{
    for (int i = 0; i < MAX_DIMS; i++)
        if (a->ne[i] == 0 ? b->ne[i] != 0 : b->ne[i] % a->ne[i] != 0)
            return false;
    return true;
}

char *tensor_describe(const struct tensor *t, char *text, size_t size)
{
    if (size == 0)
        return text;
    int n_dims = MAX_DIMS;
    while (n_dims > 1 && t->ne[n_dims - 1] == 1)
        n_dims--;
    const char *separator = " [";
    size_t used = (size_t)snprintf(text, size, "%s", format_get(t->format)->name);
    for (int i = 0; i < n_dims && used < size; i++, separator = ", ")
        used += (size_t)snprintf(text + used, size - used, "%s%lld", separator, (long long)t->ne[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

const float *tensor_read_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, float *dst)
{
    int64_t n = t->ne[0];
    if (n == 0)
        return dst;
    if (t->layout) {
        t->layout->unpack_row(t->data, dst, n, tensor_rows(t), i1 + t->ne[1] * (i2 + t->ne[2] * i3));
        return dst;
    }
    const struct format *f = format_get(t->format);
    const char *row = tensor_row(t, i1, i2, i3);
    if (t->nb[0] == (size_t)f->bytes || n == f->block) {
        /* A weight in a file may lie at any byte. */
        if (t->format == FORMAT_F32 && (uintptr_t)row % _Alignof(float) == 0)
            return (const float *)(const void *)row;
        f->unpack(row, dst, n);
    } else {
        for (int64_t i = 0; i < n; i += f->block)
            f->unpack(row + (size_t)(i / f->block) * t->nb[0], dst + i, f->block);
    }
    return dst;
}

void tensor_write_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, const float *src)
{
    const struct format *f = format_get(t->format);
    INVARIANT(!t->layout && f->pack);
    int64_t n = t->ne[0];
    if (n == 0)
        return;
    char *row = tensor_row(t, i1, i2, i3);
    if (t->nb[0] == (size_t)f->bytes || n == f->block) {
        f->pack(src, row, n);
    } else {
        for (int64_t i = 0; i < n; i += f->block)
            f->pack(src + i, row + (size_t)(i / f->block) * t->nb[0], f->block);
    }
}

int64_t tensor_read_index(const struct tensor *t, int64_t i0, int64_t i1)
{
    int32_t value;
    memcpy(&value, (const char *)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1], sizeof value);
    return value;
}
