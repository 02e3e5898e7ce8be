/* split_words.c: see split_words.h.
 *
 * Refused, not warned of: `-dev cpu:1,cpu:1` without -sm is a run on all threads as one, whose figures somebody takes for those
 * of a split. A share or a device that is named while -ngl 0 or kernel=ref keeps all on the host is no such thing: a ladder's
 * or a comparison's reference is the same command line with those. */
#include "engine/split_words.h"

#include "base/err.h"
#include "engine/places.h"

#include <stdlib.h>
#include <string.h>

int split_list(const char *flag, const char *list, const char **words, size_t *sizes, struct hone_error *e)
{
    int n = 0;
    for (const char *p = list;; p++) {
        size_t size = strcspn(p, ",/");
        if (!size)
            err_set(e, HONE_EUSAGE, "%s %.80s: an empty word, where there is one comma or slash between two", flag, list);
        if (n == SPLIT_MOST)
            err_set(e, HONE_EUSAGE, "%s %.80s: more than %d", flag, list, SPLIT_MOST);
        if (!size || n == SPLIT_MOST)
            return -1;
        words[n] = p;
        sizes[n++] = size;
        p += size;
        if (!*p)
            return n;
    }
}

static int shown(size_t size)
{
    return (int)(size < 40 ? size : 40);
}

int split_shares(const char *text, double *shares, int *n, struct hone_error *e)
{
    const char *words[SPLIT_MOST];
    size_t sizes[SPLIT_MOST];
    *n = text && *text ? split_list("-ts", text, words, sizes, e) : 0;
    if (*n < 0)
        return e->code;
    for (int i = 0; i < *n; i++) {
        char *end;
        shares[i] = strtod(words[i], &end);
        bool decimal = strspn(words[i], "0123456789.eE+-") >= sizes[i];
        if (end != words[i] + sizes[i] || !decimal || !(shares[i] >= 0))
            return err_set(e, HONE_EUSAGE, "-ts %.80s: '%.*s' is no share above 0", text, shown(sizes[i]), words[i]);
        if (shares[i] >= 1e9)
            return err_set(e, HONE_EUSAGE, "-ts %.80s: '%.*s' is a billion or more", text, shown(sizes[i]), words[i]);
    }
    if (*n == 1 && shares[0] == 0)
        *n = 0;
    return 0;
}

bool split_cpu(const char *word, size_t size, int *threads)
{
    char *end = (char *)(uintptr_t)word + size;
    *threads = 0;
    if (size == 3 && !strncmp(word, "cpu", 3))
        return true;
    if (size < 5 || strncmp(word, "cpu:", 4) != 0 || word[4] < '0' || word[4] > '9')
        return false;
    long n = strtol(word + 4, &end, 10);
    *threads = n > 0 && n <= 1024 ? (int)n : 0;
    return end == word + size && *threads;
}

static int check_empty(const struct hone_session_params *p, struct hone_error *e)
{
    if (p->split_mode && !*p->split_mode)
        return err_set(e, HONE_EUSAGE, "-sm '': none, layer and tensor are possible");
    if (p->tensor_split && !*p->tensor_split)
        return err_set(e, HONE_EUSAGE, "-ts '': shares such as 3/1, or 0 for even ones");
    if (p->devices && !*p->devices)
        return err_set(e, HONE_EUSAGE, "-dev '': devices, or auto, or none");
    return 0;
}

/* Groups of threads are the parts of a split; the host alone is no group. */
static int check_devices(const char *list, struct hone_error *e)
{
    const char *words[SPLIT_MOST];
    size_t sizes[SPLIT_MOST];
    bool named = list && strcmp(list, "auto") != 0 && strcmp(list, "none") != 0;
    int hosts = 0, n = named ? split_list("-dev", list, words, sizes, e) : 0;
    if (n < 0)
        return e->code;
    for (int i = 0; i < n; i++) {
        const struct backend *b;
        int device, threads;
        if (split_cpu(words[i], sizes[i], &threads))
            hosts += threads ? 2 : 1;
        else if (!places_device(words[i], sizes[i], &b, &device))
            return places_unknown(words[i], sizes[i], e);
    }
    if (hosts > 1)
        return err_set(e, HONE_EUSAGE,
                       "-dev %.80s: groups of threads are parts of a split: -sm tensor, or -sm layer with two of them", list);
    return 0;
}

static int check_shares(const char *text, int n_devices, bool host_only, struct hone_error *e)
{
    double shares[SPLIT_MOST];
    int n, some = 0, rc = split_shares(text, shares, &n, e);
    for (int i = 0; i < n && !rc; i++)
        some += shares[i] > 0;
    if (!rc && some > 1 && n_devices < 2 && !host_only)
        rc =
            err_set(e, HONE_EUSAGE,
                    "-ts %.60s: %d shares, and %d device(s) take layers; -sm tensor or -sm layer splits over groups of threads",
                    text, some, n_devices);
    return rc;
}

int split_words_check(const struct hone_session_params *p, bool split, int n_devices, bool host_only, struct hone_error *e)
{
    int rc = check_empty(p, e);
    if (rc || split)
        return rc;
    rc = check_devices(p->devices, e);
    return rc ? rc : check_shares(p->tensor_split, n_devices, host_only, e);
}
