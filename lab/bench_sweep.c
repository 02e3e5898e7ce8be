/* bench_sweep.c: one reader for each kind of value, one odometer for all lists. Nothing that cannot run is left for later: a
 * flag of a device that this build lacks is refused by name before a model is read, since a sweep that fails after an hour was
 * refused an hour late.
 *
 * llama-bench reads ranges with a regular expression and steps in an int: a range that runs backwards gives no tests there, one
 * with factor 1 is an error only if it is long, and 2147483647 overflows. Here each is a refusal with its reason. A struct with
 * a named member for each of the 32 parameters was tried on paper: every list needed its own default, loop and copy. */
#include "lab/bench_sweep.h"
#include "lab/bench_order.h"

#include "backends/backend.h"
#include "engine/kv.h"
#include "comm/comm.h"
#include "formats/formats.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_TEXT,
    KIND_COUNT,
    KIND_SIGNED,
    KIND_SIZE,
    KIND_STEP,
    KIND_THREADS,
    KIND_PERCENT,
    KIND_FLAG,
    KIND_FORMAT,
    KIND_MASK,
    KIND_SHARES,
    KIND_DEVICES,
    KIND_OVERRIDES,
    KIND_PAIR,
    KIND_FLASH,
    KIND_SPLIT_MODE,
    KIND_LOAD_MODE,
    KIND_LAZY_MODE,
};

enum { LIST_LIMIT = 4096, TEST_LIMIT = 100000 };

#define PARAM(NAME, KIND, flags, value, preset, here, why, help) {flags, value, preset, here, why, help},
static const struct bench_param_info infos[] = {
#include "lab/bench_params.def"
};
#undef PARAM
#define PARAM(NAME, KIND, flags, value, preset, here, why, help) KIND_##KIND,
static const enum kind kinds[] = {
#include "lab/bench_params.def"
};
#undef PARAM

const struct bench_param_info *bench_param_get(enum bench_param p)
{
    return &infos[p];
}

/* "-b": the first of an option's names, for messages. */
static int flag_length(enum bench_param p)
{
    return (int)strcspn(infos[p].flags, ",");
}

static int refuse(enum bench_param p, const char *value, size_t n, const char *why, struct hone_error *e)
{
    return err_set(e, HONE_EUSAGE, "%.*s %.*s%s: %s", flag_length(p), infos[p].flags, (int)(n < 60 ? n : 60), value,
                   n < 60 ? "" : "...", why);
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *q = list; *q; q += strcspn(q, " "), q += strspn(q, " "))
        if (strcspn(q, " ") == n && !strncmp(q, word, n))
            return true;
    return false;
}

int bench_list_add(struct bench_list *l, int64_t number, int64_t second, const char *text, struct hone_error *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        struct bench_value *larger = realloc(l->values, cap * sizeof *larger);
        if (!larger)
            return err_set(e, HONE_ERESOURCE, "no memory for a list of %zu values", cap);
        l->values = larger;
        l->cap = cap;
    }
    char *copy = strdup(text);
    if (!copy)
        return err_set(e, HONE_ERESOURCE, "no memory for a list of %zu values", l->n + 1);
    l->values[l->n++] = (struct bench_value){number, second, copy};
    return 0;
}

static void list_free(struct bench_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->values[i].text);
    free(l->values);
    *l = (struct bench_list){0};
}

int bench_gpus(char *name, size_t size)
{
    int n_backends, n = 0;
    const struct backend *const *backends = backend_list(&n_backends);
    if (size)
        *name = 0;
    for (int b = 0; b < n_backends; b++)
        for (int i = 0; !backends[b]->host && i < backends[b]->n_devices(); i++) {
            struct device_info d;
            if (!n++ && size && !backends[b]->device(i, &d, NULL))
                snprintf(name, size, "%s", d.name);
        }
    return n;
}

/* Whether it can be done here: what is about devices depends on the machine, too. */
static bool possible(enum bench_param p, const char *text)
{
    bool of_devices = p == BENCH_N_GPU_LAYERS || p == BENCH_DEVICES || p == BENCH_TENSOR_SPLIT;
    return !infos[p].here || word_in(infos[p].here, text) || (of_devices && bench_gpus(NULL, 0));
}

/* A value that was read: can this build do it? */
static int accept(struct bench_sweep *s, enum bench_param p, int64_t number, int64_t second, const char *text,
                  struct hone_error *e)
{
    if (!possible(p, text))
        return refuse(p, text, strlen(text), infos[p].why, e);
    if (s->lists[p].n >= LIST_LIMIT)
        return refuse(p, text, strlen(text), "a list of more than 4096 values", e);
    return bench_list_add(&s->lists[p], number, second, text, e);
}

