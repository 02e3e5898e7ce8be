/* inspect.c: hone inspect: what a GGUF file says about itself and what it holds: metadata, tensors, totals.
 *
 * Nothing is loaded and no weight is read, so it works on files whose architecture or types hone does not run; their tensors
 * are listed with the names that ggml gives the types. A file's bytes never reach the terminal as they are: control and format
 * characters and what is not UTF-8 are escaped. Long arrays and texts are cut in the listing (--all shows everything); in JSON
 * texts are whole, and an array of more than 16 items gives its first 16 as "items" beside its length "n". */
#include "cmd/cmd.h"

#include "base/log.h"
#include "lab/outline.h"
#include "lab/split.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { TEXT_SHOWN = 100, ITEMS_SHOWN = 8, JSON_ITEMS = 16, TYPE_ROWS = 64 };

static bool show_all, no_plan;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"--all", OPTION_FLAG, &show_all, NULL, "arrays and texts in full, and why each other kernel was passed over", 0, 0},
        {"--no-plan", OPTION_FLAG, &no_plan, NULL, "leave out what would run", 0, 0},
        {"-sm, --split-mode", OPTION_TEXT, &model_args.split_mode, "MODE",
         "layer or tensor: how the model would be split over the devices of -ts or -dev", 0, 0},
        {"-ts, --tensor-split", OPTION_TEXT, &model_args.tensor_split, "A/B", "their shares", 0, 0},
        {"-dev, --device", OPTION_TEXT, &model_args.devices, "LIST", "cpu:2,cpu:2 are two groups of two threads", 0, 0},
        {"-t, --threads", OPTION_INT, &model_args.n_threads, "N", "threads of all groups (0: one a core)", 0, 1024},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* Types of ggml that hone does not read: number, name, values a block, bytes a block (ggml's type table). */
static const struct foreign {
    int type;
    const char *name;
    int block, bytes;
} foreign[] = {
    {9, "Q8_1", 32, 36},      {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},      {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {34, "TQ1_0", 256, 54}, {35, "TQ2_0", 256, 66},   {40, "NVFP4", 64, 36},
};

/* What is known of a tensor's type and size. bytes is 0 where the size cannot be told, or would not fit the file. */
struct extent {
    char type[24];
    uint64_t parameters, bytes;
};

static struct extent extent_of(const struct gguf *g, const struct gguf_tensor *t)
{
    struct extent x = {.parameters = 1};
    for (int i = 0; i < 4; i++)
        x.parameters *= (uint64_t)t->ne[i];
    if (t->known) {
        snprintf(x.type, sizeof x.type, "%s", format_get(t->format)->name);
        x.bytes = t->bytes;
        return x;
    }
    snprintf(x.type, sizeof x.type, "type %d", t->gguf_type);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const struct foreign *f = &foreign[i];
        if (f->type != t->gguf_type)
            continue;
        snprintf(x.type, sizeof x.type, "%s", f->name);
        uint64_t blocks = x.parameters / (uint64_t)f->block, room = g->parts[t->part].size - t->offset;
        if (x.parameters % (uint64_t)f->block == 0 && blocks <= room / (uint64_t)f->bytes)
            x.bytes = blocks * (uint64_t)f->bytes;
    }
    return x;
}

struct totals {
    int n_types;
    struct {
        char type[24];
        uint64_t tensors, parameters, bytes;
    } by_type[TYPE_ROWS];
    uint64_t parameters, bytes;
    uint64_t uncounted; /* tensors whose size cannot be told */
};

static void totals_add(struct totals *s, const struct extent *x)
{
    if (!x->bytes) {
        s->uncounted++;
        return;
    }
    int i = 0;
    while (i < s->n_types && strcmp(s->by_type[i].type, x->type) != 0)
        i++;
    INVARIANT(i < TYPE_ROWS); /* only types of hone's and ggml's tables have a size */
    if (i == s->n_types) {
        memcpy(s->by_type[i].type, x->type, sizeof x->type);
        s->n_types++;
    }
    s->by_type[i].tensors++;
    s->by_type[i].parameters += x->parameters;
    s->by_type[i].bytes += x->bytes;
    s->parameters += x->parameters;
    s->bytes += x->bytes;
}

static struct totals count(const struct gguf *g)
{
    struct totals s = {0};
    for (int64_t i = 0; i < g->n_tensors; i++) {
        struct extent x = extent_of(g, &g->tensors[i]);
        totals_add(&s, &x);
    }
    return s;
}

static double bits_per_weight(const struct totals *s)
{
    return s->parameters ? 8 * (double)s->bytes / (double)s->parameters : 0;
}

/* The shortest decimal that gives the same f32 or f64 back. */
static void number_text(char *text, size_t size, double x, bool single)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        double back = strtod(text, NULL);
        if (isnan(x) || (single ? (float)back == (float)x : back == x))
            return;
    }
}

