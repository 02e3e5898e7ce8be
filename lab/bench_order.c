/* bench_order.c: see bench_order.h. The tests come in llama-bench's order, that of nested loops over the lists. A stretch of
 * them that differs in depth and test alone and runs over several devices has its one-device tests in front of it, as a stretch
 * of their own: a session is made once for each, and the depth filled once. One-device tests among the others would make a new
 * session each.
 *
 * A test that stands in the sweep already, asked for or put there for an earlier split of the same threads, is not put there
 * again. */
#include "lab/bench_order.h"

#include "base/cpu.h"
#include "lab/one_device.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALONE_MODE, ALONE_DEVICES, ALONE_SHARES, ALONE_THREADS };

static int64_t number(const struct bench_config *c, enum bench_param p)
{
    return c->values[p]->number;
}

struct hone_session_params bench_session_params(const struct bench_config *c)
{
    struct hone_session_params p = hone_session_defaults();
    int64_t batch = number(c, BENCH_N_BATCH), step = number(c, BENCH_N_UBATCH);
    p.n_batch = (int32_t)(step < batch ? step : batch); /* llama.cpp lowers the step to the call, too */
    p.n_threads = (int32_t)(number(c, BENCH_N_THREADS) ? number(c, BENCH_N_THREADS) : cpu_cores());
    p.poll = (int32_t)number(c, BENCH_POLL);
    p.type_k = c->values[BENCH_TYPE_K]->text;
    p.type_v = c->values[BENCH_TYPE_V]->text;
    p.split_mode = c->values[BENCH_SPLIT_MODE]->text;
    /* Shares and groups of threads are those of the configurations beside it that are split. */
    bool whole = !strcmp(p.split_mode, "none") && !bench_gpus(NULL, 0);
    p.tensor_split = whole ? NULL : c->values[BENCH_TENSOR_SPLIT]->text;
    p.devices = whole ? NULL : c->values[BENCH_DEVICES]->text;
    p.n_gpu_layers = (int32_t)number(c, BENCH_N_GPU_LAYERS);
    return p;
}

static void count_devices(struct bench_config *c)
{
    struct hone_session_params p = bench_session_params(c);
    c->n_devices = devices_of(&p, &c->n_threads);
}

void bench_test_get(const struct bench_sweep *s, size_t i, struct bench_config *c)
{
    *c = (struct bench_config){0};
    size_t outer = i / s->inner, test = i % s->inner;
    for (int p = BENCH_N_PROMPT; p-- > 0; outer /= s->lists[p].n)
        c->values[p] = &s->lists[p].values[outer % s->lists[p].n];
    count_devices(c);
    for (int p = BENCH_N_PROMPT; p < N_BENCH_PARAMS; p++)
        for (size_t j = 0; j < s->lists[p].n; j++) {
            const struct bench_value *v = &s->lists[p].values[j];
            if ((v->number || v->second) && test-- == 0) {
                c->n_prompt = p == BENCH_N_GEN ? 0 : (int32_t)v->number;
                c->n_gen = (int32_t)(p == BENCH_N_GEN ? v->number : v->second);
                return;
            }
        }
}

/* On one device with the threads of all. */
static void leave_alone(const struct bench_sweep *s, struct bench_config *c)
{
    size_t i = ALONE_THREADS;
    while (i + 1 < s->alone.n && s->alone.values[i].number != c->n_threads)
        i++;
    c->values[BENCH_SPLIT_MODE] = &s->alone.values[ALONE_MODE];
    c->values[BENCH_DEVICES] = &s->alone.values[ALONE_DEVICES];
    c->values[BENCH_TENSOR_SPLIT] = &s->alone.values[ALONE_SHARES];
    c->values[BENCH_N_THREADS] = &s->alone.values[i];
    c->n_devices = 1;
    c->alone = true;
}

void bench_sweep_get(const struct bench_sweep *s, size_t i, struct bench_config *c)
{
    bench_test_get(s, s->order ? s->order[i].test : i, c);
    if (s->order && s->order[i].alone)
        leave_alone(s, c);
}

