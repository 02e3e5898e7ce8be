/* bench_format.c: one row, an ordered JSON object, written five ways. The order and the types come from bench_fields.def, so a
 * field cannot be in one format and missing in another.
 *
 * Markdown is for people: it has llama-bench's columns, but its t/s is tokens over the summed time of all samples, not the mean
 * of their rates, and what the speed is worth stands beside it: bytes a second, share of the roof, the output's hash, the
 * verdict. SQL makes one table, llama_bench; a second one for our fields would have fitted into a file that llama-bench itself
 * made, and every query would have been a join. */
#include "lab/bench_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name, type) FIELD_##name,
enum field_index {
#include "lab/bench_fields.def"
    N_FIELDS
};
#undef FIELD
#define FIELD(name, type) {#name, #type, FIELD_##name > FIELD_samples_ts},
static const struct bench_field fields[] = {
#include "lab/bench_fields.def"
};
#undef FIELD

const struct bench_field *bench_fields(int *n)
{
    *n = N_FIELDS;
    return fields;
}

int bench_format_by_name(const char *name, enum bench_format *f)
{
    static const char *const names[] = {"none", "csv", "json", "jsonl", "md", "sql"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i])) {
            *f = (enum bench_format)i;
            return 0;
        }
    return -1;
}

enum { JSON_STYLE = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9) };

static void put_json(FILE *to, const json_t *v)
{
    if (json_dumpf(v, to, JSON_STYLE))
        fputs("null", to);
}

static const json_t *field_of(const json_t *row, int i)
{
    const json_t *v = json_object_get(row, fields[i].name);
    return v ? v : json_null();
}

/* ---- JSON */

static void put_object(struct bench_writer *w, const json_t *row)
{
    bool lines = w->format == BENCH_JSON;
    fputs(lines ? "  {\n" : "{", w->to);
    for (int i = 0; i < N_FIELDS; i++) {
        fprintf(w->to, "%s\"%s\": ", lines ? "    " : i ? " " : "", fields[i].name);
        put_json(w->to, field_of(row, i));
        fputs(i + 1 < N_FIELDS ? "," : "", w->to);
        fputs(lines ? "\n" : "", w->to);
    }
    fputs(lines ? "  }" : "}\n", w->to);
}

/* ---- CSV and SQL: strings as they are, all else as JSON text. malloc'd, or NULL for null (and without memory). */

static char *flat(const json_t *v)
{
    if (json_is_null(v))
        return NULL;
    if (json_is_boolean(v))
        return strdup(json_is_true(v) ? "1" : "0");
    return json_is_string(v) ? strdup(json_string_value(v)) : json_dumps(v, JSON_STYLE);
}

static void put_quoted(FILE *to, const char *text, char quote)
{
    fputc(quote, to);
    for (const char *p = text; *p; p++) {
        if (*p == quote)
            fputc(quote, to);
        fputc(*p, to);
    }
    fputc(quote, to);
}

static void put_names(FILE *to, const char *between)
{
    for (int i = 0; i < N_FIELDS; i++)
        fprintf(to, "%s%s", i ? between : "", fields[i].name);
}

static void put_csv(struct bench_writer *w, const json_t *row)
{
    for (int i = 0; i < N_FIELDS; i++) {
        char *text = flat(field_of(row, i));
        fputs(i ? "," : "", w->to);
        put_quoted(w->to, text ? text : "", '"');
        free(text);
    }
    fputc('\n', w->to);
}

static void put_table(FILE *to)
{
    fputs("CREATE TABLE IF NOT EXISTS llama_bench (\n", to);
    for (int i = 0; i < N_FIELDS; i++)
        fprintf(to, "  %s %s%s\n", fields[i].name, fields[i].sql, i + 1 < N_FIELDS ? "," : "");
    fputs(");\n\n", to);
}

static void put_insert(struct bench_writer *w, const json_t *row)
{
    fputs("INSERT INTO llama_bench (", w->to);
    put_names(w->to, ", ");
    fputs(") VALUES (", w->to);
    for (int i = 0; i < N_FIELDS; i++) {
        char *text = flat(field_of(row, i));
        fputs(i ? ", " : "", w->to);
        if (text)
            put_quoted(w->to, text, '\'');
        else
            fputs("NULL", w->to);
        free(text);
    }
    fputs(");\n", w->to);
}

/* ---- Markdown */

enum { ALWAYS = -1, OVER_DEVICES = -2 };