static void item_text(char *text, size_t size, const struct gguf_value *v, uint64_t i)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    uint64_t u;
    switch (t) {
    case GGUF_F32:
    case GGUF_F64:
        number_text(text, size, gguf_number(v, i), t == GGUF_F32);
        break;
    case GGUF_BOOL:
        snprintf(text, size, "%s", gguf_integer(v, i) ? "true" : "false");
        break;
    case GGUF_U64:
        memcpy(&u, (const char *)v->data + i * sizeof u, sizeof u);
        snprintf(text, size, "%" PRIu64, u);
        break;
    default:
        snprintf(text, size, "%" PRId64, gguf_integer(v, i));
    }
}

/* One character of n > 0 bytes; its length, 1 for a byte that begins none. *safe: it can go to a terminal. */
static size_t character(const char *s, uint64_t n, bool *safe)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t size = utf8proc_iterate((const utf8proc_uint8_t *)s, n < 4 ? (utf8proc_ssize_t)n : 4, &c);
    *safe = false;
    if (size <= 0)
        return 1;
    utf8proc_category_t k = utf8proc_category(c);
    *safe = k != UTF8PROC_CATEGORY_CC && k != UTF8PROC_CATEGORY_CF && k != UTF8PROC_CATEGORY_ZL && k != UTF8PROC_CATEGORY_ZP;
    return (size_t)size;
}

static void print_text(struct gguf_string s, uint64_t shown)
{
    putchar('"');
    uint64_t i = 0;
    while (i < s.size && (show_all || i < shown)) {
        bool safe;
        size_t n = character(s.data + i, s.size - i, &safe);
        if (s.data[i] == '"' || s.data[i] == '\\')
            printf("\\%c", s.data[i]);
        else if (s.data[i] == '\n')
            printf("\\n");
        else if (safe)
            fwrite(s.data + i, 1, n, stdout);
        else
            for (size_t k = 0; k < n; k++)
                printf("\\x%02x", (unsigned char)s.data[i + k]);
        i += n;
    }
    putchar('"');
    if (i < s.size)
        printf("... (%" PRIu64 " bytes)", s.size);
}

static void print_value(const struct gguf_value *v)
{
    bool array = v->type == GGUF_ARRAY, strings = v->strings != NULL;
    uint64_t shown = show_all || v->n < ITEMS_SHOWN ? v->n : ITEMS_SHOWN;
    char type[64], text[40];
    snprintf(type, sizeof type, array ? "%s[%" PRIu64 "]" : "%s", gguf_type_name(array ? v->element : v->type), v->n);
    printf("  %-44.*s %-14s ", (int)v->key.size, v->key.data, type);
    for (uint64_t i = 0; i < shown; i++) {
        if (i)
            printf(", ");
        if (strings) {
            print_text(v->strings[i], array ? TEXT_SHOWN / 4 : TEXT_SHOWN);
        } else {
            item_text(text, sizeof text, v, i);
            printf("%s", text);
        }
    }
    printf("%s\n", shown < v->n ? ", ..." : "");
}

