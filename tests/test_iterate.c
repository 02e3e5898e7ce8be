/* test_iterate.c: what the loop stands on: programs that end when they must, with all that they started; a task's text as a
 * change; changes of sources that touch nothing. The loop itself is tests/iterate_test.sh. */
#include "tests/journal_fixture.h"

#include "lab/change.h"
#include "lab/patch.h"
#include "lab/program.h"
#include "lab/recipe.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- steps */

static struct program_result run_shell(const char *script, double limit_s, int (*tick)(void *), struct program *out)
{
    static char log[160];
    static const char *argv[4] = {"sh", "-c"};
    struct hone_error e = {0};
    struct program_result r;
    snprintf(log, sizeof log, "%s.log", db);
    argv[2] = script;
    struct program s = {.argv = argv, .log = log, .limit_s = limit_s, .tick = tick};
    if (program_run(&r, &s, &e))
        fail_msg("%s", e.message);
    if (out)
        *out = s;
    return r;
}

static void a_step_tells_how_it_ended(void **state)
{
    (void)state;
    char text[500], line[200];
    struct program s;
    struct program_result r = run_shell("echo one; echo 'hone: two' >&2; exit 3", 0, NULL, &s);
    assert_int_equal(r.end, PROGRAM_EXITED);
    assert_int_equal(r.exit_code, 3);
    assert_string_equal(r.said, "two");
    assert_string_equal(program_describe(&s, &r, text, sizeof text), "exit code 3: two");
    FILE *f = fopen(s.log, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "$ sh -c 'echo one; echo '\\''hone: two'\\'' >&2; exit 3'\n");
    fclose(f);
    r = run_shell("kill -SEGV $$", 0, NULL, NULL);
    assert_int_equal(r.end, PROGRAM_SIGNALLED);
    assert_int_equal(r.signal, SIGSEGV);
    struct hone_error e = {0};
    struct program missing = {.argv = (const char *const[]){"/nowhere/to/be/found", NULL}, .log = s.log};
    assert_int_equal(program_run(&r, &missing, &e), 0);
    assert_int_equal(r.exit_code, 127);
    assert_non_null(strstr(r.said, "No such file"));
}

/* The process whose number a script wrote to <db>.pid; 0: none yet. */
static pid_t pid_in_file(void)
{
    char path[160];
    long pid = 0;
    snprintf(path, sizeof path, "%s.pid", db);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return (pid_t)pid;
}

static bool is_gone(pid_t pid, int seconds)
{
    for (int i = 0; i < 50 * seconds; i++) {
        if (kill(pid, 0) && errno == ESRCH)
            return true;
        usleep(20000);
    }
    return false;
}

/* In a session of its own, deaf to SIGTERM, its parent gone. */
static const char *stubborn(char text[600])
{
    snprintf(text, 600, "trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ >%s.pid; sleep 600; sleep 600') & sleep 600", db);
    return text;
}

static void a_step_ends_at_its_limit_with_all_that_it_started(void **state)
{
    (void)state;
    char text[600];
    struct program_result r = run_shell(stubborn(text), 0.5, NULL, NULL);
    assert_int_equal(r.end, PROGRAM_LATE);
    assert_true(r.seconds < 30);
    pid_t pid = pid_in_file();
    assert_true(pid > 0);
    assert_true(is_gone(pid, 1));
}

static int ticks;
static int third_tick(void *user)
{
    (void)user;
    return ++ticks >= 3;
}

static void a_step_ends_when_it_is_told_to(void **state)
{
    (void)state;
    ticks = 0;
    struct program_result r = run_shell("trap 'echo stopped; exit 9' TERM; sleep 600 & wait", 0, third_tick, NULL);
    assert_int_equal(r.end, PROGRAM_STOPPED);
    assert_string_equal(r.said, "stopped"); /* it had time to say so */
    assert_true(r.seconds < 10);
}

static void a_step_ends_when_its_log_is_full(void **state)
{
    (void)state;
    char log[160], text[200];
    struct hone_error e = {0};
    struct program_result r;
    snprintf(log, sizeof log, "%s.log", db);
    struct program s = {.argv = (const char *const[]){"yes", NULL}, .log = log, .log_limit = 4 << 20, .limit_s = 60};
    assert_int_equal(program_run(&r, &s, &e), 0);
    assert_int_equal(r.end, PROGRAM_LOUD);
    assert_non_null(strstr(program_describe(&s, &r, text, sizeof text), "its log is more than 4 MiB"));
    s.argv = (const char *const[]){"true", NULL}; /* what an earlier step wrote is not counted */
    assert_int_equal(program_run(&r, &s, &e), 0);
    assert_int_equal(r.end, PROGRAM_EXITED);
    unlink(log);
}

