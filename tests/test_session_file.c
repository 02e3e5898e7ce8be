/* test_session_file.c: sessions in files: what is restored goes on with the same bits, in another session and beside other
 * sequences; what is no such file, or a broken one, is refused with a place and changes nothing.
 *
 * Models are synthetic and small: one with a KV cache alone, one with recurrent layers too. */
#include "tests/facts.h"

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/session_file.h"
#include "model/synth.h"

#include <sys/stat.h>
#include <unistd.h>

enum { VOCAB = 300, N = 80 };

static char folder[200], model_path[2][220], file[220], other[220];
static struct hone_model *models[2];
static int32_t ids[N];
static const char *const shapes[2] = {"smollm2-135m", "qwen3.5-0.8b"};

static struct hone_session *session(int model, int32_t n_ctx, int32_t n_seq, const char *type_k)
{
    struct hone_session_params p = hone_session_defaults();
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    p.n_ctx = n_ctx;
    p.n_seq = n_seq;
    p.n_threads = 2;
    p.poll = 0;
    p.type_k = type_k;
    assert_done(hone_session_create(&s, models[model], &p, &e), e);
    return s;
}

static void save(struct hone_session *s, const char *path)
{
    struct hone_error e = {0};
    assert_done(hone_session_save(s, path, &e), e);
}

static void restore(struct hone_session *s, const char *path)
{
    struct hone_error e = {0};
    assert_done(hone_session_restore(s, path, &e), e);
}

/* Logits of n tokens behind what seq holds, one step. */
static void next(struct hone_session *s, int32_t seq, const int32_t *tokens, size_t n, float *out)
{
    session_feed(s, seq, tokens, n, n);
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * VOCAB, hone_session_logits(s, i), VOCAB * sizeof *out);
}

static float want[3][20 * VOCAB], got[20 * VOCAB];

static void same(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * VOCAB * sizeof *a);
}

static void test_goes_on(void **unused)
{
    (void)unused;
    for (int m = 0; m < 2; m++) {
        struct hone_session *s = session(m, 100, 3, NULL);
        struct hone_error e = {0};
        session_feed(s, 0, ids, 30, 1);
        session_feed(s, 2, ids + 40, 7, 1);
        assert_done(hone_session_fork(s, 0, 1, &e), e);
        session_feed(s, 1, ids + 30, 5, 1);
        save(s, file);
        for (int q = 0; q < 3; q++)
            next(s, q, ids + 50, 20, want[q]);
        restore(s, file); /* over what it holds now */
        assert_null(hone_session_logits(s, 0));
        assert_int_equal(hone_session_length(s, 1), 35);
        for (int q = 0; q < 3; q++) {
            next(s, q, ids + 50, 20, got);
            same(got, want[q], 20);
        }
        hone_session_free(s);
        /* In a process of its own, as it were: another context, more sequences, something held before. */
        s = session(m, 60, 4, NULL);
        session_feed(s, 3, ids, 9, 1);
        restore(s, file);
        assert_int_equal(hone_session_length(s, 3), 0);
        for (int q = 2; q >= 0; q--) {
            next(s, q, ids + 50, 20, got);
            same(got, want[q], 20);
        }
        hone_session_free(s);
    }
}

/* Shared cells are written once and shared again; a file of nothing is one too. */
static void test_sharing(void **unused)
{
    (void)unused;
    struct stat lone, forked;
    for (int m = 0; m < 2; m++) {
        struct hone_session *s = session(m, 64, 3, NULL);
        struct hone_error e = {0};
        save(s, file);
        session_feed(s, 0, ids, 30, 1);
        restore(s, file);
        assert_int_equal(hone_session_length(s, 0), 0);
        session_feed(s, 0, ids, 30, 1);
        save(s, file);
        assert_int_equal(stat(file, &lone), 0);
        assert_done(hone_session_fork(s, 0, 1, &e), e);
        assert_done(hone_session_fork(s, 0, 2, &e), e);
        save(s, file);
        assert_int_equal(stat(file, &forked), 0);
        assert_int_equal(forked.st_size - lone.st_size, 2 * 30 * 4);
        hone_session_free(s);
        /* 64 cells a sequence: full copies of 30 positions would fit too, so look at the files alone. */
        s = session(m, 64, 3, NULL);
        restore(s, file);
        save(s, other);
        assert_int_equal(stat(other, &forked), 0);
        assert_int_equal(forked.st_size - lone.st_size, 2 * 30 * 4);
        for (int round = 0; round < 3; round++) { /* cells and slots come back when nobody has them */
            for (int q = 0; q < 3; q++)
                session_feed(s, q, ids, 34, 1);
            restore(s, file);
        }
        hone_session_free(s);
    }
}