/* A column: llama-bench's heading and width (negative: to the left), and the parameter that it is shown for, or one of these
 * words. */
struct column {
    const char *heading, *field;
    int width, param;
};
static const struct column columns[] = {
    {"model", "model_type", -30, ALWAYS},
    {"size", "model_size", 10, ALWAYS},
    {"params", "model_n_params", 10, ALWAYS},
    {"backend", "backends", -10, ALWAYS},
    {"n_cpu_moe", "n_cpu_moe", 10, BENCH_N_CPU_MOE},
    {"threads", "n_threads", 7, ALWAYS},
    {"devices", "n_devices", -10, OVER_DEVICES},
    {"cpu_mask", "cpu_mask", -10, BENCH_CPU_MASK},
    {"cpu_strict", "cpu_strict", 10, BENCH_CPU_STRICT},
    {"poll", "poll", 10, BENCH_POLL},
    {"n_batch", "n_batch", 7, BENCH_N_BATCH},
    {"n_ubatch", "n_ubatch", 8, BENCH_N_UBATCH},
    {"type_k", "type_k", 6, BENCH_TYPE_K},
    {"type_v", "type_v", 6, BENCH_TYPE_V},
    {"main_gpu", "main_gpu", 10, BENCH_MAIN_GPU},
    {"sm", "split_mode", 6, BENCH_SPLIT_MODE},
    {"nkvo", "no_kv_offload", 10, BENCH_NO_KV_OFFLOAD},
    {"fa", "flash_attn", 3, BENCH_FLASH_ATTN},
    {"dev", "devices", -12, BENCH_DEVICES},
    {"ts", "tensor_split", -12, BENCH_TENSOR_SPLIT},
    {"ot", "tensor_buft_overrides", -21, BENCH_OVERRIDES},
    {"lm", "load_mode", 10, BENCH_LOAD_MODE},
    {"lazy_mode", "lazy_mode", -10, BENCH_LAZY_MODE},
    {"embd", "embeddings", 10, BENCH_EMBEDDINGS},
    {"nopo", "no_op_offload", 4, BENCH_NO_OP_OFFLOAD},
    {"noh", "no_host", 4, BENCH_NO_HOST},
    {"rpk", "repack", 3, BENCH_REPACK},
    {"fitt", "fit_target", 10, BENCH_FIT_TARGET},
    {"fitc", "fit_min_ctx", 11, BENCH_FIT_MIN_CTX},
    {"test", "test", 15, ALWAYS},
    {"t/s", "total_ts", 20, ALWAYS},
    {"x one device", "times_one_device", 12, OVER_DEVICES},
    {"GB/s", "read_bytes_per_second", 6, ALWAYS},
    {"% roof", "roof_share", 6, ALWAYS},
    {"peak MiB", "peak_memory", 8, ALWAYS},
    {"output", "output_hash", -8, ALWAYS},
    {"verdict", "verdict", -15, ALWAYS},
};

static bool shown(const struct bench_writer *w, const struct column *c)
{
    if (c->param == OVER_DEVICES)
        return w->sweep->devices;
    return c->param == ALWAYS || bench_sweep_varied(w->sweep, (enum bench_param)c->param);
}

/* The text in a cell: no line ends, bars escaped; width counts characters, of which all of ours but UTF-8's later bytes are
 * one. */
static void put_cell(FILE *to, const char *text, int width)
{
    int n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        n += (*p & 0xc0) != 0x80;
    int pad = abs(width) > n ? abs(width) - n : 0;
    fprintf(to, " %*s", width > 0 ? pad : 0, "");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '|')
            fputs("\\|", to);
        else
            fputc(*p < 0x20 || *p == 0x7f ? ' ' : *p, to);
    fprintf(to, "%*s |", width < 0 ? pad : 0, "");
}

static void put_header(const struct bench_writer *w)
{
    fputc('|', w->to);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (shown(w, &columns[i]))
            put_cell(w->to, columns[i].heading, columns[i].width);
    fputs("\n|", w->to);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (!shown(w, &columns[i]))
            continue;
        fputc(' ', w->to);
        for (int k = 1; k < abs(columns[i].width); k++)
            fputc('-', w->to);
        fputs(columns[i].width > 0 ? ": |" : "- |", w->to);
    }
    fputc('\n', w->to);
}