static void nothing_stays_in_the_background(void **state)
{
    (void)state;
    char text[300];
    snprintf(text, sizeof text, "sh -c 'echo $$ >%s.pid; exec sleep 600' & sleep 0.3", db);
    struct program_result r = run_shell(text, 0, NULL, NULL);
    assert_int_equal(r.end, PROGRAM_EXITED);
    assert_int_equal(r.exit_code, 0);
    assert_true(pid_in_file() > 0);
    assert_true(is_gone(pid_in_file(), 1));
}

/* SIGKILL cannot be caught; the guard sees the pipe close. */
static void killed_it_leaves_nothing_running(void **state)
{
    (void)state;
    char text[600];
    stubborn(text);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct program s = {.argv = (const char *const[]){"sh", "-c", text, NULL}};
        struct program_result r;
        program_run(&r, &s, NULL);
        _exit(0);
    }
    for (int i = 0; i < 250 && !pid_in_file(); i++)
        usleep(20000);
    pid_t pid = pid_in_file();
    assert_true(pid > 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(is_gone(pid, 20));
}

/* ---- changes */

static void reads(const char *work, enum change_kind kind, const char *words, bool has_patch)
{
    struct change c;
    struct hone_error e = {0};
    assert_int_equal(change_read(&c, work, &e), 0);
    if (c.kind != kind || strcmp(c.words + strspn(c.words, " \n"), words) != 0 || (c.patch != NULL) != has_patch)
        fail_msg("'%s': kind %d, words '%s', patch %d", work, (int)c.kind, c.words, c.patch != NULL);
    change_free(&c);
}

static void a_text_shows_what_it_is(void **state)
{
    (void)state;
    reads("fuse.mlp=on", CHANGE_RECIPE, "fuse.mlp=on", false);
    reads("# why\n-fuse.mlp", CHANGE_RECIPE, "-fuse.mlp", false);
    reads("diff --git a/x b/x\n", CHANGE_PATCH, "", true);
    reads("fuse.mlp=on\n--- a/x\n+++ b/x\n", CHANGE_PATCH, "fuse.mlp=on\n", true);
    reads("From 1234 Mon\nSubject: x=y\n\ndiff --git a/x b/x\n", CHANGE_PATCH, "", true);
    reads("#!/bin/sh\necho a=b\n", CHANGE_COMMAND, "", false);
    reads("make the norm faster: a=b", CHANGE_WORDS, "", false);
    reads("--- not a patch", CHANGE_RECIPE, "--- not a patch", false); /* refused as words, by name */
    reads("", CHANGE_WORDS, "", false);
    reads("=", CHANGE_WORDS, "", false);
}

static void lays(const char *base, const char *words, const char *wanted)
{
    struct hone_error e = {0};
    char *text;
    if (change_lay_over(base, words, &text, &e))
        fail_msg("'%s' over '%s': %s", words, base, e.message);
    if (strcmp(text, wanted) != 0)
        fail_msg("'%s' over '%s' is '%s', not '%s'", words, base, text, wanted);
    struct recipe r;
    struct recipe_findings f;
    assert_int_equal(recipe_parse(&r, text, "t", &e), 0);
    assert_int_equal(recipe_lint(&r, &f, &e), 0);
    for (size_t i = 0; i < f.n; i++)
        if (strstr(f.list[i].text, "no effect"))
            fail_msg("'%s' over '%s': %s", words, base, f.list[i].text);
    recipe_findings_free(&f);
    recipe_free(&r);
    free(text);
}