/* A restored sequence goes back to 0 and to where it stands, nowhere else where a state is recurrent. */
static void test_rewind_behind_restore(void **unused)
{
    (void)unused;
    struct hone_session *s = session(1, 64, 1, NULL);
    struct hone_error e = {0};
    session_feed(s, 0, ids, 10, 1);
    session_feed(s, 0, ids + 10, 10, 1);
    save(s, file);
    restore(s, file);
    assert_int_equal(hone_session_rewind(s, 0, 10, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "0 or 20"));
    next(s, 0, ids + 20, 5, want[0]);
    assert_done(hone_session_rewind(s, 0, 20, &e), e);
    next(s, 0, ids + 20, 5, got);
    same(got, want[0], 5);
    hone_session_free(s);
}

/* ---- refusals */

static unsigned char *load(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*size + 64);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void fix_sum(unsigned char *data, size_t size)
{
    if (size < SESSION_FILE_SUMMED)
        return;
    uint64_t all = size, sum = hash64(data + SESSION_FILE_SUMMED, size - SESSION_FILE_SUMMED);
    memcpy(data + 16, &all, sizeof all);
    memcpy(data + SESSION_FILE_SUM, &sum, sizeof sum);
}

struct victim {
    struct hone_session *s;
    unsigned char *data; /* of a good file of another state of it */
    size_t size;
    int model;
};

/* A session that holds something, and a file of what it held before. */
static struct victim victim_make(int model)
{
    struct victim v = {.model = model, .s = session(model, 100, 2, NULL)};
    session_feed(v.s, 0, ids, 12, 1);
    session_feed(v.s, 1, ids + 20, 6, 1);
    save(v.s, file);
    v.data = load(file, &v.size);
    session_feed(v.s, 0, ids + 30, 7, 1);
    return v;
}