static void print_tensors(const struct gguf *g)
{
    int width = 4;
    for (int64_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].name.size > (uint64_t)width)
            width = g->tensors[i].name.size < 60 ? (int)g->tensors[i].name.size : 60;
    printf("tensors (%" PRId64 ")\n", g->n_tensors);
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        struct extent x = extent_of(g, t);
        char shape[100];
        int n = 0;
        for (int d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, d ? " x " : "", t->ne[d]);
        printf("  %-*s %-8s %-24s", width, t->cname, x.type, shape);
        if (x.bytes)
            printf(" %12" PRIu64 " bytes", x.bytes);
        printf("%s\n", t->known ? "" : "  (hone does not read this type)");
    }
}

static void print_totals(const struct totals *s)
{
    printf("totals\n");
    for (int i = 0; i < s->n_types; i++)
        printf("  %-8s %6" PRIu64 " tensors %14" PRIu64 " parameters %14" PRIu64 " bytes\n", s->by_type[i].type,
               s->by_type[i].tensors, s->by_type[i].parameters, s->by_type[i].bytes);
    printf("  %" PRIu64 " parameters, %" PRIu64 " bytes (%.1f MiB), %.2f bits per weight\n", s->parameters, s->bytes,
           (double)s->bytes / 0x1p20, bits_per_weight(s));
    if (s->uncounted)
        printf("  not counted: %" PRIu64 " tensors of types whose size is not known\n", s->uncounted);
}

static void print_listing(const struct gguf *g)
{
    for (int i = 0; i < g->n_parts; i++)
        printf("%s  %zu bytes\n", g->part_paths[i], g->parts[i].size);
    printf("GGUF version %u, alignment %u\n\nmetadata (%" PRId64 ")\n", g->version, g->alignment, g->n_values);
    for (int64_t i = 0; i < g->n_values; i++)
        print_value(&g->values[i]);
    printf("\n");
    print_tensors(g);
    printf("\n");
    struct totals s = count(g);
    print_totals(&s);
}

/* A JSON string; bytes that are not UTF-8 become U+FFFD. */
static json_t *string_json(struct gguf_string s)
{
    json_t *j = json_stringn(s.data, s.size);
    char *clean = j ? NULL : malloc(s.size * 3 + 1);
    if (!clean)
        return j;
    size_t n = 0;
    for (uint64_t i = 0; i < s.size;) {
        utf8proc_int32_t c;
        uint64_t left = s.size - i;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s.data + i, left < 4 ? (utf8proc_ssize_t)left : 4, &c);
        memcpy(clean + n, k > 0 ? s.data + i : "\xef\xbf\xbd", k > 0 ? (size_t)k : 3);
        n += k > 0 ? (size_t)k : 3;
        i += k > 0 ? (uint64_t)k : 1;
    }
    j = json_stringn(clean, n);
    free(clean);
    return j;
}

/* What JSON has no number for (NaN, infinity, above 2^63) is a string. */
static json_t *item_json(const struct gguf_value *v, uint64_t i)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    char text[40];
    if (t == GGUF_STRING)
        return string_json(v->strings[i]);
    if (t == GGUF_BOOL)
        return json_boolean(gguf_integer(v, i));
    item_text(text, sizeof text, v, i);
    if (gguf_is_integer(t))
        return gguf_integer(v, i) == INT64_MAX ? json_string(text) : json_integer(gguf_integer(v, i));
    return isfinite(gguf_number(v, i)) ? json_real(strtod(text, NULL)) : json_string(text);
}

static json_t *value_json(const struct gguf_value *v)
{
    if (v->type != GGUF_ARRAY)
        return json_pack("{s:s, s:o}", "type", gguf_type_name(v->type), "value", item_json(v, 0));
    json_t *items = json_array();
    for (uint64_t i = 0; i < v->n && (show_all || i < JSON_ITEMS); i++)
        json_array_append_new(items, item_json(v, i));
    return json_pack("{s:s, s:s, s:I, s:o}", "type", "array", "element", gguf_type_name(v->element), "n", (json_int_t)v->n,
                     "items", items);
}

