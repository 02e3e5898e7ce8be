/* test_queue.c: what may become of a task and what may not; leases, tokens, dependencies, the two roles, hostile files; and
 * workers that are killed at random: each task is done once, none is lost, none waits longer than its lease. HONE_SOAK=1: 200
 * tasks, three times. */
#include "tests/journal_fixture.h"

#include "lab/brief.h"
#include "lab/queue_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static struct queue *queue_ok(void)
{
    struct queue *q;
    struct hone_error e = {0};
    if (queue_open(&q, db, &e))
        fail_msg("%s", e.message);
    return q;
}

static int64_t add_task(struct queue *q, const char *title, int64_t priority, int64_t after)
{
    struct hone_error e = {0};
    int64_t id;
    struct queue_task t = {.title = title, .priority = priority, .expected_gain = NAN, .after = &after, .n_after = after != 0};
    if (queue_add(q, &t, &id, &e))
        fail_msg("%s", e.message);
    return id;
}

/* Takes; returns the id (0: none is ready), and the token. */
static int64_t take_as(struct queue *q, const char *worker, int64_t lease, const char *own, char token[QUEUE_TOKEN + 1])
{
    struct hone_error e = {0};
    json_t *task;
    if (queue_take(q, worker, NULL, 0, lease, own, &task, &e))
        fail_msg("%s", e.message);
    int64_t id = json_integer_value(json_object_get(task, "id"));
    if (token)
        snprintf(token, QUEUE_TOKEN + 1, "%s", task ? json_string_value(json_object_get(task, "token")) : "");
    json_decref(task);
    return id;
}

static int finish(struct queue *q, int64_t id, const char *token, bool *again)
{
    struct hone_error e = {0};
    json_t *result = json_pack("{s:s}", "text", "two percent");
    int rc = queue_done(q, id, token, result, again, &e);
    json_decref(result);
    return rc;
}

static void status_is(struct queue *q, int64_t id, const char *status, const char *reason)
{
    struct hone_error e = {0};
    json_t *t;
    assert_int_equal(queue_get(q, id, &t, &e), 0);
    assert_string_equal(json_string_value(json_object_get(t, "status")), status);
    if (reason)
        assert_non_null(strstr(json_string_value(json_object_get(t, "reason")), reason));
    json_decref(t);
}

static void expire(int64_t id)
{
    char sql[100];
    snprintf(sql, sizeof sql, "UPDATE task SET expires = 1 WHERE id = %lld", (long long)id);
    raw_ok(db, sql);
}

static void the_order_is_priority_then_age(void **state)
{
    (void)state;
    struct queue *q = queue_ok();
    int64_t low = add_task(q, "low", 0, 0), high = add_task(q, "high", 5, 0), next = add_task(q, "low too", 0, 0);
    assert_int_equal(take_as(q, "w1", 60, "", NULL), high);
    assert_int_equal(take_as(q, "w2", 60, "", NULL), low);
    assert_int_equal(take_as(q, "w3", 60, "", NULL), next);
    assert_int_equal(take_as(q, "w4", 60, "", NULL), 0);
    queue_close(q);
}

static void a_task_waits_for_those_before_it(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    bool again;
    struct queue *q = queue_ok();
    int64_t first = add_task(q, "first", 0, 0), second = add_task(q, "second", 9, first);
    status_is(q, second, "blocked", "waits for 1");
    assert_int_equal(take_as(q, "w", 60, "", token), first);
    assert_int_equal(take_as(q, "w", 60, "", NULL), 0);
    assert_int_equal(finish(q, first, token, &again), 0);
    status_is(q, second, "ready", NULL);
    assert_int_equal(take_as(q, "w", 60, "", NULL), second);
    struct hone_error e = {0};
    struct queue_task t = {.title = "of nothing", .expected_gain = NAN, .after = (const int64_t[]){77}, .n_after = 1};
    int64_t id;
    assert_int_equal(queue_add(q, &t, &id, &e), HONE_EINPUT); /* and so no cycle can be made */
    queue_close(q);
}

