/* text.c: the two growing lists that tokenizers fill, and how much of a growing text may be shown.
 *
 * utf8_complete looks at the last three bytes only. It holds back a tail exactly when more bytes could still make it a valid
 * sequence: E2 96 waits, ED A0 (a surrogate) and C0 do not, since no byte can mend them. */
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

#include <stdlib.h>
#include <string.h>

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

int token_list_add(struct token_list *l, int32_t id, struct hone_error *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *ids = cap <= SIZE_MAX / sizeof *ids ? realloc(l->ids, cap * sizeof *ids) : NULL;
        if (!ids)
            return err_set(e, HONE_ERESOURCE, "out of memory for %zu token ids", cap);
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

int text_append(struct text *t, const void *data, size_t n, struct hone_error *e)
{
    if (n >= SIZE_MAX / 2 - t->n)
        return err_set(e, HONE_ERESOURCE, "out of memory for a text of more than %zu bytes", t->n);
    if (t->n + n + 1 > t->cap) {
        size_t cap = t->cap * 2 > t->n + n + 1 ? t->cap * 2 : t->n + n + 32;
        char *grown = realloc(t->data, cap);
        if (!grown)
            return err_set(e, HONE_ERESOURCE, "out of memory for a text of %zu bytes", t->n + n);
        t->data = grown;
        t->cap = cap;
    }
    if (n)
        memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = 0;
    return 0;
}

size_t utf8_complete(const char *data, size_t n)
{
    for (size_t tail = 1; tail <= 3 && tail <= n; tail++) {
        const unsigned char *u = (const unsigned char *)data + n - tail;
        if ((u[0] & 0xc0) == 0x80)
            continue;
        bool waits = utf8_expected(u[0]) > tail && (tail == 1 || utf8_second(u[0], u[1]));
        return waits ? n - tail : n;
    }
    return n;
}