static json_t *tensor_json(const struct gguf *g, const struct gguf_tensor *t)
{
    struct extent x = extent_of(g, t);
    json_t *shape = json_array();
    for (int d = 0; d < t->n_dims; d++)
        json_array_append_new(shape, json_integer(t->ne[d]));
    json_t *j = json_pack("{s:s, s:s, s:o, s:i, s:I, s:b}", "name", t->cname, "type", x.type, "shape", shape, "part",
                          t->part + 1, "offset", (json_int_t)t->offset, "readable", t->known);
    if (x.bytes)
        json_object_set_new(j, "bytes", json_integer((json_int_t)x.bytes));
    return j;
}

static json_t *totals_json(const struct totals *s)
{
    json_t *types = json_array();
    for (int i = 0; i < s->n_types; i++)
        json_array_append_new(types, json_pack("{s:s, s:I, s:I, s:I}", "type", s->by_type[i].type, "tensors",
                                               (json_int_t)s->by_type[i].tensors, "parameters",
                                               (json_int_t)s->by_type[i].parameters, "bytes", (json_int_t)s->by_type[i].bytes));
    return json_pack("{s:I, s:I, s:f, s:I, s:o}", "parameters", (json_int_t)s->parameters, "bytes", (json_int_t)s->bytes,
                     "bits_per_weight", bits_per_weight(s), "tensors_not_counted", (json_int_t)s->uncounted, "by_type", types);
}

static json_t *listing_json(const struct gguf *g)
{
    json_t *parts = json_array(), *metadata = json_object(), *tensors = json_array();
    for (int i = 0; i < g->n_parts; i++) {
        struct gguf_string path = {g->part_paths[i], strlen(g->part_paths[i])};
        json_array_append_new(parts, json_pack("{s:o, s:I}", "path", string_json(path), "bytes", (json_int_t)g->parts[i].size));
    }
    for (int64_t i = 0; i < g->n_values; i++) {
        char *key = strndup(g->values[i].key.data, g->values[i].key.size);
        if (key)
            json_object_set_new(metadata, key, value_json(&g->values[i]));
        free(key);
    }
    for (int64_t i = 0; i < g->n_tensors; i++)
        json_array_append_new(tensors, tensor_json(g, &g->tensors[i]));
    struct totals s = count(g);
    return json_pack("{s:o, s:I, s:I, s:o, s:o, s:o}", "parts", parts, "version", (json_int_t)g->version, "alignment",
                     (json_int_t)g->alignment, "metadata", metadata, "tensors", tensors, "totals", totals_json(&s));
}

static json_t *cannot_json(const struct hone_error *e)
{
    return json_pack("{s:o}", "cannot", string_json((struct gguf_string){e->message, strlen(e->message)}));
}

/* What each op would run on here, or why the file cannot be run: a file that is no model is still worth a listing. */
static json_t *what_runs(const char *path)
{
    struct hone_error e = {0};
    struct hone_model *m;
    if (hone_model_open(&m, path, &e))
        return cannot_json(&e);
    json_t *runs = outline(m, &e);
    hone_model_close(m);
    return runs ? runs : cannot_json(&e);
}

static double size_of(const json_t *sizes, const char *key)
{
    return (double)json_integer_value(json_object_get(sizes, key));
}

static void print_sizes(const json_t *sizes, const char *left_out)
{
    double kv = size_of(sizes, "kv_bytes_per_position"), delta = size_of(sizes, "delta_state_bytes"), conv = size_of(sizes, "conv_state_bytes");
    printf("\nsizes\n  weights read for a token %14.0f bytes (%.2f GB)\n", size_of(sizes, "weight_bytes_per_token"),
           size_of(sizes, "weight_bytes_per_token") / 1e9);
    if (kv > 0)
        printf("  KV cache a position      %14.0f bytes in f16 (%.1f MB for a context of 4096)\n", kv, kv * 4096 / 1e6);
    if (delta > 0)
        printf("  recurrent state          %14.0f bytes a sequence (%.1f MB), and %.0f of convolutions (%.1f MB)\n", delta, delta / 1e6, conv, conv / 1e6);
    if (left_out && *left_out)
        printf("  left out of the model: %s\n", left_out);
}

