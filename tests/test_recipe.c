/* test_recipe.c: recipes as files to judge: errors with their line, what cannot work together, hashes, differences, the
 * denylist, the best one in a journal. */
#include "tests/journal_fixture.h"

#include "lab/denylist.h"

static struct recipe parse_ok(const char *text)
{
    struct recipe r;
    struct hone_error e = {0};
    if (recipe_parse(&r, text, "t.recipe", &e))
        fail_msg("%s: %s", text, e.message);
    return r;
}

static void parse_bad(const char *text, const char *words)
{
    struct recipe r;
    struct hone_error e = {0};
    int rc = recipe_parse(&r, text, "t.recipe", &e);
    if (rc != HONE_EINPUT || e.code != HONE_EINPUT || !strstr(e.message, words))
        fail_msg("'%s': code %d; '%s' lacks '%s'", text, rc, e.message, words);
    recipe_free(&r);
}

/* What lint says first, with its line; words NULL: nothing. */
static void lint_says(const char *text, int line, bool error, const char *words)
{
    struct recipe r = parse_ok(text);
    struct recipe_findings f;
    struct hone_error e = {0};
    assert_int_equal(recipe_lint(&r, &f, &e), 0);
    if (!words) {
        if (f.n)
            fail_msg("'%s': line %d: %s", text, f.list[0].line, f.list[0].text);
    } else if (!f.n || f.list[0].line != line || f.list[0].error != error || !strstr(f.list[0].text, words)) {
        fail_msg("'%s': %zu findings; line %d '%s' lacks '%s'", text, f.n, f.n ? f.list[0].line : 0, f.n ? f.list[0].text : "",
                 words);
    }
    recipe_findings_free(&f);
    recipe_free(&r);
}

