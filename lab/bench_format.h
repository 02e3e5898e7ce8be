/* bench_format.h: rows of `hone bench` in the formats of llama-bench: CSV, JSON, JSON lines, a Markdown table, SQL. */
#ifndef LAB_BENCH_FORMAT_H
#define LAB_BENCH_FORMAT_H

#include "lab/bench_sweep.h"

#include <jansson.h>
#include <stdio.h>

enum bench_format { BENCH_NONE, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_MD, BENCH_SQL };
#define BENCH_FORMATS "none, csv, json, jsonl, md or sql"
int bench_format_by_name(const char *name, enum bench_format *f); /* 0 or -1 */

struct bench_field {
    const char *name, *sql;
    bool own; /* not of llama-bench */
};
const struct bench_field *bench_fields(int *n);

/* Writes a document to a stream as its rows become known. What was written is a whole document after bench_write_end, whenever
 * that comes. */
struct bench_writer {
    FILE *to;
    enum bench_format format;
    const struct bench_sweep *sweep; /* finished; tells Markdown its columns */
    size_t rows;
};
void bench_write_begin(struct bench_writer *w);
/* row: an object with every field of bench_fields, in order. */
void bench_write_row(struct bench_writer *w, const json_t *row);
void bench_write_end(struct bench_writer *w, const char *build_commit, int build_number);

#endif
