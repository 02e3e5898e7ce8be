/* journal.c (fuzz): a journal that is hostile in its meaning. Lines of the input become records whose numbers and hashes are right, so that they are
 * imported and every reader meets what their bodies, names, values and references say; the input is also imported as it is.
 *
 * A line is: a letter for the kind, a letter for the run it refers to (how many records back), a name up to a tab, a body that is JSON. */
#include "lab/journal_judge.h"
#include "lab/journal_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const kinds[] = {"build", "machine", "model", "recipe", "run", "sample", "check", "verdict", "decision", "note", "outcome", "end"};

/* One line as a record behind those that are written to `to`; what cannot be one is left out. */
static void add_line(FILE *to, const char *line, size_t n, int64_t *number, char previous[65])
{
    struct hone_error e = {0};
    struct line text = {0};
    struct sha256 hash, name_hash;
    const char *tab = memchr(line, '\t', n);
    if (n < 3 || !tab || tab < line + 2)
        return;
    char *name = strndup(line + 2, (size_t)(tab - line) - 2);
    json_t *body = json_loadb(tab + 1, n - (size_t)(tab + 1 - line), JSON_REJECT_DUPLICATES, NULL);
    char *body_line = body_text(body);
    struct record r = {.number = *number, .at = (int64_t)(line[1] * 1000003LL * line[0]), .run = *number - (line[1] & 31),
                       .chain = "fedcba9876543210fedcba9876543210", .kind = kinds[(unsigned char)line[0] % 12], .name = name, .body = body_line,
                       .previous = previous};
    bool identity = record_is_identity(r.kind), sample = !strcmp(r.kind, "sample");
    if (body_line && identity && !hash_sha256(&name_hash, body_line, strlen(body_line), &e))
        r.name = name_hash.hex;
    if (identity || !strcmp(r.kind, "run") || r.run == *number)
        r.run = 0;
    if (!identity && !sample && strcmp(r.kind, "run") != 0)
        r.name = NULL;
    r.has_value = sample;
    r.value = sample ? atof(name) : 0;
    if (body_line && !record_check(&r, &e) && !record_line(&text, &r, &hash, &e)) {
        fprintf(to, "%.*s,\"hash\":\"%s\"}\n", (int)text.n - 1, text.data, hash.hex);
        memcpy(previous, hash.hex, 65);
        ++*number;
    }
    line_free(&text);
    json_decref(body);
    free(body_line);
    free(name);
}

/* Line by line, since one record that must not come in takes its whole file with it. */
static void import(struct journal *j, char *text, size_t n)
{
    struct hone_error e = {0};
    int64_t added, known;
    FILE *from = n ? fmemopen(text, n, "r") : NULL;
    if (!from)
        return;
    journal_import(j, from, "in", &added, &known, &e);
    fclose(from);
}

static void read_run(struct journal *j, int64_t id)
{
    struct hone_error e = {0};
    json_t *run = NULL, *records, *verdict = NULL;
    struct journal_contrast *list;
    size_t n;
    bool agrees;
    if (!journal_get(j, id, &run, &e))
        journal_rederive(j, run, &verdict, &agrees, &e);
    json_t *d = run ? journal_differences(run, verdict ? verdict : run) : NULL;
    json_decref(d);
    json_decref(verdict);
    json_decref(run);
    e.code = 0;
    journal_records(j, id, NULL, &records, &e);
    json_decref(records);
    journal_compare(j, id, id, 0.9, &list, &n, &e);
    journal_contrasts_free(list, n);
}

static void read_all(struct journal *j)
{
    struct hone_error e = {0};
    struct journal_filter f = {.model = "a", .recipe = "0", .series = "*", .superseded = false}, all = {.superseded = true};
    struct journal_histories h;
    struct journal_trend *trends;
    struct journal_checked c;
    json_t *runs, *run;
    size_t i;
    int64_t n;
    journal_list(j, &f, &runs, &e);
    json_decref(runs);
    e.code = 0;
    journal_list(j, &all, &runs, &e);
    json_array_foreach(runs, i, run)
        read_run(j, json_integer_value(json_object_get(run, "id")));
    json_decref(runs);
    e.code = 0;
    if (!journal_history(j, &all, &h, &e)) {
        if (!journal_regress(&h, 0.05, 0, &trends, &e))
            journal_trends_free(trends, h.n);
        journal_history_free(&h);
    }
    e.code = 0;
    INVARIANT(journal_verify(j, &c, &e) == 0); /* whatever came in is whole */
    FILE *null = fopen("/dev/null", "w");
    INVARIANT(journal_export(j, 0, null, &n, &e) == 0);
    fclose(null);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], ends[3][70], previous[65], *text;
    struct hone_error e = {0};
    struct journal *j;
    int64_t number = 1;
    size_t n;
    snprintf(path, sizeof path, "%s/hone-fuzz-%ld.db", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid());
    snprintf(ends[0], sizeof ends[0], "%s", path);
    snprintf(ends[1], sizeof ends[1], "%s-wal", path);
    snprintf(ends[2], sizeof ends[2], "%s-shm", path);
    INVARIANT(journal_open(&j, path, JOURNAL_WRITE, &e) == 0);
    import(j, (char *)data, size);
    memcpy(previous, first_previous, sizeof previous);
    FILE *to = open_memstream(&text, &n);
    for (const char *p = (const char *)data, *end = p + size; p < end && number < 200;) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t k = line_end ? (size_t)(line_end - p) : (size_t)(end - p);
        long before = ftell(to);
        char kept[65];
        int64_t at = number;
        memcpy(kept, previous, sizeof kept);
        add_line(to, p, k, &number, previous);
        fflush(to);
        if (number > at) { /* into the journal by itself; if it is refused the next takes its place */
            char *one = NULL;
            int size_one = asprintf(&one, "%s{\"records\":1}\n", text + before);
            int64_t added = 0, known = 0;
            FILE *from = size_one > 0 ? fmemopen(one, (size_t)size_one, "r") : NULL;
            e.code = 0;
            if (!from || journal_import(j, from, "line", &added, &known, &e)) {
                number = at;
                memcpy(previous, kept, sizeof kept);
            }
            if (from)
                fclose(from);
            free(one);
        }
        p += k + (line_end != NULL);
    }
    fclose(to);
    free(text);
    read_all(j);
    journal_close(j);
    for (int i = 0; i < 3; i++)
        unlink(ends[i]);
    return 0;
}
