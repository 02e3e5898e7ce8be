/* test_report.c: a report says what the journal holds and nothing that the journal's text could make it say: verdicts anew, plots where
 * there is something to plot, hostile names harmless in page, plot and terminal. */
#include "test.h"

#include "lab/ab_record.h"
#include "lab/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/hone-report-XXXXXX";
#define HOSTILE "<script>alert('x')</script>\x1b[2J`$(touch x)`\""

static struct journal *open_new(void)
{
    struct journal *j;
    struct hone_error e = {0};
    char name[64];
    for (int i = 0; i < 3; i++) {
        static const char *const tails[] = {"", "-wal", "-shm"};
        snprintf(name, sizeof name, "%s%s", path, tails[i]);
        unlink(name);
    }
    if (journal_open(&j, path, JOURNAL_WRITE, &e))
        fail_msg("%s", e.message);
    return j;
}

static int64_t begin(struct journal *j, const char *kind, json_t *config)
{
    struct hone_error e = {0};
    int64_t run;
    json_t *model = json_pack("{s:s}", "name", HOSTILE), *machine = json_pack("{s:s}", "cpu", "a processor");
    struct journal_run r = {.kind = kind, .command = HOSTILE, .hypothesis = HOSTILE, .expected_gain = NAN, .config = config, .model = model, .machine = machine};
    if (journal_run_begin(j, &r, &run, &e))
        fail_msg("%s", e.message);
    json_decref(model);
    json_decref(machine);
    json_decref(config);
    return run;
}

static void end(struct journal *j, int64_t run)
{
    struct hone_error e = {0};
    json_t *o = json_pack("{s:s}", "status", "done");
    assert_int_equal(journal_run_end(j, run, o, &e), 0);
    json_decref(o);
}

static void record(struct journal *j, int64_t run, const char *kind, json_t *body)
{
    struct hone_error e = {0};
    if (journal_record(j, run, kind, body, NULL, &e))
        fail_msg("%s", e.message);
    json_decref(body);
}

/* Ten runs at 100 t/s, ten at 80. */
static void fill_history(struct journal *j)
{
    struct hone_error e = {0};
    for (int i = 0; i < 20; i++) {
        int64_t run = begin(j, "bench", json_pack("{s:s}", "test", "tg16"));
        for (int k = 0; k < 3; k++)
            assert_int_equal(journal_sample(j, run, "tg16 t/s", (i < 10 ? 100 : 80) + 0.3 * ((i * 7 + k) % 5), NULL, &e), 0);
        end(j, run);
    }
}

static void fill_ladder(struct journal *j)
{
    int64_t run = begin(j, "ladder", json_object());
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"reference", "mul_mat", HOSTILE};
        record(j, run, "check", json_pack("{s:s, s:b, s:f, s:f, s:i, s:s, s:s, s:{s:s, s:f}}", "rung", names[i], "kept", i < 2,
                                          "decode_tokens_per_second", 10.0 + 30 * i, "prefill_tokens_per_second", 50.0, "references", 3 - i, "kernels",
                                          HOSTILE, "why", i < 2 ? "" : "wrong", "correctness", "verdict", i < 2 ? "token-identical" : "different",
                                          "kl_mean", 0.001));
    }
    end(j, run);
}

static void fill_trace(struct journal *j)
{
    int64_t run = begin(j, "trace", json_object());
    record(j, run, "check",
           json_pack("{s:f, s:f, s:f, s:i, s:[{s:s, s:i, s:f, s:f, s:f, s:f}, {s:s, s:i, s:f, s:f, s:f, s:f}]}", "nodes_ns", 3e6, "step_ns", 2.9e6,
                     "read_roof", 5e10, "n_tokens", 1, "ops", "name", "mul_mat", "count", 30, "ns", 2e6, "bytes", 8e7, "bytes_per_second", 4e10,
                     "share_of_roof", 0.8, "name", "rope_kv", "count", 30, "ns", 1e6, "bytes", 1e6, "bytes_per_second", 1e9, "share_of_roof", 0.02));
    end(j, run);
}