static void a_hand_in_is_by_token_and_repeatable(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1], other[QUEUE_TOKEN + 1];
    bool again;
    struct queue *q = queue_ok();
    int64_t id = add_task(q, "once", 0, 0);
    assert_int_equal(take_as(q, "slow", 60, "", token), id);
    assert_int_equal(finish(q, id, "", &again), HONE_EUSAGE);
    assert_int_equal(finish(q, id, "somebody else", &again), HONE_ECHECK);
    expire(id);
    status_is(q, id, "ready", NULL);
    assert_int_equal(take_as(q, "quick", 60, "", other), id); /* it was taken over */
    assert_string_not_equal(token, other);
    assert_int_equal(finish(q, id, token, &again), HONE_ECHECK); /* what the slow one did counts no more */
    assert_int_equal(finish(q, id, other, &again), 0);
    assert_false(again);
    assert_int_equal(finish(q, id, other, &again), 0);
    assert_true(again);
    assert_int_equal(finish(q, id, token, &again), HONE_ECHECK);
    queue_close(q);
}

static void a_lease_that_ran_out_is_still_good_while_nobody_else_has_it(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    bool again;
    struct queue *q = queue_ok();
    int64_t id = add_task(q, "late", 0, 0);
    take_as(q, "w", 60, "", token);
    expire(id);
    assert_int_equal(queue_renew(q, id, token, 60, &e), 0);
    status_is(q, id, "leased", NULL);
    expire(id);
    assert_int_equal(finish(q, id, token, &again), 0);
    status_is(q, id, "done", NULL);
    queue_close(q);
}

static void a_token_of_ones_own_makes_taking_repeatable(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct queue *q = queue_ok();
    int64_t a = add_task(q, "a", 0, 0);
    add_task(q, "b", 0, 0);
    assert_int_equal(take_as(q, "w", 60, "worker-1-run-1", token), a);
    assert_string_equal(token, "worker-1-run-1");
    assert_int_equal(take_as(q, "w", 60, "worker-1-run-1", NULL), a);
    queue_close(q);
}

static void a_budget_ends_a_lease(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    int64_t id;
    json_t *t;
    struct queue *q = queue_ok();
    struct queue_task task = {.title = "short", .expected_gain = 0.03, .budget_s = 10};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    take_as(q, "w", 3600, "", token);
    raw_ok(db, "UPDATE task SET taken = taken - 11000, expires = expires - 11000");
    assert_int_equal(queue_renew(q, id, token, 60, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "budget"));
    assert_int_equal(queue_get(q, id, &t, &e), 0);
    assert_true(json_number_value(json_object_get(t, "expected_gain")) > 0.029);
    json_decref(t);
    queue_close(q);
}

static void tries_run_out(void **state)
{
    (void)state;
    struct hone_error e = {0};
    int64_t id;
    struct queue *q = queue_ok();
    struct queue_task task = {.title = "kills its worker", .expected_gain = NAN, .tries = 2};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    assert_int_equal(take_as(q, "w1", 60, "", NULL), id);
    expire(id);
    assert_int_equal(take_as(q, "w2", 60, "", NULL), id);
    expire(id);
    status_is(q, id, "failed", "every try"); /* before anybody has looked for work */
    assert_int_equal(take_as(q, "w3", 60, "", NULL), 0);
    status_is(q, id, "failed", "every try");
    assert_int_equal(queue_ready(q, id, "boss", &e), 0);
    assert_int_equal(take_as(q, "w3", 60, "", NULL), id);
    queue_close(q);
}

static void failing_and_blocking(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    bool again;
    struct queue *q = queue_ok();
    int64_t id = add_task(q, "hard", 0, 0), next = add_task(q, "then", 0, id);
    take_as(q, "w", 60, "", token);
    assert_int_equal(queue_fail(q, id, token, "no compiler", true, &again, &e), 0);
    assert_int_equal(queue_fail(q, id, token, "no compiler", true, &again, &e), 0);
    assert_true(again);
    status_is(q, id, "ready", "no compiler");
    take_as(q, "w", 60, "", token);
    assert_int_equal(queue_block(q, id, "", "not now", &e), HONE_EUSAGE);
    assert_int_equal(queue_fail(q, id, token, "cannot be", false, &again, &e), 0);
    status_is(q, id, "failed", "cannot be");
    status_is(q, next, "blocked", "waits for 1 (failed)");
    assert_int_equal(queue_block(q, next, NULL, "not now", &e), 0);
    status_is(q, next, "blocked", "not now");
    assert_int_equal(queue_ready(q, id, "boss", &e), 0);
    e.code = 0;
    json_t *task;
    assert_int_equal(queue_take(q, "w", NULL, next, 60, "", &task, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "not now"));
    queue_close(q);
}

