/* test_child.c: what a child makes comes back whole; what goes wrong there is an error here, and nothing of it stays. */
#include "test.h"

#include "base/child.h"
#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int touched;

static int make(void *arg, void **bytes, size_t *n, struct hone_error *e)
{
    touched = 1;
    *n = *(size_t *)arg;
    *bytes = malloc(*n + 1);
    if (!*bytes)
        return err_set(e, HONE_ERESOURCE, "no memory");
    memset(*bytes, 'x', *n);
    return 0;
}

static int refuse(void *arg, void **bytes, size_t *n, struct hone_error *e)
{
    (void)bytes, (void)n;
    return err_set(e, HONE_ECHECK, "no %s", (const char *)arg);
}

static int crash(void *arg, void **bytes, size_t *n, struct hone_error *e)
{
    (void)arg, (void)bytes, (void)n, (void)e;
    signal(SIGABRT, SIG_DFL);
    abort();
}

static int hang(void *arg, void **bytes, size_t *n, struct hone_error *e)
{
    (void)arg, (void)bytes, (void)n, (void)e;
    while (pause())
        continue;
    return 0;
}

static void nothing_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child */
}

static void test_made(void **unused)
{
    (void)unused;
    static size_t sizes[] = {0, 1, 65536, 5000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct hone_error e = {0};
        char *bytes;
        size_t n;
        assert_int_equal(child_bytes(make, &sizes[i], 10000, (void **)&bytes, &n, &e), 0);
        assert_int_equal(n, sizes[i]);
        for (size_t j = 0; j < n; j += 997)
            assert_int_equal(bytes[j], 'x');
        free(bytes);
    }
    assert_int_equal(touched, 0);
    nothing_left();
}

static void fails(int (*produce)(void *, void **, size_t *, struct hone_error *), int limit_ms, int code, const char *says)
{
    struct hone_error e = {0};
    void *bytes;
    size_t n;
    int64_t start = clock_ns();
    assert_int_equal(child_bytes(produce, "way", limit_ms, &bytes, &n, &e), code);
    if (!strstr(e.message, says))
        fail_msg("'%s', and not '%s'", e.message, says);
    assert_null(bytes);
    assert_true(clock_ns() - start < 9000000000);
    nothing_left();
}

static void test_failures(void **unused)
{
    (void)unused;
    fails(refuse, 10000, HONE_ECHECK, "no way");
    fails(crash, 10000, HONE_EINPUT, "crashed");
    fails(hang, 300, HONE_EINPUT, "did not end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