static void refused(const struct victim *v, const void *data, size_t size, const char *says)
{
    struct hone_error e = {0};
    assert_int_equal(session_restore_memory(v->s, data, size, "some.session", NULL, &e), HONE_EINPUT);
    if (strncmp(e.message, "some.session: ", 14) != 0 || !strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
    assert_int_equal(hone_session_length(v->s, 0), 19);
    assert_int_equal(hone_session_length(v->s, 1), 6);
}

/* The session goes on as one that saw none of it; ends it. */
static void unharmed(struct victim *v)
{
    struct hone_session *fresh = session(v->model, 100, 2, NULL);
    session_feed(fresh, 0, ids, 12, 1);
    session_feed(fresh, 1, ids + 20, 6, 1);
    session_feed(fresh, 0, ids + 30, 7, 1);
    for (int q = 0; q < 2; q++) {
        next(fresh, q, ids + 50, 4, want[0]);
        next(v->s, q, ids + 50, 4, got);
        same(got, want[0], 4);
    }
    hone_session_free(fresh);
    hone_session_free(v->s);
    free(v->data);
}

static void test_broken_bytes(void **unused)
{
    (void)unused;
    for (int m = 0; m < 2; m++) {
        struct victim v = victim_make(m);
        for (size_t n = 0; n < v.size; n += n < 400 ? 1 : 1 + v.size / 50)
            refused(&v, v.data, n, "");
        for (size_t i = 0; i < v.size; i += i < 400 ? 1 : 1 + v.size / 200) {
            v.data[i] ^= 0x10;
            refused(&v, v.data, v.size, "");
            v.data[i] ^= 0x10;
        }
        memset(v.data + v.size, 0, 8);
        refused(&v, v.data, v.size + 8, "appended to");
        unharmed(&v);
    }
}

/* Numbers that the hash agrees with. Offsets by session_file.h: layers, then sequences, then maps. */
static void test_hostile_numbers(void **unused)
{
    (void)unused;
    for (int m = 0; m < 2; m++) {
        struct victim v = victim_make(m);
        size_t sequences = 88 + (size_t)models[m]->model->n_layer * 32, maps = sequences + 16;
        const struct {
            size_t at;
            int32_t value;
            const char *says;
        } cases[] = {
            {8, 0, "version 0"},
            {8, 3, "version 3"},
            {12, 1, "a note of 1"},
            {12, -1, "a note of 4294967295"},
            {32, 5, "another model"},
            {40, 99, "another model"},
            {44, 0, "0 sequences"},
            {44, 65, "65 sequences"},
            {44, 64, ""},
            {44, 1, ""},
            {48, 17, ""},
            {48, INT32_MAX, "cells for 18 positions"},
            {48, -1, "cells for 18 positions"},
            {52, 7, m ? "" : "no sequence has"},
            {52, -1, ""},
            {56, 0x383866, "KV cache is f88"},
            {60, -1, ""},
            {88, 77, "layer 0"},
            {sequences, -1, "-1 positions"},
            {sequences, INT32_MAX, "positions"},
            {sequences, 13, ""},
            {sequences, 0, ""},
            {sequences + 4, 9, "slot 9"},
            {sequences + 4, m ? -1 : 0, "slot"},
            {sequences + 12, m ? 0 : 3, ""},
            {maps, -1, "cell -1"},
            {maps, 18, "cell 18"},
            {maps + 4, 0, "cell 0"},
            {maps + 12 * 4, 3, "no sequence has"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            unsigned char *copy = malloc(v.size);
            memcpy(copy, v.data, v.size);
            memcpy(copy + cases[i].at, &cases[i].value, sizeof(int32_t));
            fix_sum(copy, v.size);
            refused(&v, copy, v.size, cases[i].says);
            free(copy);
        }
        /* Control: the same way without a change is taken. */
        struct hone_error e = {0};
        fix_sum(v.data, v.size);
        assert_done(session_restore_memory(v.s, v.data, v.size, "good", NULL, &e), e);
        assert_int_equal(hone_session_length(v.s, 0), 12);
        session_feed(v.s, 0, ids + 30, 7, 1);
        unharmed(&v);
    }
}

/* A note comes back as it was, is checked like the rest, and a file of the version without one is still read. */
static void test_note(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    for (int m = 0; m < 2; m++) {
        struct hone_session *s = session(m, 100, 2, NULL);
        char *note = NULL;
        session_feed(s, 0, ids, 12, 1);
        assert_done(hone_session_save_noted(s, file, "said: \xc3\xa4", &e), e);
        assert_done(hone_session_restore_noted(s, file, &note, &e), e);
        assert_string_equal(note, "said: \xc3\xa4");
        hone_free(note);
        restore(s, file); /* who wants no note gets none */
        size_t size;
        unsigned char *data = load(file, &size);
        struct victim v = {.model = m, .s = s, .data = data, .size = size};
        session_feed(s, 1, ids + 20, 6, 1);
        session_feed(s, 0, ids + 30, 7, 1);
        for (size_t cut = 1; cut < 9; cut++) { /* the note, byte by byte: its size no longer agrees */
            unsigned char *copy = malloc(size);
            memcpy(copy, data, size);
            fix_sum(copy, size - cut);
            refused(&v, copy, size - cut, "a note of 8");
            free(copy);
        }
        data[size - 3] = 0;
        fix_sum(data, size);
        refused(&v, data, size, "a NUL");
        data[size - 3] = ' ';
        const int32_t version = 1;
        memcpy(data + 8, &version, sizeof version);
        fix_sum(data, size);
        refused(&v, data, size, "version 1"); /* which had none */
        unharmed(&v);
        s = session(m, 100, 2, NULL);
        session_feed(s, 0, ids, 12, 1);
        save(s, file);
        data = load(file, &size);
        memcpy(data + 8, &version, sizeof version);
        note = NULL;
        assert_done(session_restore_memory(s, data, size, "old", &note, &e), e);
        assert_string_equal(note, "");
        hone_free(note);
        free(data);
        hone_session_free(s);
    }
}

static void test_does_not_fit(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    struct hone_session *s = session(1, 64, 2, NULL), *small = session(1, 20, 2, NULL), *one = session(1, 64, 1, NULL);
    struct hone_session *narrow = session(1, 64, 2, "q8_0"), *stranger = session(0, 64, 2, NULL);
    session_feed(s, 0, ids, 30, 1);
    session_feed(s, 1, ids, 3, 1);
    save(s, file);
    session_feed(small, 0, ids, 5, 1);
    assert_int_equal(hone_session_restore(small, file, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "context of 20 (-c)"));
    assert_int_equal(hone_session_length(small, 0), 5);
    assert_int_equal(hone_session_restore(one, file, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "holds sequence 1; this session has 1"));
    assert_int_equal(hone_session_restore(narrow, file, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "-ctk"));
    assert_int_equal(hone_session_restore(stranger, file, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "another model"));
    assert_int_equal(hone_session_rewind(s, 1, 0, &e), 0);
    save(s, file);
    restore(one, file); /* the second sequence is empty now */
    assert_int_equal(hone_session_length(one, 0), 30);
    hone_session_free(s);
    hone_session_free(small);
    hone_session_free(one);
    hone_session_free(narrow);
    hone_session_free(stranger);
}

static void test_paths(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    struct hone_session *s = session(0, 64, 1, NULL);
    struct stat st;
    char nowhere[300];
    session_feed(s, 0, ids, 10, 1);
    snprintf(nowhere, sizeof nowhere, "%s/missing/file", folder);
    assert_int_equal(hone_session_save(s, nowhere, &e), HONE_ERESOURCE);
    assert_int_equal(hone_session_restore(s, nowhere, &e), HONE_EINPUT);
    assert_int_equal(hone_session_restore(s, folder, &e), HONE_EINPUT);
    assert_int_equal(hone_session_restore(s, model_path[0], &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "not a session file"));
    assert_int_equal(hone_session_length(s, 0), 10);
    save(s, file);
    assert_int_equal(chmod(file, 0400), 0); /* replaced, not written over */
    session_feed(s, 0, ids, 10, 1);
    save(s, file);
    assert_int_equal(stat(file, &st), 0);
    restore(s, file);
    assert_int_equal(hone_session_length(s, 0), 20);
    /* What is no regular file stays what it is; a link stays one. */
    unlink(other);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(hone_session_save(s, other, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "not a regular file"));
    assert_int_equal(hone_session_restore(s, other, &e), HONE_EINPUT);
    assert_int_equal(hone_session_save(s, folder, &e), HONE_EUSAGE);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(symlink(file, other), 0);
    save(s, other);
    assert_true(lstat(other, &st) == 0 && S_ISLNK(st.st_mode));
    assert_int_equal(unlink(file), 0); /* also when what it names is not there yet */
    save(s, other);
    assert_true(lstat(other, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(lstat(file, &st) == 0 && S_ISREG(st.st_mode));
    assert_int_equal(unlink(other), 0);
    hone_session_free(s);
}

static int setup(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-session-XXXXXX", tmp && strlen(tmp) < 100 ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/a.session", folder);
    snprintf(other, sizeof other, "%s/b.session", folder);
    for (int m = 0; m < 2; m++) {
        snprintf(model_path[m], sizeof model_path[m], "%s/%d.gguf", folder, m);
        struct synth_params p = {
            .shape = shapes[m], .type = "Q8_0", .layers = m ? 4 : 2, .width = 128, .vocab = VOCAB, .seed = 5};
        if (model_synth(model_path[m], &p, NULL, NULL, &e) || hone_model_open(&models[m], model_path[m], &e)) {
            print_message("%s\n", e.message);
            return -1;
        }
    }
    for (int i = 0; i < N; i++)
        ids[i] = (i * 73 + i / 7) % VOCAB;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (int m = 0; m < 2; m++) {
        hone_model_close(models[m]);
        unlink(model_path[m]);
    }
    unlink(file);
    unlink(other);
    return rmdir(folder); /* fails where a partial file was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_rewind_behind_restore),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_hostile_numbers),
        cmocka_unit_test(test_note),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests_name("session files", tests, setup, teardown);
}