static void who_hands_in_does_not_approve(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    int64_t id;
    bool again;
    struct queue *q = queue_ok();
    struct queue_task task = {.title = "for a tier", .expected_gain = NAN, .tier = "decode"};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    assert_int_equal(queue_review(q, id, true, "boss", NULL, &e), HONE_ECHECK); /* nothing is handed in yet */
    take_as(q, "w", 60, "", token);
    assert_int_equal(finish(q, id, token, &again), 0);
    e.code = 0;
    assert_int_equal(queue_review(q, id, true, "w", NULL, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "cannot judge it too"));
    assert_int_equal(queue_review(q, id, true, "boss", NULL, &e), 0);
    assert_int_equal(queue_review(q, id, true, "boss", NULL, &e), 0);
    assert_int_equal(queue_review(q, id, false, "boss", NULL, &e), HONE_ECHECK);
    queue_close(q);
}

/* Same token, other words: a mistake is mended until somebody has judged it. */
static void a_hand_in_is_corrected_until_it_is_judged(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    int64_t id;
    bool again;
    json_t *t, *events, *right = json_pack("{s:s}", "text", "three percent");
    struct queue *q = queue_ok();
    struct queue_task task = {.title = "for a tier", .expected_gain = NAN, .tier = "decode"};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    take_as(q, "w", 60, "", token);
    assert_int_equal(finish(q, id, token, &again), 0);
    assert_int_equal(queue_done(q, id, token, right, &again, &e), 0);
    assert_false(again);
    assert_int_equal(queue_get(q, id, &t, &e), 0);
    assert_true(json_equal(json_object_get(t, "result"), right));
    json_decref(t);
    assert_int_equal(queue_events(q, id, &events, &e), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(events, 3), "what")), "corrected");
    json_decref(events);
    assert_int_equal(queue_fail(q, id, token, "no, it fails", false, &again, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "the lease of this token has ended"));
    assert_int_equal(queue_review(q, id, true, "boss", NULL, &e), 0);
    assert_int_equal(queue_done(q, id, token, right, &again, &e), 0);
    assert_true(again);
    e.code = 0;
    json_object_set_new(right, "text", json_string("four percent"));
    assert_int_equal(queue_done(q, id, token, right, &again, &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "was approved"));
    json_decref(right);
    queue_close(q);
}

static void what_comes_after_waits_for_the_word_of_a_supervisor(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    int64_t id;
    bool again;
    struct queue *q = queue_ok();
    struct queue_task task = {.title = "for a tier", .expected_gain = NAN, .tier = "decode"};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    int64_t next = add_task(q, "then", 0, id);
    take_as(q, "w", 60, "", token);
    assert_int_equal(finish(q, id, token, &again), 0);
    status_is(q, next, "blocked", "waits for 1 (waiting for approval)");
    assert_int_equal(take_as(q, "w", 60, "", NULL), 0);
    assert_int_equal(queue_review(q, id, false, "boss", "slower", &e), 0);
    status_is(q, next, "blocked", "waits for 1 (rejected)");
    assert_int_equal(queue_ready(q, id, "boss", &e), 0);
    take_as(q, "w", 60, "", token);
    assert_int_equal(finish(q, id, token, &again), 0);
    assert_int_equal(queue_review(q, id, true, "boss", NULL, &e), 0);
    status_is(q, next, "ready", NULL);
    assert_int_equal(take_as(q, "w", 60, "", NULL), next);
    queue_close(q);
}