static void errors_have_their_line(void **state)
{
    (void)state;
    parse_bad("kernel.mul_mat=ref\nspeed=11\n", "t.recipe:2: gate 'speed=11': unknown gate");
    parse_bad("# one\n\nkernel.mull_mat=ref", "t.recipe:3: gate");
    parse_bad("fuse.mlp=off\ntype_k=q9_9\n", "t.recipe:2: 'q9_9': no such format");
    parse_bad("threads=0", "t.recipe:1: '0': threads");
    parse_bad("threads=", "threads are a number");
    parse_bad("threads=4x", "threads are a number");
    parse_bad("threads=99999999999999999999", "threads are a number");
    parse_bad("type_v=q8_0 # once\ntype_v=q4_0", "t.recipe:2: 'q4_0': the setting stands twice");
    parse_bad("type_k=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "no such format");
    parse_bad("fuse.mlp", "a gate is name=value");
}

static void settings_stand_among_gates(void **state)
{
    (void)state;
    struct recipe r = parse_ok("threads=3; kernel.mul_mat=ref type_k=q8_0 # type_v=q4_0\n fuse.mlp=off\n");
    assert_int_equal(r.settings.n_threads, 3);
    assert_string_equal(r.settings.type_k, "q8_0");
    assert_string_equal(r.settings.type_v, "");
    assert_int_equal(r.gates.n, 2);
    assert_int_equal(r.lines[0], 1);
    assert_int_equal(r.lines[1], 2);
    struct recipe same = parse_ok("kernel.mul_mat=ref\n\n# why\nfuse.mlp=off\ntype_k=q8_0\nthreads=3"),
                  other = parse_ok("fuse.mlp=off kernel.mul_mat=ref type_k=q8_0 threads=3"),
                  fewer = parse_ok("kernel.mul_mat=ref fuse.mlp=off");
    assert_string_equal(r.hash, same.hash);
    assert_string_not_equal(r.hash, other.hash);
    assert_string_not_equal(r.hash, fewer.hash);
    recipe_free(&r);
    recipe_free(&same);
    recipe_free(&other);
    recipe_free(&fewer);
}

static void what_cannot_work_is_found(void **state)
{
    (void)state;
    lint_says("", 0, false, NULL);
    lint_says("fuse=off\nfuse.mlp=on", 0, false, NULL);
    lint_says("kernel.mul_mat=ref\nskip=add,rms_norm\n", 0, false, NULL);
    lint_says("fuse.mlp=on\n\nfuse=off", 1, true, "'fuse=off' in line 3");
    lint_says("kernel.mul_mat.q4_0=ref\nkernel.mul_mat=ref", 1, true, "no effect");
    lint_says("kernel.mul_mat=ref\nkernel=ref", 1, true, "no effect");
    lint_says("skip=mul_mat\nkernel.mul_mat=ref", 1, true, "no effect");
    lint_says("# a\nkernel.mul_mat=warp_drive", 2, true, "no such kernel");
    lint_says("fuse.mlp=off\ndecline.mlp=on", 2, true, "cannot work");
    lint_says("decline.mlp=on", 1, false, "diagnostic");
    lint_says("debug.spin=5", 1, false, "diagnostic");
    lint_says("debug.skip_all_reduce=on", 1, false, "wrong output");
    lint_says("debug.skip_all_reduce=off", 0, false, NULL);
    lint_says("debug.guard=size_limit", 1, false, "diagnostic");
    lint_says("debug.guard=none", 0, false, NULL);
}

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static bool was_run_with(const char *recipe, const char *plugin)
{
    struct recipe r = parse_ok(recipe);
    json_t *identity = json_pack("{s:O}", "gates", json_object_get(r.content, "gates"));
    if (plugin)
        json_object_set_new(identity, "plugins", json_pack("[{s:s, s:s}]", "file", "mine.so", "sha256", plugin));
    bool is = recipe_is(&r, identity);
    json_decref(identity);
    recipe_free(&r);
    return is;
}

static void a_plugin_belongs_to_the_recipe(void **state)
{
    (void)state;
    struct recipe one = parse_ok("fuse=off plugin=" HASH_A " plugin=" HASH_B),
                  other = parse_ok("plugin=" HASH_B "\nfuse=off\nplugin=" HASH_A), fewer = parse_ok("fuse=off plugin=" HASH_A),
                  none = parse_ok("fuse=off");
    assert_string_equal(one.hash, other.hash);
    assert_string_not_equal(one.hash, fewer.hash);
    assert_string_not_equal(fewer.hash, none.hash);
    recipe_free(&one);
    recipe_free(&other);
    recipe_free(&fewer);
    recipe_free(&none);
    parse_bad("fuse=off\nplugin=./mine.so", "t.recipe:2: './mine.so': a plug-in is named by the SHA-256");
    parse_bad("plugin=AAAA", "SHA-256");
    lint_says("plugin=" HASH_A, 1, true, "is not loaded");
    assert_true(was_run_with("plugin=" HASH_A, HASH_A));
    assert_false(was_run_with("plugin=" HASH_A, HASH_B));
    assert_false(was_run_with("plugin=" HASH_A, NULL));
    assert_true(was_run_with("fuse=off", NULL));
    assert_true(was_run_with("fuse=off", HASH_A)); /* it was there, and nothing of it ran */
    assert_true(was_run_with("kernel.add=ref", HASH_A));
    assert_false(was_run_with("kernel.add=mine", HASH_A)); /* it may have run, and the recipe does not say which it is */
    assert_true(was_run_with("kernel.add=mine plugin=" HASH_A, HASH_A));
}

static void differences_are_by_what_they_are_about(void **state)
{
    (void)state;
    struct recipe a = parse_ok("kernel.mul_mat=ref fuse.mlp=off type_k=q8_0"),
                  b = parse_ok("skip=mul_mat fuse.mlp=on threads=2");
    json_t *d = recipe_diff(&a, &b);
    assert_int_equal(json_array_size(d), 3); /* skip=mul_mat is kernel.mul_mat=ref */
    assert_string_equal(json_string_value(json_object_get(json_array_get(d, 0), "what")), "fuse.mlp");
    assert_string_equal(json_string_value(json_object_get(json_array_get(d, 0), "b")), "on");
    assert_true(json_is_null(json_object_get(json_array_get(d, 2), "a")));
    json_decref(d);
    recipe_free(&a);
    recipe_free(&b);
}

/* ---- the denylist */

static const char record[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static int write_denylist(char path[200], const char *words, const char *hash, const char *why)
{
    snprintf(path, 200, "%s/denylist", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "# what nobody should find out twice\n\n%s | %s | %s\n", words, hash, why);
    return fclose(f);
}

static size_t denied(const char *words, const char *recipe, struct journal *j, char *text)
{
    char path[200];
    struct denylist d;
    struct recipe r = parse_ok(recipe);
    struct recipe_findings f = {0};
    struct hone_error e = {0};
    write_denylist(path, words, record, "tokens differ");
    if (denylist_read(&d, path, &e) || denylist_check(&d, &r, j, &f, &e))
        fail_msg("%s", e.message);
    size_t n = f.n;
    if (text)
        snprintf(text, 400, "%s", n ? f.list[0].text : "");
    recipe_findings_free(&f);
    denylist_free(&d);
    recipe_free(&r);
    return n;
}

static void the_unsafe_is_denied(void **state)
{
    (void)state;
    char text[400];
    assert_int_equal(denied("fuse.mlp=on type_k=q8_0", "type_k=q8_0", NULL, text), 1); /* fusions are on by default */
    assert_non_null(strstr(text, "tokens differ"));
    assert_non_null(strstr(text, "001122334455"));
    assert_non_null(strstr(text, "denylist:3"));
    assert_int_equal(denied("fuse.mlp=on type_k=q8_0", "type_k=q8_0 fuse.mlp=off", NULL, NULL), 0);
    assert_int_equal(denied("fuse.mlp=on type_k=q8_0", "type_k=q8_0 fuse=off", NULL, NULL), 0);
    assert_int_equal(denied("fuse.mlp=on type_k=q8_0", "type_k=q8_0 fuse=off fuse.mlp=on", NULL, NULL), 1);
    assert_int_equal(denied("fuse.mlp=on type_k=q8_0", "type_k=q4_0", NULL, NULL), 0);
    assert_int_equal(denied("type_k=f16 fuse.mlp=off", "fuse.mlp=off", NULL, NULL), 1);
    assert_int_equal(denied("kernel.mul_mat=ref", "kernel.mul_mat.q4_0=ref", NULL, NULL), 1);
    assert_int_equal(denied("kernel.mul_mat=ref", "kernel=ref", NULL, NULL), 1);
    assert_int_equal(denied("kernel.mul_mat=ref", "kernel.add=ref", NULL, NULL), 0);
    assert_int_equal(denied("kernel.mul_mat=ref", "", NULL, NULL), 0);
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    assert_int_equal(denied("kernel.mul_mat=ref", "kernel=ref", j, NULL), 2); /* and the journal knows no such record */
    journal_close(j);
}

static void a_denylist_with_a_fault_names_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *words, *hash, *why, *says;
    } bad[] = {{"fuse.mlp=on", "abc", "why", "denylist:3: 'abc' is no SHA-256"},
               {"", record, "why", "denylist:3: nothing is denied"},
               {"fuse.mlp=on", record, "", "denylist:3: a denial is"},
               {"fuse.mpl=on", record, "why", "denylist:3:1: gate"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct denylist d;
        struct hone_error e = {0};
        char path[200];
        write_denylist(path, bad[i].words, bad[i].hash, bad[i].why);
        int rc = denylist_read(&d, path, &e);
        if (rc != HONE_EINPUT || !strstr(e.message, bad[i].says))
            fail_msg("%zu: code %d, '%s' lacks '%s'", i, rc, e.message, bad[i].says);
        denylist_free(&d);
    }
}

/* ---- in a journal */

static void promote(struct journal *j, const char *tier, const char *text)
{
    struct hone_error e = {0};
    int64_t run = begin_ok(j, "tier", "abc", "smollm2", "");
    json_t *body = json_pack("{s:s, s:s, s:s}", "decision", "promoted", "tier", tier, "text", text);
    assert_int_equal(journal_record(j, run, "decision", body, NULL, &e), 0);
    json_decref(body);
    end_ok(j, run);
}

static void best_is(struct journal *j, const char *tier, const char *model, const char *text)
{
    struct hone_error e = {0};
    json_t *d;
    assert_int_equal(recipe_best(j, tier, model, &d, &e), 0);
    if (!text)
        assert_null(d);
    else
        assert_string_equal(json_string_value(json_object_get(d, "text")), text);
    json_decref(d);
}

static void the_best_was_promoted_last(void **state)
{
    (void)state;
    struct journal *j = open_ok(db, JOURNAL_WRITE);
    best_is(j, NULL, NULL, NULL);
    promote(j, "decode", "fuse.mlp=on");
    promote(j, "decode", "fuse.mlp=off");
    promote(j, "prefill", "kernel=ref");
    best_is(j, "decode", NULL, "fuse.mlp=off");
    best_is(j, NULL, "smol", "kernel=ref");
    best_is(j, "prefill", "gemma", NULL);
    best_is(j, "nothing", NULL, NULL);
    journal_close(j);
}

static void a_run_of_this_recipe_is_known(void **state)
{
    (void)state;
    struct recipe r = parse_ok("fuse.mlp=off\ntype_k=q8_0");
    json_t *same = json_pack("{s:[s], s:s, s:s}", "gates", "fuse.mlp=off", "type_k", "Q8_0", "type_v", "f16"),
           *other = json_pack("{s:[s], s:s}", "gates", "fuse.mlp=off", "type_k", "f16"), *none = json_object();
    assert_true(recipe_is(&r, same));
    assert_false(recipe_is(&r, other));
    assert_false(recipe_is(&r, none));
    struct recipe plain = parse_ok("fuse.mlp=off");
    json_t *unsaid = json_pack("{s:[s], s:s, s:s}", "gates", "fuse.mlp=off", "type_k", "default", "type_v", "default");
    assert_true(recipe_is(&plain, unsaid)); /* an arm within a process */
    assert_false(recipe_is(&r, unsaid));
    struct recipe one = parse_ok("fuse.mlp=off\nthreads=1"); /* a thread less is another recipe, and a handicap for a base */
    assert_false(recipe_is(&one, unsaid));
    json_object_set_new(unsaid, "threads", json_integer(1));
    assert_true(recipe_is(&one, unsaid));
    assert_false(recipe_is(&plain, unsaid));
    recipe_free(&one);
    json_decref(unsaid);
    recipe_free(&plain);
    json_decref(same);
    json_decref(other);
    json_decref(none);
    recipe_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_their_line),
        cmocka_unit_test(settings_stand_among_gates),
        cmocka_unit_test(what_cannot_work_is_found),
        cmocka_unit_test(a_plugin_belongs_to_the_recipe),
        cmocka_unit_test(differences_are_by_what_they_are_about),
        cmocka_unit_test_setup(the_unsafe_is_denied, fresh),
        cmocka_unit_test_setup(a_denylist_with_a_fault_names_its_line, fresh),
        cmocka_unit_test_setup(the_best_was_promoted_last, fresh),
        cmocka_unit_test(a_run_of_this_recipe_is_known),
    };
    return cmocka_run_group_tests_name("recipes", tests, NULL, clean);
}