static int accept_number(struct bench_sweep *s, enum bench_param p, int64_t number, struct hone_error *e)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return accept(s, p, number, 0, text, e);
}

/* ---- numbers and ranges */

static bool digits(const char **at, int64_t *out)
{
    const char *q = *at;
    int64_t v = 0;
    if (!isdigit((unsigned char)*q))
        return false;
    for (; isdigit((unsigned char)*q); q++)
        v = v > INT32_MAX ? v : 10 * v + (*q - '0'); /* stays beyond every limit */
    *at = q;
    *out = v;
    return true;
}

static void limits(enum kind k, int64_t *lo, int64_t *hi)
{
    *lo = k == KIND_SIGNED ? -INT32_MAX : k == KIND_SIZE || k == KIND_STEP ? 1 : 0;
    *hi = k == KIND_THREADS ? 1024 : k == KIND_PERCENT ? 100 : k == KIND_STEP ? 65536 : INT32_MAX;
}

/* first[-last[+step|*factor]] */
static int read_range(struct bench_sweep *s, enum bench_param p, const char *text, size_t n, struct hone_error *e)
{
    const char *q = text, *end = text + n;
    int64_t first, last, by = 1, lo, hi;
    char op = '+';
    limits(kinds[p], &lo, &hi);
    bool minus = lo < 0 && *q == '-';
    q += minus;
    if (!digits(&q, &first))
        return refuse(p, text, n, "not a number or a range (first-last, first-last+step, first-last*factor)", e);
    first = minus ? -first : first;
    last = first;
    if (*q == '-') {
        q++;
        if (!digits(&q, &last))
            return refuse(p, text, n, "a range needs an end", e);
        if (*q == '+' || *q == '*') {
            op = *q++;
            if (!digits(&q, &by))
                return refuse(p, text, n, "a range needs a step or a factor", e);
        }
    }
    if (q != end)
        return refuse(p, text, n, "not a number or a range (first-last, first-last+step, first-last*factor)", e);
    if (first < lo || last > hi || first > hi) {
        char why[80];
        snprintf(why, sizeof why, "%lld to %lld are possible", (long long)lo, (long long)hi);
        return refuse(p, text, n, why, e);
    }
    if (last < first)
        return refuse(p, text, n, "the range runs backwards", e);
    if (op == '+' ? by < 1 : by < 2 || first < 1)
        return refuse(p, text, n, "the range would never end", e);
    for (int64_t i = first; i <= last; i = op == '+' ? i + by : i * by) {
        int rc = accept_number(s, p, i, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- words */

static int read_word(struct bench_sweep *s, enum bench_param p, const char *text, const char *known, struct hone_error *e)
{
    char why[120];
    snprintf(why, sizeof why, "%s are possible", known);
    return word_in(known, text) ? accept(s, p, 0, 0, text, e) : refuse(p, text, strlen(text), why, e);
}

/* -1: none of them. */
static int truth(const char *text)
{
    return word_in("1 on true enabled", text) ? 1 : word_in("0 off false disabled", text) ? 0 : -1;
}

static int read_flag(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    int v = truth(text);
    return v < 0 ? refuse(p, text, strlen(text), "0 or 1 are possible", e) : accept_number(s, p, v, e);
}

static int read_flash(struct bench_sweep *s, const char *text, struct hone_error *e)
{
    int v = truth(text);
    if (v < 0 && !word_in("auto -1", text))
        return refuse(BENCH_FLASH_ATTN, text, strlen(text), "on, off or auto are possible", e);
    return accept(s, BENCH_FLASH_ATTN, v, 0, v < 0 ? "auto" : v ? "on" : "off", e);
}

static int read_format(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    enum format_id f;
    if (format_by_name(text, &f))
        return refuse(p, text, strlen(text), "no such format", e);
    if (kv_format(text, "", &f, NULL))
        return refuse(p, text, strlen(text), "no format for a cache", e);
    return accept(s, p, 0, 0, text, e);
}

enum { MASK_DIGITS = 128 };

static int read_mask(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    const char *q = !strncmp(text, "0x", 2) ? text + 2 : text;
    size_t n = strspn(q, "0123456789abcdefABCDEF");
    if (!n || q[n] || n > MASK_DIGITS)
        return refuse(p, text, strlen(text), "not a mask of up to 128 hexadecimal digits", e);
    return accept(s, p, 0, 0, text, e);
}

/* "1/9": the shares of several devices, shown as llama-bench shows them, up to the last that is not 0. */
static int read_shares(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    char shown[1024] = "";
    size_t used = 0, kept = 0;
    int parts = 0, n = 0; /* all; up to the last above 0 */
    for (const char *q = text;; q++) {
        char *end;
        errno = 0;
        double v = isdigit((unsigned char)*q) || *q == '.' ? strtod(q, &end) : -1;
        if (v < 0 || errno || !isfinite(v) || v > 1e9 || (*end && *end != '/' && *end != ';'))
            return refuse(p, text, strlen(text), "not shares such as 3/1", e);
        if (parts == 16)
            return refuse(p, text, strlen(text), "more than 16 shares", e);
        used += (size_t)snprintf(shown + used, sizeof shown - used, "%s%.2f", parts ? "/" : "", v);
        if (!parts++ || v > 0) {
            kept = used;
            n = parts;
        }
        q = end;
        if (!*q)
            break;
    }
    shown[kept] = 0;
    return accept(s, p, n, 0, shown, e);
}

/* Groups of threads, "cpu:2/cpu:2": how many; 0: something else. */
static int thread_groups(const char *text)
{
    int n = 0;
    for (const char *q = text;; q++) {
        if (strncmp(q, "cpu", 3) != 0)
            return 0;
        q += 3;
        if (*q == ':')
            q += 1 + strspn(q + 1, "0123456789");
        n++;
        if (!*q)
            return n;
        if (*q != '/')
            return 0;
    }
}

static int read_devices(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    bool cpu = !strcmp(text, "cpu") || !strcmp(text, "cpu:0") || !strcmp(text, "CPU");
    int groups = thread_groups(text), named = 1;
    if (groups > 1)
        return bench_list_add(&s->lists[p], groups, 0, text, e);
    for (const char *q = text; *q; q++)
        named += *q == '/';
    if (!strcmp(text, "auto"))
        named = bench_gpus(NULL, 0);
    return accept(s, p, named > 1 ? named : 0, 0, cpu ? "cpu" : text, e);
}

static int read_one(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    switch (kinds[p]) {
    case KIND_TEXT:
        return accept(s, p, 0, 0, text, e);
    case KIND_COUNT:
    case KIND_SIGNED:
    case KIND_SIZE:
    case KIND_STEP:
    case KIND_THREADS:
    case KIND_PERCENT:
        return read_range(s, p, text, strlen(text), e);
    case KIND_FLAG:
        return read_flag(s, p, text, e);
    case KIND_FORMAT:
        return read_format(s, p, text, e);
    case KIND_MASK:
        return read_mask(s, p, text, e);
    case KIND_SHARES:
        return read_shares(s, p, text, e);
    case KIND_DEVICES:
        return read_devices(s, p, text, e);
    case KIND_OVERRIDES:
        return accept(s, p, 0, 0, text, e);
    case KIND_FLASH:
        return read_flash(s, text, e);
    case KIND_SPLIT_MODE:
        return read_word(s, p, text, "none layer row tensor", e);
    case KIND_LOAD_MODE:
        return read_word(s, p, text, "auto none mmap mlock mmap+mlock dio", e);
    case KIND_LAZY_MODE:
        return read_word(s, p, text, "on auto off", e);
    case KIND_PAIR:
        break;
    }
    return refuse(p, text, strlen(text), "cannot be read", e);
}

static int read_pair(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    const char *q = text;
    int64_t a, b = 0;
    if (!digits(&q, &a) || *q++ != ',' || !digits(&q, &b) || *q)
        return refuse(p, text, strlen(text), "two numbers with a comma between are needed: prompt, generation", e);
    if (a > INT32_MAX || b > INT32_MAX)
        return refuse(p, text, strlen(text), "0 to 2147483647 are possible", e);
    return accept(s, p, a, b, text, e);
}

int bench_sweep_add(struct bench_sweep *s, enum bench_param p, const char *text, struct hone_error *e)
{
    if (kinds[p] == KIND_PAIR)
        return read_pair(s, p, text, e);
    if (kinds[p] == KIND_OVERRIDES && !*text)
        text = "none";
    int rc = 0;
    for (const char *q = text; !rc; q++) {
        size_t n = strcspn(q, ",");
        char *one = n ? strndup(q, n) : NULL;
        if (!n)
            return refuse(p, text, strlen(text), "a value is missing", e);
        rc = one ? read_one(s, p, one, e) : err_set(e, HONE_ERESOURCE, "no memory for a value of %zu bytes", n);
        free(one);
        q += n;
        if (!*q || !q[1]) /* a comma at the end is forgiven, as in llama-bench */
            break;
    }
    return rc;
}

/* The fewest and the most parts that a configuration is shared out over. */
static void parts_of(const struct bench_list *l, int64_t *least, const struct bench_value **most)
{
    *least = INT64_MAX;
    *most = NULL;
    for (size_t i = 0; i < l->n; i++) {
        *least = l->values[i].number < *least ? l->values[i].number : *least;
        *most = !*most || l->values[i].number > (*most)->number ? &l->values[i] : *most;
    }
}

/* A split by tensors in each configuration is over two devices or more; and where there are parts, some configuration is split. */
static int check_split(const struct bench_sweep *s, struct hone_error *e)
{
    bool tensor = false, any = false;
    int64_t shares, devices;
    const struct bench_value *most_shares, *most_devices;
    for (size_t i = 0; i < s->lists[BENCH_SPLIT_MODE].n; i++) {
        tensor |= !strcmp(s->lists[BENCH_SPLIT_MODE].values[i].text, "tensor");
        any |= strcmp(s->lists[BENCH_SPLIT_MODE].values[i].text, "none") != 0;
    }
    parts_of(&s->lists[BENCH_TENSOR_SPLIT], &shares, &most_shares);
    parts_of(&s->lists[BENCH_DEVICES], &devices, &most_devices);
    if (tensor && shares < 2 && devices < 2 && !comm_mpi_launched())
        return err_set(e, HONE_EUSAGE, "-sm tensor: over which devices? -ts 1/1 for two groups of threads, or -dev cpu:1/cpu:1");
    if (any || bench_gpus(NULL, 0))
        return 0;
    if (most_shares && most_shares->number > 1)
        return err_set(e, HONE_EUSAGE, "-ts %s: -sm none splits nothing", most_shares->text);
    if (most_devices && most_devices->number > 1)
        return err_set(e, HONE_EUSAGE, "-dev %s: -sm none splits nothing", most_devices->text);
    return 0;
}

int bench_sweep_finish(struct bench_sweep *s, struct hone_error *e)
{
    size_t outer = 1;
    if (!s->lists[BENCH_MODEL].n)
        return err_set(e, HONE_EUSAGE, "which model? give -m FILE");
    for (int p = 0; p < N_BENCH_PARAMS; p++) {
        struct bench_list *l = &s->lists[p];
        int rc = l->n || !infos[p].preset ? 0 : bench_sweep_add(s, (enum bench_param)p, infos[p].preset, e);
        if (rc)
            return rc;
        if (p < BENCH_N_PROMPT && __builtin_mul_overflow(outer, l->n, &outer))
            return err_set(e, HONE_EUSAGE, "more than %d tests", TEST_LIMIT);
    }
    if (check_split(s, e))
        return e->code;
    s->inner = 0;
    for (int p = BENCH_N_PROMPT; p < N_BENCH_PARAMS; p++)
        for (size_t i = 0; i < s->lists[p].n; i++)
            s->inner += s->lists[p].values[i].number || s->lists[p].values[i].second;
    if (!s->inner)
        return err_set(e, HONE_EUSAGE, "no tests: -p, -n and -pg are 0");
    if (__builtin_mul_overflow(outer, s->inner, &s->n_tests) || s->n_tests > TEST_LIMIT)
        return err_set(e, HONE_EUSAGE, "more than %d tests", TEST_LIMIT);
    return bench_order_make(s, e);
}

void bench_sweep_free(struct bench_sweep *s)
{
    for (int p = 0; p < N_BENCH_PARAMS; p++)
        list_free(&s->lists[p]);
    list_free(&s->alone);
    free(s->order);
    *s = (struct bench_sweep){0};
}

bool bench_sweep_varied(const struct bench_sweep *s, enum bench_param p)
{
    const struct bench_list *l = &s->lists[p];
    if (!infos[p].preset || l->n != 1)
        return l->n > 1;
    struct bench_sweep preset = {0};
    struct hone_error e = {0};
    bool same = !bench_sweep_add(&preset, p, infos[p].preset, &e) && !strcmp(l->values[0].text, preset.lists[p].values[0].text);
    bench_sweep_free(&preset);
    return !same;
}

char *bench_test_name(int32_t n_prompt, int32_t n_gen, int32_t n_depth, char *text, size_t size)
{
    char depth[32] = "";
    if (n_depth > 0)
        snprintf(depth, sizeof depth, " @ d%d", n_depth);
    if (n_gen == 0)
        snprintf(text, size, "pp%d%s", n_prompt, depth);
    else if (n_prompt == 0)
        snprintf(text, size, "tg%d%s", n_gen, depth);
    else
        snprintf(text, size, "pp%d+tg%d%s", n_prompt, n_gen, depth);
    return text;
}