static void lays_not(const char *base, const char *words, const char *why)
{
    struct hone_error e = {0};
    char *text;
    int rc = change_lay_over(base, words, &text, &e);
    if (rc != HONE_EINPUT || !strstr(e.message, why) || text)
        fail_msg("'%s' over '%s': code %d, '%s' lacks '%s'", words, base, rc, e.message, why);
}

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void words_are_laid_over_a_recipe(void **state)
{
    (void)state;
    lays("", "fuse.mlp=on", "fuse.mlp=on\n");
    lays("fuse.mlp=off\nkernel.attention=ref\n", "fuse.mlp=on", "kernel.attention=ref\nfuse.mlp=on\n");
    lays("kernel.mul_mat.q4_0=ref", "kernel.mul_mat=ref", "kernel.mul_mat=ref\n"); /* it covers the narrower one */
    lays("kernel.mul_mat=ref", "kernel.mul_mat.q4_0=q4_0_avx2", "kernel.mul_mat=ref\nkernel.mul_mat.q4_0=q4_0_avx2\n");
    lays("fuse=off kernel.attention=ref", "-fuse", "kernel.attention=ref\n");
    lays("skip=rope,add", "kernel.rope=avx2", "kernel.add=ref\nkernel.rope=avx2\n"); /* add stays on its reference */
    lays("type_k=q8_0 threads=2", "type_k=q4_0", "type_k=q4_0\nthreads=2\n");
    lays("type_k=q8_0 threads=2", "-threads -type_k", "");
    lays("plugin=" HASH_B, "plugin=" HASH_A, "plugin=" HASH_B "\nplugin=" HASH_A "\n");
    lays("plugin=" HASH_B, "-plugin fuse.mlp=on", "fuse.mlp=on\n");
    lays_not("fuse.mlp=on", "-fuse", "-fuse: the recipe that it starts from has no such word");
    lays_not("fuse.mlp=on", "-type_k", "-type_k");
    lays_not("", "fuse.mlb=on", "the change:1: gate 'fuse.mlb=on'");
    lays_not("fuse.mlb=on", "fuse.mlp=on", "the base:1");
}