/* Two runs of a split model, of which one has one device beside it, and a trace with its collectives. */
static void fill_devices(struct journal *j)
{
    for (int i = 0; i < 2; i++) {
        struct hone_error e = {0};
        int64_t run = begin(j, "bench", json_pack("{s:s, s:{s:i}}", "test", "tg16", "split", "devices", 2));
        json_t *row = json_pack("{s:s, s:i, s:i, s:f, s:s, s:{s:i, s:f, s:i, s:s, s:{s:i, s:i}}}", "test", HOSTILE, "n_devices",
                                2, "n_threads", 2, "total_ts", 90.0, "tensor_split", "1.00/1.00", "collectives", "count", 32,
                                "bytes", 65536.0, "gathers", 0, "transport", "local", "path", "add", 31, "plain", 1);
        if (i)
            json_object_set_new(row, "times_one_device", json_real(0.9));
        json_t *o = json_pack("{s:s, s:o}", "status", "done", "row", row);
        assert_int_equal(journal_run_end(j, run, o, &e), 0);
        json_decref(o);
    }
    int64_t run = begin(j, "trace", json_object());
    record(j, run, "check",
           json_pack("{s:{s:i, s:{s:i, s:f, s:i, s:{s:i, s:i}}}}", "collectives", "devices", 3, "per_graph", "count", 128,
                     "bytes", 2621440.0, "gathers", 0, "path", "add", 127, "fallback", 1));
    end(j, run);
}

/* A comparison in which B is 10 % faster in every block: rules and raw samples alone. What is to come of it. */
static struct ab_result fill_comparison(struct journal *j, bool early)
{
    enum { BLOCKS = 24 };
    struct ab_sample all[BLOCKS * 4];
    struct ab_result result;
    struct hone_error e = {0};
    int64_t run = begin(j, "ab", json_pack("{s:s, s:f, s:[s, s]}", "test", "tg4", "margin", 0.005, "arms", "base", HOSTILE));
    struct match m = {.kind = MATCH_TRIAL, .candidate = 1, .rules = ab_defaults()};
    m.rules.blocks = BLOCKS;
    m.rules.early = early;
    json_t *body = json_pack("{s:i, s:s, s:i, s:i, s:b, s:o}", "match", 0, "match_kind", "trial", "candidate", 1, "candidates", 1, "confirm", 0,
                             "rules", ab_rules_json(&m.rules));
    record(j, run, "note", body);
    for (int b = 0; b < BLOCKS; b++)
        for (int p = 0; p < 4; p++) {
            bool candidate = (b % 2 == 0) == (p == 1 || p == 2);
            struct ab_sample s = {.block = b, .position = p, .candidate = candidate, .ns = (candidate ? 1e6 : 1.1e6) * (1 + 1e-3 * ((b * 5 + p * 3) % 7))};
            snprintf(s.output, sizeof s.output, "same");
            all[b * 4 + p] = s;
            if (ab_record_sample(j, run, 0, &m, &s, "tg4", 4, &e))
                fail_msg("%s", e.message);
        }
    end(j, run);
    assert_int_equal(ab_judge(&result, all, BLOCKS * 4, &m.rules, &e), 0);
    return result;
}

static char *page_of(const struct report *r)
{
    char *text;
    size_t n;
    struct hone_error e = {0};
    FILE *to = open_memstream(&text, &n);
    int rc = report_html(r, HOSTILE, to, &e);
    fclose(to);
    if (rc == HONE_ERESOURCE && strstr(e.message, "gnuplot")) {
        free(text);
        print_message("skipped: %s\n", e.message);
        skip();
    }
    if (rc)
        fail_msg("%s", e.message);
    return text;
}

static const struct report_section *section(const struct report *r, const char *title)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strncmp(r->sections[i]->title, title, strlen(title)))
            return r->sections[i];
    fail_msg("no section '%s'", title);
    return NULL;
}

static const struct report_options options = {.alpha = 0.01, .margin = 0.005};

static void test_devices(void **state)
{
    (void)state;
    struct journal *j = open_new();
    struct report r;
    struct hone_error e = {0};
    fill_devices(j);
    if (report_make(&r, j, &options, &e))
        fail_msg("%s", e.message);
    const struct report_section *s = section(&r, "Over several devices");
    const struct report_cell *c = s->table.cells;
    assert_int_equal(s->table.n_columns, 12);
    assert_int_equal(s->table.n_cells, 24);
    assert_string_equal(c[3].text, "2 local");
    assert_string_equal(c[7].text, "100.00"); /* the newest: 90 t/s are 0.9 of one device */
    assert_string_equal(c[8].text, "0.900");
    assert_string_equal(c[11].text, "add 31, plain 1");
    assert_string_equal(c[12 + 7].text, "-");
    s = section(&r, "Collectives");
    assert_non_null(strstr(s->words, "3 devices, 128 collectives and 2621440 bytes"));
    assert_string_equal(s->table.cells[1].text, "127");
    report_free(&r);
    journal_close(j);
}