static void a_lease_is_taken_back_and_a_task_given_up(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    bool again;
    struct queue *q = queue_ok();
    int64_t id = add_task(q, "stuck", 0, 0);
    assert_int_equal(queue_release(q, id, "boss", "why not", &e), HONE_ECHECK); /* nobody has it */
    take_as(q, "gone", 31536000, "", token);
    assert_int_equal(queue_release(q, id, "boss", "its worker is gone", &e), 0);
    status_is(q, id, "ready", "released by boss: its worker is gone");
    e.code = 0;
    assert_int_equal(queue_renew(q, id, token, 60, &e), HONE_ECHECK);
    assert_int_equal(finish(q, id, token, &again), HONE_ECHECK);
    take_as(q, "w", 60, "", token);
    assert_int_equal(queue_cancel(q, id, "boss", "a wrong idea", &e), 0);
    status_is(q, id, "failed", "cancelled by boss: a wrong idea");
    assert_int_equal(finish(q, id, token, &again), HONE_ECHECK);
    assert_int_equal(take_as(q, "w", 60, "", NULL), 0);
    assert_int_equal(queue_cancel(q, id, "boss", "again", &e), HONE_ECHECK);
    assert_int_equal(queue_ready(q, id, "boss", &e), 0);
    take_as(q, "w", 60, "", token);
    assert_int_equal(finish(q, id, token, &again), 0);
    assert_int_equal(queue_cancel(q, id, "boss", "late", &e), HONE_ECHECK); /* it is done */
    queue_close(q);
}

static void a_task_is_edited_while_nobody_has_it(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1];
    struct hone_error e = {0};
    json_t *t, *events;
    struct queue *q = queue_ok();
    int64_t first = add_task(q, "first", 0, 0), id = add_task(q, "misspelt", 0, first), later = add_task(q, "later", 0, 0);
    const struct queue_value values[] = {{"tier", "decode", 0}, {"expected_gain", NULL, 0.02}, {"priority", NULL, 9}};
    struct queue_edit d = {values, 3, NULL, 0};
    assert_int_equal(queue_edit(q, id, &d, "boss", &e), 0);
    assert_int_equal(queue_get(q, id, &t, &e), 0);
    assert_string_equal(json_string_value(json_object_get(t, "tier")), "decode");
    assert_int_equal(json_integer_value(json_object_get(t, "priority")), 9);
    assert_int_equal(json_array_size(json_object_get(t, "after")), 0);
    assert_string_equal(json_string_value(json_object_get(t, "status")), "ready");
    json_decref(t);
    assert_int_equal(queue_events(q, id, &events, &e), 0);
    const char *detail = json_string_value(json_object_get(json_array_get(events, 1), "detail"));
    assert_non_null(strstr(detail, "\"tier\":{\"was\":null,\"is\":\"decode\"}"));
    assert_non_null(strstr(detail, "\"after\":{\"was\":[1],\"is\":[]}"));
    json_decref(events);
    const struct queue_value none[] = {{"tier", "", 0}}, wrong[] = {{"status", "done", 0}}, lines[] = {{"title", "a\nb", 0}};
    assert_int_equal(queue_edit(q, id, &(struct queue_edit){none, 1, NULL, -1}, "boss", &e), 0);
    assert_int_equal(queue_get(q, id, &t, &e), 0);
    assert_null(json_object_get(t, "tier"));
    json_decref(t);
    assert_int_equal(queue_edit(q, id, &(struct queue_edit){wrong, 1, NULL, -1}, "boss", &e), HONE_EUSAGE);
    assert_int_equal(queue_edit(q, id, &(struct queue_edit){lines, 1, NULL, -1}, "boss", &e), HONE_EUSAGE);
    assert_int_equal(queue_edit(q, id, &(struct queue_edit){values, 1, &later, 1}, "boss", &e), HONE_EUSAGE); /* no cycle */
    assert_int_equal(take_as(q, "w", 60, "", token), id);
    e.code = 0;
    assert_int_equal(queue_edit(q, id, &d, "boss", &e), HONE_ECHECK);
    assert_non_null(strstr(e.message, "release it first"));
    queue_close(q);
}

static void roles_choose_tasks(void **state)
{
    (void)state;
    struct hone_error e = {0};
    int64_t id;
    json_t *task;
    struct queue *q = queue_ok();
    struct queue_task kernel = {.title = "kernel", .expected_gain = NAN, .role = "kernels"};
    assert_int_equal(queue_add(q, &kernel, &id, &e), 0);
    assert_int_equal(queue_take(q, "w", "docs", 0, 60, "", &task, &e), 0);
    assert_null(task);
    assert_int_equal(queue_take(q, "w", "kernels", 0, 60, "", &task, &e), 0);
    assert_non_null(task);
    json_decref(task);
    queue_close(q);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct queue *q;
    raw_ok(db, "CREATE TABLE mine (x)");
    assert_int_equal(queue_open(&q, db, &e), HONE_EINPUT);
    assert_null(q);
    FILE *f = fopen(db, "w");
    for (int i = 0; i < 2000; i++)
        fputs("no database ", f);
    fclose(f);
    e.code = 0;
    assert_int_equal(queue_open(&q, db, &e), HONE_EINPUT);
    e.code = 0;
    assert_int_equal(queue_open(&q, folder, &e), HONE_EINPUT);
}