char *bench_alone_key(const struct bench_config *c)
{
    char *key = NULL;
    size_t size;
    FILE *f = open_memstream(&key, &size);
    for (int p = 0; p < BENCH_N_PROMPT && f; p++)
        if (p != BENCH_SPLIT_MODE && p != BENCH_DEVICES && p != BENCH_TENSOR_SPLIT && p != BENCH_N_THREADS)
            fprintf(f, "%s\x1f", c->values[p]->text);
    if (f)
        fprintf(f, "%d %d %d", c->n_threads, c->n_prompt, c->n_gen);
    if (f && fclose(f)) {
        free(key);
        key = NULL;
    }
    return key;
}

bool bench_on_host(const struct bench_config *c)
{
    const char *devices = c->values[BENCH_DEVICES]->text;
    return c->n_devices == 1 &&
           (!bench_gpus(NULL, 0) || !number(c, BENCH_N_GPU_LAYERS) || !strcmp(devices, "none") || !strcmp(devices, "cpu"));
}

/* Adds the key of a test; *had: it was there. */
static int note(json_t *seen, const struct bench_config *c, bool *had, struct hone_error *e)
{
    char *key = bench_alone_key(c);
    *had = key && json_object_get(seen, key);
    int rc = key && (*had || !json_object_set_new_nocheck(seen, key, json_true()))
                 ? 0
                 : err_set(e, HONE_ERESOURCE, "no memory for a sweep");
    free(key);
    return rc;
}

/* Whether b continues a's stretch: another depth or test. */
static bool same_stretch(const struct bench_config *a, const struct bench_config *b)
{
    for (int p = 0; p < BENCH_N_PROMPT; p++)
        if (p != BENCH_N_DEPTH && a->values[p] != b->values[p])
            return false;
    return true;
}

static int add_threads(struct bench_sweep *s, int n, struct hone_error *e)
{
    char text[16];
    for (size_t i = ALONE_THREADS; i < s->alone.n; i++)
        if (s->alone.values[i].number == n)
            return 0;
    snprintf(text, sizeof text, "%d", n);
    return bench_list_add(&s->alone, n, 0, text, e);
}

/* The tests from first on that belong together: one-device tests that are not there yet, then themselves. Returns how many; -1:
 * *e. */
static int add_stretch(struct bench_sweep *s, size_t first, size_t n_tests, json_t *seen, struct hone_error *e)
{
    struct bench_config begin, c;
    int n = 0, rc = 0;
    bench_test_get(s, first, &begin);
    for (size_t i = first; i < n_tests && !rc; i++, n++) {
        bool had = true;
        bench_test_get(s, i, &c);
        if (!same_stretch(&begin, &c))
            break;
        if (c.n_devices > 1 && !s->no_alone)
            rc = note(seen, &c, &had, e);
        if (!rc && !had)
            rc = add_threads(s, c.n_threads, e);
        if (!rc && !had)
            s->order[s->n_tests++] = (struct bench_place){i, true};
    }
    for (int i = 0; i < n && !rc; i++)
        s->order[s->n_tests++] = (struct bench_place){first + (size_t)i, false};
    return rc ? -1 : n;
}

/* Notes the tests that are on one device as they stand, and whether any is on more. */
static int look_through(struct bench_sweep *s, json_t *seen, struct hone_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < s->n_tests && !rc; i++) {
        struct bench_config c;
        bool had;
        bench_test_get(s, i, &c);
        s->devices |= c.n_devices > 1;
        if (bench_on_host(&c))
            rc = note(seen, &c, &had, e);
    }
    return rc;
}

int bench_order_make(struct bench_sweep *s, struct hone_error *e)
{
    static const char *const words[] = {"none", "none", "0.00"};
    size_t n_tests = s->n_tests;
    json_t *seen = json_object();
    int rc = seen ? look_through(s, seen, e) : err_set(e, HONE_ERESOURCE, "no memory for a sweep");
    for (int i = 0; i < ALONE_THREADS && !rc && s->devices; i++)
        rc = bench_list_add(&s->alone, 0, 0, words[i], e);
    if (!rc && s->devices && !(s->order = calloc(2 * n_tests, sizeof *s->order)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a sweep of %zu tests", n_tests);
    if (!rc && s->devices) {
        s->n_tests = 0;
        for (size_t i = 0; i < n_tests && !rc;) {
            int n = add_stretch(s, i, n_tests, seen, e);
            rc = n < 0 ? e->code : 0;
            i += n < 0 ? 0 : (size_t)n;
        }
    }
    json_decref(seen);
    return rc;
}
