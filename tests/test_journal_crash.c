/* test_journal_crash.c: what was acknowledged is there: after a writer was killed at any moment, with two writers and a reader
 * at once, on a full disk; and 100,000 samples are no burden. HONE_JOURNAL_KILLS says how often a writer is killed (20;
 * tests/journal_soak.sh: 200). */
#include "tests/journal_fixture.h"

#include "base/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* What a writer says of itself, in memory that outlives it. */
struct said {
    volatile int64_t run;
    volatile int64_t acknowledged; /* samples, numbered from 1 by their value */
    volatile int64_t batched;      /* the same, of batches whose end was acknowledged: values from 1,000,001 on */
    volatile int failed;
    char message[500];
};

static struct said *said_alloc(int n)
{
    void *p = mmap(NULL, (size_t)n * sizeof(struct said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* A writer in a process of its own: samples one by one, now and then a batch, until `limit` or its death. */
static pid_t start_writer(const char *path, struct said *said, int64_t limit)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    struct hone_error e = {0};
    struct journal *j;
    struct journal_run r = {.kind = "bench", .expected_gain = NAN};
    int64_t run;
    int rc = journal_open(&j, path, JOURNAL_WRITE, &e);
    if (!rc)
        rc = journal_run_begin(j, &r, &run, &e);
    if (!rc)
        said->run = run;
    for (int64_t i = 1; i <= limit && !rc; i++) {
        rc = journal_sample(j, run, "tg4 t/s", (double)i, NULL, &e);
        if (!rc)
            said->acknowledged = i;
        if (!rc && i % 5 == 0) {
            rc = journal_batch_begin(j, &e);
            for (int64_t k = 1; k <= 10 && !rc; k++)
                rc = journal_sample(j, run, "batch t/s", (double)(1000000 + said->batched + k), NULL, &e);
            if (!rc)
                rc = journal_batch_end(j, &e);
            if (!rc)
                said->batched += 10;
        }
    }
    if (rc) {
        said->failed = rc;
        memcpy(said->message, e.message, sizeof e.message);
    }
    if (j && !rc)
        journal_close(j);
    _exit(rc ? 1 : 0);
}

struct seen {
    int64_t last, batched;
    bool holes;
};

static int look(void *user, const struct journal_sample *s)
{
    struct seen *seen = user;
    int64_t *last = s->value > 1e6 ? &seen->batched : &seen->last, value = (int64_t)s->value - (s->value > 1e6 ? 1000000 : 0);
    seen->holes |= value != *last + 1;
    *last = value;
    return 0;
}

/* All that was acknowledged is there, and no half of a batch. */
static void check_writer(struct journal *j, const struct said *said)
{
    struct hone_error e = {0};
    struct seen seen = {0};
    if (!said->run)
        return; /* killed before its run was */
    if (journal_each_sample(j, said->run, look, &seen, &e))
        fail_msg("%s", e.message);
    if (seen.holes || seen.last < said->acknowledged || seen.batched < said->batched || seen.batched % 10)
        fail_msg("acknowledged %lld and %lld, found %lld and %lld%s", (long long)said->acknowledged, (long long)said->batched,
                 (long long)seen.last, (long long)seen.batched, seen.holes ? ", with holes" : "");
    assert_true(seen.last <= said->acknowledged + 1); /* and nothing that nobody wrote */
}

static int kills(void)
{
    const char *n = getenv("HONE_JOURNAL_KILLS");
    return n ? atoi(n) : 20;
}

static void test_killed_writers(void **state)
{
    (void)state;
    struct rng r = rng_seed((uint64_t)clock_ns());
    struct said *said = said_alloc(2);
    int64_t samples = 0;
    int n = kills();
    for (int k = 0; k < n; k++) {
        if (k % 10 == 0)
            fresh(NULL); /* a new file now and then: making one may be interrupted too */
        memset(said, 0, 2 * sizeof *said);
        pid_t pid[2];
        int writers = 1 + k % 2;
        for (int w = 0; w < writers; w++)
            pid[w] = start_writer(db, &said[w], INT64_MAX);
        usleep((useconds_t)(rng_below(&r, 2) ? rng_below(&r, 5000) : rng_below(&r, 100000)));
        for (int w = 0; w < writers; w++) {
            kill(pid[w], SIGKILL);
            int status;
            assert_int_equal(waitpid(pid[w], &status, 0), pid[w]);
            if (!WIFSIGNALED(status))
                fail_msg("the writer failed by itself: %s", said[w].message);
        }
        struct journal *j = open_ok(db, JOURNAL_WRITE);
        verify_ok(j);
        for (int w = 0; w < writers; w++) {
            check_writer(j, &said[w]);
            samples += said[w].acknowledged + said[w].batched;
        }
        journal_close(j);
    }
    print_message("%d kills, %lld samples acknowledged, all there\n", n, (long long)samples);
}

static void test_two_writers_and_a_reader(void **state)
{
    (void)state;
    enum { WRITERS = 2, SAMPLES = 150 };
    struct said *said = said_alloc(WRITERS);
    pid_t pid[WRITERS];
    for (int w = 0; w < WRITERS; w++)
        pid[w] = start_writer(db, &said[w], SAMPLES);
    int reads = 0, left = WRITERS;
    while (left) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            left--;
            if (status)
                fail_msg("a writer failed: %s%s", said[0].message, said[1].message);
        }
        struct hone_error e = {0};
        struct journal *j;
        if (journal_open(&j, db, JOURNAL_READ, &e)) { /* there may be nothing to read yet */
            assert_int_equal(e.code, HONE_EINPUT);
            assert_int_equal(reads, 0);
            continue;
        }
        verify_ok(j);
        journal_close(j);
        reads++;
    }
    struct journal *j = open_ok(db, JOURNAL_READ);
    assert_int_equal(verify_ok(j).records, WRITERS * (1 + SAMPLES + SAMPLES / 5 * 10));
    for (int w = 0; w < WRITERS; w++) {
        assert_int_equal(said[w].acknowledged, SAMPLES);
        check_writer(j, &said[w]);
    }
    journal_close(j);
    (void)pid;
    print_message("two writers, %d checks of the whole meanwhile\n", reads);
}