/* ---- the brief */

static void a_brief_says_what_was_tried(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1], journal[200], text[8000] = "";
    struct hone_error e = {0};
    int64_t id;
    bool again;
    json_t *b;
    struct queue *q = queue_ok();
    snprintf(journal, sizeof journal, "%s.journal", db);
    struct journal *j = open_ok(journal, JOURNAL_WRITE);
    struct queue_task task = {.title = "fuse the MLP",
                              .hypothesis = "fewer bytes",
                              .model = "smollm2",
                              .series = "tg* t/s",
                              .expected_gain = 0.03,
                              .tier = "decode",
                              .work = "write the kernel\x1b[31m"};
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    for (int i = 0; i < 3; i++) { /* three attempts, each with a run that shows it */
        const char *const gates[] = {"fuse.mlp=off", "fuse.linear=off", "kernel=ref"}, *const why[] = {"slower by 2 %",
                                                                                                       "wrong tokens",
                                                                                                       "no gain"};
        int64_t run = begin_ok(j, "bench", "abc", "smollm2-135m", gates[i]);
        sample_ok(j, run, "tg64 t/s", 400 + i);
        end_ok(j, run);
        record_ok(j, run, "outcome", "outcome", i ? "lost" : "kept");
        assert_int_equal(take_as(q, "w", 60, "", token), id);
        assert_int_equal(queue_fail(q, id, token, why[i], true, &again, &e), 0);
    }
    if (brief_make(q, j, id, NULL, &b, &e))
        fail_msg("%s", e.message);
    FILE *f = fmemopen(text, sizeof text, "w");
    brief_write(b, f);
    fclose(f);
    json_decref(b);
    static const char *const wanted[] = {"task 1: fuse the MLP", "fewer bytes", "+3 %",         "slower by 2 %",
                                         "wrong tokens",         "no gain",     "fuse.mlp=off", "kernel=ref",
                                         "tg64 t/s median 402",  "lost",        "queue done 1", "tier check decode",
                                         "kernel?[31m"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("the brief lacks '%s':\n%s", wanted[i], text);
    int lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    assert_in_range(lines, 15, 60);                                 /* a page */
    assert_non_null(strstr(text, "verify -m MODEL --b CANDIDATE")); /* nothing is the best: against hone by itself */
    assert_non_null(strstr(text, "  fuse.mlp=off  "));
    assert_null(strpbrk(text, "{}\""));
    journal_close(j);
    queue_close(q);
}

/* What was handed in reads as words; what the tier compares with is what the commands name. */
static void a_brief_is_in_words(void **state)
{
    (void)state;
    char token[QUEUE_TOKEN + 1], journal[200], text[8000] = "";
    struct hone_error e = {0};
    int64_t before, id, run;
    bool again;
    json_t *b,
        *result = json_pack("{s:s, s:s, s:f, s:s, s:[i,i]}", "decision", "no gain", "why",
                            "ab says no difference: +0.1 %, -0.2 to 0.3 %", "gain", 0.00123456789012345, "folder",
                            "logs/task-1-1", "runs", 31, 32),
        *best = json_pack("{s:s, s:s, s:s}", "decision", "promoted", "tier", "decode", "text", "fuse.mlp=off\n");
    struct queue *q = queue_ok();
    snprintf(journal, sizeof journal, "%s.journal", db);
    struct journal *j = open_ok(journal, JOURNAL_WRITE);
    struct queue_task task = {.title = "the first",
                              .model = "smollm2",
                              .series = "tg* t/s",
                              .expected_gain = NAN,
                              .tier = "decode",
                              .recipe = "start.recipe"};
    assert_int_equal(queue_add(q, &task, &before, &e), 0);
    assert_int_equal(take_as(q, "w", 60, "", token), before);
    assert_int_equal(queue_done(q, before, token, result, &again, &e), 0);
    run = begin_ok(j, "tier", "abc", "smollm2-135m", "fuse.mlp=off");
    assert_int_equal(journal_record(j, run, "decision", best, NULL, &e), 0);
    end_ok(j, run);
    task.title = "the second";
    assert_int_equal(queue_add(q, &task, &id, &e), 0);
    for (int i = 0; i < 2; i++) { /* the second's page, and the first's, which has it as an event */
        if (brief_make(q, j, i ? before : id, NULL, &b, &e))
            fail_msg("%s", e.message);
        FILE *f = fmemopen(text, sizeof text, "w");
        brief_write(b, f);
        fclose(f);
        json_decref(b);
        static const char *const wanted[] = {"no gain: ab says no difference: +0.1 %, -0.2 to 0.3 % (run 31, 32)",
                                             "recipe best --tier decode --model 'smollm2' >best",
                                             "verify -m MODEL --a best.recipe --b",
                                             "ab -m MODEL --a 'best.recipe'",
                                             "recipe lint",
                                             "hone bench"};
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
            if (!strstr(text, wanted[k]))
                fail_msg("the brief lacks '%s':\n%s", wanted[k], text);
        if (strpbrk(text, "{}\"") || strstr(text, "--a 'start.recipe'"))
            fail_msg("the brief has JSON, or another base than the best:\n%s", text);
    }
    json_decref(result);
    json_decref(best);
    journal_close(j);
    queue_close(q);
}