static void plugins_are_kept_by_their_hash(void **state)
{
    (void)state;
    struct hone_error e = {0};
    char path[160], kept[160], *text = NULL, *paths;
    snprintf(path, sizeof path, "%s.so", db);
    snprintf(kept, sizeof kept, "%s.kept", db);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("abc", f); /* its SHA-256 is in FIPS 180-4 */
    fclose(f);
    assert_true(asprintf(&text, "fuse.mlp=on plugin=%s # plugin=/nowhere", path) > 0);
    if (change_keep_plugins(&text, kept, &e))
        fail_msg("%s", e.message);
    assert_non_null(strstr(text, "plugin=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad # plugin=/nowhere"));
    unlink(path);
    assert_int_equal(change_find_plugins(text, kept, &paths, &e), 0);
    assert_non_null(strstr(paths, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.so\n"));
    free(paths);
    free(text);
    text = strdup("plugin=/nowhere/x.so");
    assert_int_equal(change_keep_plugins(&text, kept, &e), HONE_EINPUT);
    free(text);
    e.code = 0;
    assert_int_equal(change_find_plugins("plugin=" HASH_A, kept, &paths, &e), HONE_EINPUT);
}

/* ---- sources */

static char here[4096];

static void shell(const char *format, ...)
{
    char command[1000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    if (system(command))
        fail_msg("%s", command);
}

/* A repository with one file, the current folder. */
static void enter_repository(void)
{
    assert_non_null(getcwd(here, sizeof here));
    shell("mkdir %s.git && cd %s.git && git init -q . && printf '1\\n2\\n3\\n' >file && git add file && git -c user.name=n -c "
          "user.email=n@n "
          "commit -q -m one",
          db, db);
    char path[160];
    snprintf(path, sizeof path, "%s.git", db);
    assert_int_equal(chdir(path), 0);
    shell("printf '1\\n2\\n3\\nmine\\n' >file; echo new >other; git status --porcelain >%s.before", db);
}

/* Tree, index and branches are as they were. */
static void leave_repository(void)
{
    shell("git status --porcelain >%s.after; cmp %s.before %s.after; test \"$(git log --oneline --all | wc -l)\" = 1; tail -n "
          "1 file | grep -q "
          "mine",
          db, db, db);
    shell("test \"$(git worktree list | wc -l)\" = 1");
    assert_int_equal(chdir(here), 0);
}

static void a_patch_is_a_commit_and_touches_nothing(void **state)
{
    (void)state;
    struct patch_base b;
    struct hone_error e = {0};
    char path[160], bad[160], commit[65], again[65];
    enter_repository();
    snprintf(path, sizeof path, "%s.patch", db);
    snprintf(bad, sizeof bad, "%s.bad", db);
    shell("printf -- '--- a/file\\n+++ b/file\\n@@ -1,3 +1,3 @@\\n 1\\n-2\\n+two\\n 3\\n' >%s; sed s/2/7/ %s >%s", path, path,
          bad);
    if (patch_base_find(&b, "HEAD", &e) || patch_apply(&b, path, "a title", folder, commit, &e) ||
        patch_apply(&b, path, "a title", folder, again, &e))
        fail_msg("%s", e.message);
    assert_false(patch_base_is_hone(&b));
    assert_string_equal(commit, again);
    shell("git show %s:file | grep -q two; test \"$(git show %s:file | wc -l)\" = 3", commit, commit);
    assert_int_equal(patch_apply(&b, bad, "a title", folder, commit, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "the patch does not apply to "));
    leave_repository();
    e.code = 0;
    assert_int_equal(patch_base_find(&b, "no-such-commit", &e), HONE_EINPUT);
}

static void a_tree_to_edit_is_of_its_own(void **state)
{
    (void)state;
    struct patch_base b;
    struct patch_tree t;
    struct hone_error e = {0};
    char commit[65], cache[160];
    enter_repository();
    snprintf(cache, sizeof cache, "%s.cache", db);
    mkdir(cache, 0777);
    if (patch_base_find(&b, "HEAD", &e) || patch_tree_open(&t, &b, cache, &e) || patch_tree_commit(&t, "nothing", commit, &e))
        fail_msg("%s", e.message);
    assert_string_equal(commit, b.commit); /* nothing was changed */
    shell("cd %s && git switch -q -c mine && printf 'three\\n' >new && git add new && git -c user.name=n -c user.email=n@n "
          "commit -q "
          "-m own && printf 'two\\n' >file",
          t.path);
    if (patch_tree_commit(&t, "two", commit, &e))
        fail_msg("%s", e.message);
    assert_string_not_equal(commit, b.commit);
    patch_tree_close(&t);
    shell("git show %s:file | grep -q two && git show %s:new | grep -q three && test \"$(git rev-parse %s^)\" = %s", commit,
          commit, commit, b.commit);
    shell("test \"$(git branch --list mine | wc -l)\" = 0 && test \"$(ls %s/worktrees | wc -l)\" = 0", cache);
    pid_t child = fork(); /* one that is killed leaves its tree to the next */
    if (child == 0) {
        patch_tree_open(&t, &b, cache, &e);
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    shell("test \"$(ls %s/worktrees)\" = %.12s-edit-%d", cache, b.commit, (int)child);
    if (patch_tree_open(&t, &b, cache, &e))
        fail_msg("%s", e.message);
    shell("test \"$(ls %s/worktrees)\" = %.12s-edit-%d", cache, b.commit, (int)getpid());
    patch_tree_close(&t);
    child = fork(); /* killed while git makes a tree to build in: a name that is locked, and no folder */
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    shell("mkdir -p %s/worktrees && git worktree add -q --detach %s/worktrees/abc-edit-%d && git worktree lock "
          "%s/worktrees/abc-edit-%d && rm -rf %s/worktrees/abc-edit-%d",
          cache, cache, (int)child, cache, (int)child, cache, (int)child);
    shell("git worktree prune; test \"$(git worktree list | wc -l)\" = 2");
    if (patch_tree_open(&t, &b, cache, &e))
        fail_msg("%s", e.message);
    patch_tree_close(&t);
    shell("test \"$(git worktree list | wc -l)\" = 1");
    if (patch_keep(&b, "task-7", commit, &e))
        fail_msg("%s", e.message);
    shell("test \"$(git rev-parse refs/hone/task-7)\" = %s", commit);
    assert_int_equal(patch_keep(&b, "task-7", NULL, &e), 0);
    leave_repository();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_step_tells_how_it_ended, fresh),
        cmocka_unit_test_setup(a_step_ends_at_its_limit_with_all_that_it_started, fresh),
        cmocka_unit_test_setup(a_step_ends_when_it_is_told_to, fresh),
        cmocka_unit_test_setup(a_step_ends_when_its_log_is_full, fresh),
        cmocka_unit_test_setup(nothing_stays_in_the_background, fresh),
        cmocka_unit_test_setup(killed_it_leaves_nothing_running, fresh),
        cmocka_unit_test(a_text_shows_what_it_is),
        cmocka_unit_test(words_are_laid_over_a_recipe),
        cmocka_unit_test_setup(plugins_are_kept_by_their_hash, fresh),
        cmocka_unit_test_setup(a_patch_is_a_commit_and_touches_nothing, fresh),
        cmocka_unit_test_setup(a_tree_to_edit_is_of_its_own, fresh),
    };
    return cmocka_run_group_tests_name("iterate", tests, NULL, clean);
}