static void test_says_what_is_there(void **state)
{
    (void)state;
    struct journal *j = open_new();
    struct report r;
    struct hone_error e = {0};
    fill_history(j);
    fill_ladder(j);
    fill_trace(j);
    fill_comparison(j, false);
    if (report_make(&r, j, &options, &e))
        fail_msg("%s", e.message);
    assert_true(r.worse); /* from 100 to 80 */
    const struct report_section *h = r.sections[1];
    assert_non_null(strstr(h->title, "tg16 t/s"));
    assert_int_equal(h->plot.n, 20);
    assert_int_equal(h->plot.n_levels, 2);
    assert_non_null(strstr(h->words, "worse"));
    const struct report_section *ab = section(&r, "A/B");
    assert_int_equal(ab->plot.n, 1);
    assert_true(ab->plot.marks[0].tone == PLOT_GOOD && ab->plot.marks[0].lo > 9 && ab->plot.marks[0].hi < 11);
    const struct report_section *ladder = section(&r, "Ladder");
    assert_int_equal(ladder->plot.n, 3);
    assert_true(ladder->plot.marks[2].tone == PLOT_BAD);
    const struct report_section *roof = section(&r, "Roof");
    assert_int_equal(roof->table.n_cells, 2 * roof->table.n_columns);
    assert_true(fabs(roof->plot.marks[0].value - 80) < 1e-9);
    report_free(&r);
    journal_close(j);
}

/* Where the always-valid sequence ended a comparison it is its interval that is shown, not one that had no say. */
static void test_interval_that_decided(void **state)
{
    (void)state;
    struct journal *j = open_new();
    struct report r;
    struct hone_error e = {0};
    char want[64];
    struct ab_result early = fill_comparison(j, true);
    assert_true(early.early && early.outcome == AB_WIN);
    assert_true(isfinite(early.sequence.lo) && fabs(early.sequence.lo - early.gain.lo) > 1e-6);
    if (report_make(&r, j, &options, &e))
        fail_msg("%s", e.message);
    const struct report_section *ab = section(&r, "A/B");
    assert_true(fabs(ab->plot.marks[0].lo - 100 * early.sequence.lo) < 1e-6);
    if (isfinite(early.sequence.hi))
        snprintf(want, sizeof want, "%+.2f to %+.2f %%", 100 * early.sequence.lo, 100 * early.sequence.hi);
    else
        snprintf(want, sizeof want, "above %+.2f %%", 100 * early.sequence.lo);
    assert_string_equal(ab->table.cells[4].text, want);
    report_free(&r);
    journal_close(j);
}

static void test_page_is_harmless(void **state)
{
    (void)state;
    struct journal *j = open_new();
    struct report r;
    struct hone_error e = {0};
    fill_history(j);
    fill_ladder(j);
    fill_comparison(j, true);
    assert_int_equal(report_make(&r, j, &options, &e), 0);
    char *page = page_of(&r);
    assert_null(strstr(page, "<script"));
    assert_null(strchr(page, '\x1b'));
    assert_non_null(strstr(page, "&lt;script&gt;"));
    assert_non_null(strstr(page, "Content-Security-Policy"));
    int n = 0;
    for (const char *p = page; (p = strstr(p, "<svg")); p++)
        n++;
    assert_int_equal(n, 6); /* three plots, wide and narrow */
    for (const char *p = page; (p = strstr(p, "http")); p++) /* names of name spaces are no links */
        assert_true(!strncmp(p, "http://www.w3.org/", 18) || !strncmp(p, "http-equiv", 10));
    free(page);
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(report_text(&r, 80, to, &e), 0);
    fclose(to);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "A/B comparisons"));
    const char *rungs = strstr(text, "decode, rung by rung");
    assert_non_null(rungs);
    assert_true(strstr(rungs, "reference") < strstr(rungs, "mul_mat")); /* the first on top */
    free(text);
    report_free(&r);
    journal_close(j);
}

static void test_empty_journal(void **state)
{
    (void)state;
    struct journal *j = open_new();
    struct report r;
    struct hone_error e = {0};
    assert_int_equal(report_make(&r, j, &options, &e), 0);
    assert_false(r.worse);
    assert_int_equal(r.n, 1);
    assert_non_null(strstr(r.sections[0]->words, "no such run"));
    report_free(&r);
    journal_close(j);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_says_what_is_there), cmocka_unit_test(test_devices), cmocka_unit_test(test_page_is_harmless),
                                       cmocka_unit_test(test_interval_that_decided),
                                       cmocka_unit_test(test_empty_journal)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct journal *j = open_new(); /* the last one's files go with it */
    journal_close(j);
    unlink(path);
    return failed;
}