/* ---- workers that are killed */

enum { WORKERS = 8 };

static void nap(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* Takes, works, hands in, for ever. What it was told is done goes to a file, a line each. */
static void work_for_ever(int number, unsigned seed)
{
    char log_path[200], name[32];
    struct queue *q;
    struct hone_error e = {0};
    snprintf(log_path, sizeof log_path, "%s.log", db);
    int log_file = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    snprintf(name, sizeof name, "w%d", number);
    if (log_file < 0 || queue_open(&q, db, &e))
        _exit(1);
    for (;;) {
        json_t *task = NULL;
        bool again = true;
        char token[QUEUE_TOKEN + 1], line[32];
        if (queue_take(q, name, NULL, 0, 1, "", &task, &e))
            _exit(2);
        if (!task) {
            nap(10);
            continue;
        }
        int64_t id = json_integer_value(json_object_get(task, "id"));
        snprintf(token, sizeof token, "%s", json_string_value(json_object_get(task, "token")));
        json_decref(task);
        nap(rand_r(&seed) % 40 == 0 ? 1300 : 10 + rand_r(&seed) % 60); /* some sleep past their lease */
        if (rand_r(&seed) % 4 == 0)
            queue_renew(q, id, token, 1, &e);
        int rc = finish(q, id, token, &again);
        if (rc && rc != HONE_ECHECK)
            _exit(3);
        if (!rc) {
            int n = snprintf(line, sizeof line, "%s%lld\n", again ? "again " : "", (long long)id);
            if (write(log_file, line, (size_t)n) != n)
                _exit(4);
            if (finish(q, id, token, &again) || !again)
                _exit(5);
        }
        e.code = 0;
    }
}

static pid_t start_worker(int number, unsigned seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        work_for_ever(number, seed);
    return pid;
}

/* Of a queue that nobody of this process holds open while it forks. */
static int64_t ask(const char *sql)
{
    sqlite3 *s;
    sqlite3_stmt *st = NULL;
    int64_t x = -1;
    assert_int_equal(sqlite3_open(db, &s), 0);
    sqlite3_busy_timeout(s, 60000);
    if (!sqlite3_prepare_v2(s, sql, -1, &st, NULL) && sqlite3_step(st) == SQLITE_ROW)
        x = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(s);
    return x;
}

/* Kills a worker every few milliseconds until all is done. Returns how many. */
static int kill_until_done(int n_tasks, unsigned seed)
{
    pid_t pids[WORKERS];
    int kills = 0, status;
    for (int i = 0; i < WORKERS; i++)
        pids[i] = start_worker(i, seed + (unsigned)i);
    time_t began = time(NULL);
    while (ask("SELECT count(*) FROM task WHERE status = 'done'") < n_tasks && time(NULL) - began < 120) {
        nap(5 + rand_r(&seed) % 20);
        int victim = rand_r(&seed) % WORKERS;
        assert_int_equal(kill(pids[victim], SIGKILL), 0);
        waitpid(pids[victim], &status, 0);
        assert_true(WIFSIGNALED(status)); /* it had not ended by a fault of its own */
        pids[victim] = start_worker(victim, seed + (unsigned)++kills * 100);
    }
    for (int i = 0; i < WORKERS; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], &status, 0);
        assert_true(WIFSIGNALED(status));
    }
    return kills;
}

