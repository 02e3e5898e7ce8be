/* gguf_split.c: a model in several files (name-00001-of-00003.gguf) opened as one, from any part's path.
 *
 * Which part a file is and how many there are stands in its name and in its keys (split.no from 0, split.count); both must
 * agree in every part, and the tensors of all parts must be as many as split.tensors.count says, each name once. So a missing,
 * renamed, copied or foreign part is an error that names the part. Values are the first part's; the others repeat only what
 * describes the split. A file that is alone (no split.count, or 1) may bear any name.
 *
 * Each part stays a struct gguf of its own, owned by the whole: their tensor tables are copied together, nothing else is. */
#include "model/gguf_index.h"

#include <stdio.h>
#include <string.h>

/* "-00001-of-00003.gguf" */
enum { SUFFIX = 20 };

struct split {
    uint32_t no, count, tensors;
};

static int read_split(const struct gguf *g, bool required, struct split *s, struct hone_error *e)
{
    *s = (struct split){0};
    int rc = gguf_get_u32(g, "split.count", required, &s->count, e);
    if (rc || s->count < 2)
        return rc;
    if (s->count > 65535)
        return err_set(e, HONE_EINPUT, "%s: split.count %u (at most 65535)", g->path, s->count);
    if ((rc = gguf_get_u32(g, "split.no", true, &s->no, e)) ||
        (rc = gguf_get_u32(g, "split.tensors.count", true, &s->tensors, e)))
        return rc;
    if (s->no >= s->count)
        return err_set(e, HONE_EINPUT, "%s: split.no is %u of %u parts", g->path, s->no, s->count);
    return 0;
}

/* Digits only: sscanf would also take blanks and signs. */
static bool five_digits(const char *s, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        *v = *v * 10 + (uint32_t)(s[i] - '0');
    }
    return true;
}

/* What the name says must be what the keys say; *stem is the length of what all the parts' names begin with. */
static int check_name(const struct gguf *g, const struct split *s, size_t *stem, struct hone_error *e)
{
    size_t n = strlen(g->path);
    const char *p = g->path + (n > SUFFIX ? n - SUFFIX : 0);
    uint32_t no, count;
    *stem = 0;
    if (n <= SUFFIX || p[0] != '-' || memcmp(p + 6, "-of-", 4) || strcmp(p + 15, ".gguf") || !five_digits(p + 1, &no) ||
        !five_digits(p + 10, &count))
        return err_set(e, HONE_EINPUT,
                       "%s: is part %u of %u, but is not named ...-%05u-of-%05u.gguf, so the others cannot be found", g->path,
                       s->no + 1, s->count, s->no + 1, s->count);
    if (no != s->no + 1 || count != s->count)
        return err_set(e, HONE_EINPUT, "%s: named part %u of %u, but its keys say part %u of %u", g->path, no, count, s->no + 1,
                       s->count);
    *stem = n - SUFFIX;
    return 0;
}

/* Opens part `no` beside g, of which s is true. */
static int open_part(const struct gguf *g, const struct split *s, size_t stem, uint32_t no, struct gguf **out,
                     struct hone_error *e)
{
    char path[4096];
    struct split found;
    *out = NULL;
    if (stem > sizeof path - SUFFIX - 1)
        return err_set(e, HONE_EINPUT, "%.300s...: the path is too long", g->path);
    snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)stem, g->path, no + 1, s->count);
    int rc = gguf_open_file(out, path, e);
    if (rc) {
        const char *slash = strrchr(g->path, '/');
        err_prefix(e, "%s: part %u of %u", slash ? slash + 1 : g->path, no + 1, s->count);
        return rc;
    }
    if ((rc = read_split(*out, true, &found, e)))
        return rc;
    if (found.no != no || found.count != s->count)
        return err_set(e, HONE_EINPUT, "%s: named part %u of %u, but its keys say part %u of %u", path, no + 1, s->count,
                       found.no + 1, found.count);
    if (found.tensors != s->tensors)
        return err_set(e, HONE_EINPUT, "%s: says %u tensors in all, another part says %u", path, found.tensors, s->tensors);
    return 0;
}

/* g, the first part, becomes the whole; g->others are all the others, in order. */
static int join(struct gguf *g, const struct split *s, struct hone_error *e)
{
    int64_t n = g->n_tensors, twin;
    for (uint32_t i = 0; i < s->count - 1; i++)
        n += g->others[i]->n_tensors;
    if (n != s->tensors)
        return err_set(e, HONE_EINPUT, "%s: its %u parts hold %lld tensors, split.tensors.count says %u", g->path, s->count,
                       (long long)n, s->tensors);
    struct gguf_tensor *tensors = arena_array(&g->arena, (size_t)n, sizeof *tensors);
    g->parts = arena_array(&g->arena, s->count, sizeof *g->parts);
    g->part_paths = arena_array(&g->arena, s->count, sizeof *g->part_paths);
    if (!tensors || !g->parts || !g->part_paths)
        return err_set(e, HONE_ERESOURCE, "%s: out of memory", g->path);
    int64_t at = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct gguf *part = i ? g->others[i - 1] : g;
        g->parts[i] = part->map;
        g->part_paths[i] = part->path;
        for (int64_t k = 0; k < part->n_tensors; k++) {
            tensors[at] = part->tensors[k];
            tensors[at++].part = (int)i;
        }
    }
    g->tensors = tensors;
    g->n_tensors = n;
    int rc = gguf_index_create(&g->tensor_index, &g->arena, tensors, sizeof *tensors, n, &twin, e);
    if (rc != HONE_EINPUT)
        return rc;
    if (twin < 0)
        return err_set(e, HONE_EINPUT, "%s: tensor names that were made to collide", g->path);
    return err_set(e, HONE_EINPUT, "%s: the tensor '%s' is also in an earlier part", g->part_paths[tensors[twin].part],
                   tensors[twin].cname);
}

int gguf_join_parts(struct gguf **g, struct hone_error *e)
{
    struct gguf *self = *g, *first = self;
    struct split s;
    size_t stem;
    int rc = read_split(self, false, &s, e);
    if (rc || s.count < 2)
        return rc;
    if ((rc = check_name(self, &s, &stem, e)))
        return rc;
    if (s.no && (rc = open_part(self, &s, stem, 0, &first, e))) {
        gguf_close(first);
        return rc;
    }
    /* From here on the first part owns the others, self among them. */
    first->others = arena_array(&first->arena, s.count - 1, sizeof(struct gguf *));
    if (!first->others) {
        if (s.no)
            gguf_close(first);
        return err_set(e, HONE_ERESOURCE, "%s: out of memory", self->path);
    }
    first->n_parts = (int)s.count;
    *g = first;
    if (s.no)
        first->others[s.no - 1] = self;
    for (uint32_t i = 1; !rc && i < s.count; i++)
        if (i != s.no)
            rc = open_part(first, &s, stem, i, &first->others[i - 1], e);
    return rc ? rc : join(first, &s, e);
}