/* "one device", "2 local", "2 mpi". */
static void devices_text(char *text, size_t size, const json_t *row)
{
    long long n = json_integer_value(json_object_get(row, "n_devices"));
    const char *transport = json_string_value(json_object_get(json_object_get(row, "collectives"), "transport"));
    if (n < 2)
        snprintf(text, size, "one device");
    else
        snprintf(text, size, "%lld%s%s", n, transport ? " " : "", transport ? transport : "");
}

/* What stands in the cell of a field. */
static void cell_text(char *text, size_t size, const struct column *c, const json_t *row)
{
    const json_t *v = json_object_get(row, c->field);
    double x = json_number_value(v);
    bool failed = json_is_string(json_object_get(row, "error"));
    bool unknown = failed && !json_integer_value(json_object_get(row, "model_size")); /* the model was not opened */
    if (unknown && !strcmp(c->heading, "model"))
        snprintf(text, size, "%s", json_string_value(json_object_get(row, "model_filename")));
    else if (unknown && (!strcmp(c->heading, "size") || !strcmp(c->heading, "params")))
        text[0] = 0;
    else if (failed && !strcmp(c->heading, "backend"))
        snprintf(text, size, "none");
    else if (!strcmp(c->heading, "size"))
        x < 0x1p30 ? snprintf(text, size, "%.2f MiB", x / 0x1p20) : snprintf(text, size, "%.2f GiB", x / 0x1p30);
    else if (!strcmp(c->heading, "params"))
        x < 1e9 ? snprintf(text, size, "%.2f M", x / 1e6) : snprintf(text, size, "%.2f B", x / 1e9);
    else if (!strcmp(c->heading, "t/s"))
        failed ? snprintf(text, size, "failed")
               : snprintf(text, size, "%.2f \xc2\xb1 %.2f", x, json_number_value(json_object_get(row, "stddev_ts")));
    else if (!strcmp(c->heading, "verdict") && failed)
        snprintf(text, size, "%s", json_string_value(json_object_get(row, "error")));
    else if (!strcmp(c->heading, "devices"))
        devices_text(text, size, row);
    else if (!v || json_is_null(v))
        text[0] = 0;
    else if (!strcmp(c->heading, "x one device"))
        snprintf(text, size, "%.3f", x);
    else if (!strcmp(c->heading, "GB/s"))
        snprintf(text, size, "%.1f", x / 1e9);
    else if (!strcmp(c->heading, "% roof"))
        snprintf(text, size, "%.0f", 100 * x);
    else if (!strcmp(c->heading, "peak MiB"))
        snprintf(text, size, "%.0f", json_number_value(json_object_get(v, "cpu")) / 0x1p20);
    else if (!strcmp(c->heading, "output"))
        snprintf(text, size, "%.8s", json_string_value(v));
    else {
        char *all = flat(v);
        snprintf(text, size, "%s", all ? all : "");
        free(all);
    }
}

static void put_line(const struct bench_writer *w, const json_t *row)
{
    char text[1024];
    fputc('|', w->to);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (shown(w, &columns[i])) {
            cell_text(text, sizeof text, &columns[i], row);
            put_cell(w->to, text, columns[i].width);
        }
    fputc('\n', w->to);
}

/* ---- documents */

void bench_write_begin(struct bench_writer *w)
{
    w->rows = 0;
    if (w->format == BENCH_CSV) {
        put_names(w->to, ",");
        fputc('\n', w->to);
    } else if (w->format == BENCH_JSON) {
        fputs("[\n", w->to);
    } else if (w->format == BENCH_MD) {
        put_header(w);
    } else if (w->format == BENCH_SQL) {
        put_table(w->to);
    }
    if (w->format != BENCH_NONE)
        fflush(w->to);
}

void bench_write_row(struct bench_writer *w, const json_t *row)
{
    if (w->format == BENCH_JSON && w->rows)
        fputs(",\n", w->to);
    w->rows++;
    if (w->format == BENCH_CSV)
        put_csv(w, row);
    else if (w->format == BENCH_MD)
        put_line(w, row);
    else if (w->format == BENCH_SQL)
        put_insert(w, row);
    else if (w->format != BENCH_NONE)
        put_object(w, row);
    if (w->format != BENCH_NONE)
        fflush(w->to);
}

void bench_write_end(struct bench_writer *w, const char *build_commit, int build_number)
{
    if (w->format == BENCH_JSON)
        fputs(w->rows ? "\n]\n" : "]\n", w->to);
    else if (w->format == BENCH_MD)
        fprintf(w->to, "\nbuild: %s (%d)\n", build_commit, build_number);
    if (w->format != BENCH_NONE)
        fflush(w->to);
}