/* No worker was told twice that a task is done. */
static void each_was_acknowledged_at_most_once(int n_tasks)
{
    char path[200], line[64];
    int *times = calloc((size_t)n_tasks + 1, sizeof *times);
    snprintf(path, sizeof path, "%s.log", db);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        int id = atoi(line);
        assert_in_range(id, 1, n_tasks);
        assert_int_equal(times[id]++, 0);
    }
    fclose(f);
    free(times);
}

static void killed_workers_lose_nothing(void **state)
{
    (void)state;
    const int rounds = getenv("HONE_SOAK") ? 3 : 1, n_tasks = getenv("HONE_SOAK") ? 200 : 60;
    for (int r = 0; r < rounds; r++) {
        fresh(NULL);
        struct queue *q = queue_ok();
        for (int i = 1; i <= n_tasks; i++)
            add_task(q, "a task", i % 3, i % 5 == 0 ? i - 1 : 0);
        queue_close(q);
        int kills = kill_until_done(n_tasks, (unsigned)(11 + r));
        assert_int_equal(ask("SELECT count(*) FROM task WHERE status = 'done'"), n_tasks);
        assert_int_equal(ask("SELECT count(*) FROM event WHERE what = 'done'"), n_tasks);
        assert_int_equal(ask("SELECT count(DISTINCT task) FROM event WHERE what = 'done'"), n_tasks);
        assert_int_equal(ask("SELECT count(*) FROM event d JOIN after ON after.task = d.task JOIN event n ON n.task = needs "
                             "WHERE d.what = 'taken' AND n.what = 'done' AND n.id > d.id"),
                         0);
        each_was_acknowledged_at_most_once(n_tasks);
        /* From the taking to the taking over: a lease (1 s) and what a busy machine adds; a renewal may have moved it by its
         * length. */
        int64_t waited = ask("SELECT ifnull(max(x.at - (SELECT max(t.at) FROM event t WHERE t.task = x.task AND t.what = "
                             "'taken' AND t.id < x.id)), 0) "
                             "FROM event x WHERE x.what = 'expired'");
        int64_t expired = ask("SELECT count(*) FROM event WHERE what = 'expired'");
        print_message("%d tasks, %d workers, %d killed, %lld leases ran out, the longest after %lld ms\n", n_tasks, WORKERS,
                      kills, (long long)expired, (long long)waited);
        assert_true(kills > 0);
        assert_in_range(waited, 0, 10000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_order_is_priority_then_age, fresh),
        cmocka_unit_test_setup(a_task_waits_for_those_before_it, fresh),
        cmocka_unit_test_setup(a_hand_in_is_by_token_and_repeatable, fresh),
        cmocka_unit_test_setup(a_lease_that_ran_out_is_still_good_while_nobody_else_has_it, fresh),
        cmocka_unit_test_setup(a_token_of_ones_own_makes_taking_repeatable, fresh),
        cmocka_unit_test_setup(a_budget_ends_a_lease, fresh),
        cmocka_unit_test_setup(tries_run_out, fresh),
        cmocka_unit_test_setup(failing_and_blocking, fresh),
        cmocka_unit_test_setup(who_hands_in_does_not_approve, fresh),
        cmocka_unit_test_setup(a_hand_in_is_corrected_until_it_is_judged, fresh),
        cmocka_unit_test_setup(what_comes_after_waits_for_the_word_of_a_supervisor, fresh),
        cmocka_unit_test_setup(a_lease_is_taken_back_and_a_task_given_up, fresh),
        cmocka_unit_test_setup(a_task_is_edited_while_nobody_has_it, fresh),
        cmocka_unit_test_setup(roles_choose_tasks, fresh),
        cmocka_unit_test_setup(other_files_are_refused, fresh),
        cmocka_unit_test_setup(a_brief_says_what_was_tried, fresh),
        cmocka_unit_test_setup(a_brief_is_in_words, fresh),
        cmocka_unit_test_setup(killed_workers_lose_nothing, fresh),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, clean);
}
