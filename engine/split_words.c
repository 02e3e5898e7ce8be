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

static const char separators[] = ",/ ";

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
    int hosts = 0;
    if (!list || !strcmp(list, "auto") || !strcmp(list, "none"))
        return 0;
    for (const char *w = list; *w; w += strspn(w, separators)) {
        size_t n = strcspn(w, separators);
        const struct backend *b;
        int device;
        bool group = n > 4 && !strncmp(w, "cpu:", 4) && strspn(w + 4, "0123456789") == n - 4;
        if (group || (n == 3 && !strncmp(w, "cpu", 3)))
            hosts += group ? 2 : 1;
        else if (!places_device(w, n, &b, &device))
            return err_set(e, HONE_EUSAGE, "-dev %.80s: there is no device '%.*s'", list, (int)(n < 40 ? n : 40), w);
        w += n;
    }
    if (hosts > 1)
        return err_set(e, HONE_EUSAGE,
                       "-dev %.80s: groups of threads are parts of a split: -sm tensor, or -sm layer with two of them", list);
    return 0;
}

static int check_shares(const char *text, int n_devices, bool host_only, struct hone_error *e)
{
    int n = 0;
    for (const char *w = text; w && *w;) {
        char *end;
        double x = strtod(w, &end);
        if (end == w || !(x >= 0 && x < 1e9) || (*end && !strchr(separators, *end)))
            return err_set(e, HONE_EUSAGE, "-ts %.60s: shares of zero or more are needed, such as 3/1", text);
        n += x > 0;
        w = end + strspn(end, separators);
    }
    if (n > 1 && n_devices < 2 && !host_only)
        return err_set(
            e, HONE_EUSAGE,
            "-ts %.60s: %d shares, and %d device(s) take layers; -sm tensor or -sm layer splits over groups of threads", text,
            n, n_devices);
    return 0;
}

int split_words_check(const struct hone_session_params *p, bool split, int n_devices, bool host_only, struct hone_error *e)
{
    int rc = check_empty(p, e);
    if (rc || split)
        return rc;
    rc = check_devices(p->devices, e);
    return rc ? rc : check_shares(p->tensor_split, n_devices, host_only, e);
}