/* ---- no room */

/* After the writer has met its limit: its message, and a journal that is good and goes on. */
static void check_full(struct said *said, pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || said->failed != HONE_ERESOURCE)
        fail_msg("status %d, code %d: %s", status, said->failed, said->message);
    assert_non_null(strstr(said->message, "what was recorded before is safe"));
    assert_non_null(strstr(said->message, db));
    print_message("%lld samples, then: %s\n", (long long)(said->acknowledged + said->batched), said->message);
    assert_true(said->acknowledged > 10);
}

static void test_file_size_limit(void **state)
{
    (void)state;
    struct said *said = said_alloc(1);
    journal_close(open_ok(db, JOURNAL_WRITE));
    pid_t helper = fork();
    if (!helper) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){400 << 10, 400 << 10});
        pid_t pid = start_writer(db, said, INT64_MAX);
        int status;
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    check_full(said, helper);
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    verify_ok(j);
    check_writer(j, said);
    sample_ok(j, said->run, "after t/s", 1);
    verify_ok(j);
    journal_close(j);
}

static void test_full_disk(void **state)
{
    (void)state;
    char place[160];
    struct said *said = said_alloc(1);
    snprintf(place, sizeof place, "%s.mount", db);
    mkdir(place, 0700);
    if (mount("tmpfs", place, "tmpfs", 0, "size=1m")) {
        print_message("skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
        skip();
    }
    snprintf(db, sizeof db, "%.100s/j.db", place);
    check_full(said, start_writer(db, said, INT64_MAX));
    struct hone_error e = {0};
    struct journal *j;
    int rc = journal_open(&j, db, JOURNAL_READ, &e);
    if (!rc) {
        verify_ok(j);
        check_writer(j, said);
        journal_close(j);
    }
    char message[sizeof e.message];
    snprintf(message, sizeof message, "%s", e.message);
    /* More room, and it goes on. */
    int remounted = mount("tmpfs", place, "tmpfs", MS_REMOUNT, "size=8m");
    if (!rc && !remounted) {
        j = open_ok(db, JOURNAL_WRITE);
        sample_ok(j, said->run, "after t/s", 1);
        verify_ok(j);
        journal_close(j);
    }
    umount(place);
    if (rc || remounted)
        fail_msg("a full disk: %s", message);
}

/* SQLite's own limit of pages: SQLITE_FULL without any system call that fails. */
static void test_full_within_a_batch(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    int64_t run = begin_ok(j, "bench", "a", "tiny", "");
    int64_t before = verify_ok(j).records;
    assert_int_equal(sqlite3_exec(j->db, "PRAGMA max_page_count = 60", NULL, NULL, NULL), 0);
    assert_int_equal(journal_batch_begin(j, &e), 0);
    int rc = 0;
    for (int i = 0; i < 5000 && !rc; i++)
        rc = journal_sample(j, run, "tg4 t/s", i, NULL, &e);
    assert_int_equal(rc, HONE_ERESOURCE);
    e.code = 0;
    assert_int_equal(journal_sample(j, run, "tg4 t/s", 1, NULL, &e),
                     HONE_ERESOURCE); /* not a record outside the batch that is lost */
    e.code = 0;
    assert_int_equal(journal_batch_end(j, &e), HONE_ERESOURCE);
    assert_non_null(strstr(e.message, "full"));
    assert_int_equal(verify_ok(j).records, before);
    sqlite3_exec(j->db, "PRAGMA max_page_count = 100000", NULL, NULL, NULL);
    sample_ok(j, run, "tg4 t/s", 1);
    assert_int_equal(verify_ok(j).records, before + 1);
    journal_close(j);
}

/* ---- size */

/* Processor time of this thread: the machine may be busy with others. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void test_hundred_thousand(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    struct rng r = rng_seed(2);
    int64_t last = 0;
    assert_int_equal(journal_batch_begin(j, &e), 0);
    for (int i = 0; i < 1000; i++) {
        last = begin_ok(j, "bench", i < 500 ? "old" : "new", "tiny", "");
        for (int k = 0; k < (i < 998 ? 50 : 25050); k++)
            sample_ok(j, last, k % 2 ? "tg128 t/s" : "pp512 t/s", 400 * (1 + 0.01 * rng_normal(&r)));
        end_ok(j, last);
    }
    assert_int_equal(journal_batch_end(j, &e), 0);
    journal_close(j);
    j = open_ok(db, JOURNAL_READ);
    json_t *runs;
    struct journal_contrast *contrasts;
    struct journal_histories h;
    struct journal_trend *trends;
    size_t n;
    double start = cpu_seconds(), list, compare, history;
    assert_int_equal(journal_list(j, &(struct journal_filter){.series = "tg*"}, &runs, &e), 0);
    list = cpu_seconds() - start;
    assert_int_equal(json_array_size(runs), 1000);
    int64_t before = json_integer_value(json_object_get(json_array_get(runs, 1), "id"));
    json_decref(runs);
    start = cpu_seconds();
    assert_int_equal(journal_compare(j, before, last, 0.99, &contrasts, &n, &e), 0);
    compare = cpu_seconds() - start;
    assert_int_equal(n, 2);
    assert_int_equal(contrasts[0].n_a, 12525);
    journal_contrasts_free(contrasts, n);
    start = cpu_seconds();
    assert_int_equal(journal_history(j, &(struct journal_filter){0}, &h, &e), 0);
    assert_int_equal(journal_regress(&h, 0.01, 0.005, &trends, &e), 0);
    history = cpu_seconds() - start;
    assert_int_equal(h.n, 2);
    assert_int_equal(h.list[0].n, 1000);
    journal_trends_free(trends, h.n);
    journal_history_free(&h);
    journal_close(j);
    print_message(
        "100,000 samples of 1,000 runs: list %.2f s, compare (25,000 with 25,000) %.2f s, history and its changes %.2f s\n",
        list, compare, history);
#ifdef HONE_SANITIZED
    assert_true(list < 20 && compare < 20 && history < 20);
#else
    assert_true(list < 1 && compare < 1 && history < 1);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_killed_writers, fresh),      cmocka_unit_test_setup(test_two_writers_and_a_reader, fresh),
        cmocka_unit_test_setup(test_file_size_limit, fresh),     cmocka_unit_test_setup(test_full_disk, fresh),
        cmocka_unit_test_setup(test_full_within_a_batch, fresh), cmocka_unit_test_setup(test_hundred_thousand, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