static void print_runs(const json_t *runs)
{
    const char *cannot = json_string_value(json_object_get(runs, "cannot"));
    if (cannot) {
        printf("\nwould not run: ");
        print_text((struct gguf_string){cannot, strlen(cannot)}, UINT64_MAX);
        putchar('\n');
        return;
    }
    size_t i, j;
    json_t *row, *not_taken;
    print_sizes(json_object_get(runs, "sizes"), json_string_value(json_object_get(runs, "left_out")));
    printf("\na decode step would run\n");
    json_array_foreach(json_object_get(runs, "decode"), i, row)
    {
        printf("  %4lld x %-40s %s\n", (long long)json_integer_value(json_object_get(row, "nodes")),
               json_string_value(json_object_get(row, "kernel")), json_string_value(json_object_get(row, "reason")));
        bool slow = strstr(json_string_value(json_object_get(row, "kernel")), "_ref") != NULL;
        json_array_foreach(json_object_get(row, "passed_over"), j, not_taken)
        {
            if (slow || show_all)
                printf("           not %-31s %s\n", json_string_value(json_object_get(not_taken, "variant")),
                       json_string_value(json_object_get(not_taken, "reason")));
        }
    }
}

/* How the model would be split, as lines on stdout or as JSON: no weight is read for it. */
static int tell_split(const char *path, json_t **as_json)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_session_params p = hone_session_defaults();
    struct hone_error e = {0};
    p.n_threads = model_args.n_threads;
    p.split_mode = model_args.split_mode;
    p.tensor_split = model_args.tensor_split;
    p.devices = model_args.devices;
    int rc = hone_model_open(&m, path, &e) ? cmd_fail(&e) : 0;
    if (!rc && hone_session_create(&s, m, &p, &e) == HONE_ERESOURCE) { /* it is only looked at: the cells need not fit here */
        log_line(LOG_WARN, "%s; told with the cells of 256 positions", e.message);
        e = (struct hone_error){0};
        p.n_ctx = 256;
        hone_session_create(&s, m, &p, &e);
    }
    if (!rc && e.code)
        rc = cmd_fail(&e);
    if (!rc && as_json) {
        *as_json = split_json(s);
    } else if (!rc && session_shard(s)) {
        putchar('\n');
        split_print(s, stdout);
    } else if (!rc) {
        printf("\nnot split: one device\n");
    }
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

static int run(int n_args, char **args)
{
    struct gguf *g;
    struct hone_error e = {0};
    const char *path = n_args ? args[0] : model_args.model;
    if (!path || n_args > 1 || (n_args && model_args.model))
        return cmd_refuse(HONE_EUSAGE, "inspect: one FILE is wanted");
    if (!model_args.split_mode && model_args.tensor_split)
        return cmd_refuse(HONE_EUSAGE, "inspect: -ts says how a model is split: give -sm tensor or -sm layer");
    if (gguf_open(&g, path, &e))
        return cmd_fail(&e);
    json_t *runs = no_plan ? NULL : what_runs(path), *split = NULL;
    int rc = model_args.split_mode && output_json() ? tell_split(path, &split) : 0;
    if (!rc && output_json()) {
        json_t *all = listing_json(g);
        if (runs)
            json_object_set(all, "runs", runs);
        if (split)
            json_object_set(all, "split", split);
        rc = output_print(all);
    } else if (!rc) {
        print_listing(g);
        if (runs)
            print_runs(runs);
        if (model_args.split_mode)
            rc = tell_split(path, NULL);
    }
    json_decref(split);
    json_decref(runs);
    gguf_close(g);
    return rc;
}

const struct command command_inspect = {
    "inspect",
    "metadata and tensors of a GGUF file",
    "FILE",
    "hone inspect model.gguf\n  hone inspect model.gguf -o json | jq .totals\n  hone inspect model.gguf -sm tensor -ts 2/1",
    options,
    run,
};
