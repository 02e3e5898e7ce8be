/* test_jinja.c: templates of our own and published ones as Jinja renders them (golden/jinja.json, golden/jinja_real.json, made
 * by golden/jinja.py); refusals with line and column; hostile templates.
 *
 * Published templates are read from HONE_TEMPLATES (tests/golden/templates.sh); without it their test is skipped. */
#include "model/jinja.h"

#include "tests/test.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *golden(const char *path)
{
    json_error_t why;
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!all)
        fail_msg("%s: %s", path, why.text);
    return all;
}

static int rendered(const char *template_text, size_t n, const json_t *context, int64_t now, const struct jinja_limits *limits,
                    struct text *out, struct hone_error *e)
{
    struct jinja *j = NULL;
    int rc = jinja_parse(&j, template_text, n, e);
    if (!rc)
        rc = jinja_render(j, context, now, limits, out, e);
    jinja_free(j);
    /* Nothing but the reason. */
    if (rc) {
        assert_true(e->message[0] && !strchr(e->message, '\n'));
        assert_true(out->n == 0);
    }
    return rc;
}

static void test_golden(void **state)
{
    (void)state;
    json_t *all = golden("tests/golden/jinja.json"), *c;
    int64_t now = json_integer_value(json_object_get(all, "now"));
    size_t i, texts = 0, refusals = 0;
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        const json_t *t = json_object_get(c, "template");
        const char *expected = json_string_value(json_object_get(c, "text"));
        struct text x = {0};
        struct hone_error e = {0};
        int rc = rendered(json_string_value(t), json_string_length(t), json_object_get(c, "context"), now, NULL, &x, &e);
        if (!expected && rc != HONE_EINPUT)
            fail_msg("'%s' is rendered, not refused", json_string_value(t));
        if (!expected && !strstr(e.message, "line 1, column "))
            fail_msg("'%s': %s", json_string_value(t), e.message);
        if (expected && rc)
            fail_msg("'%s': %s", json_string_value(t), e.message);
        if (expected && strcmp(x.data ? x.data : "", expected))
            fail_msg("'%s' gives '%s', not '%s'", json_string_value(t), x.data, expected);
        texts += expected != NULL;
        refusals += !expected;
        text_free(&x);
    }
    assert_true(texts > 60 && refusals > 40);
    json_decref(all);
}

static void digest(const char *data, size_t n, char hex[65])
{
    unsigned char hash[32];
    assert_int_equal(EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL), 1);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

static char *file_text(const char *folder, const char *name, size_t *n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    *n = f && data ? fread(data, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return data;
}

/* All conversations through one template: how many texts agree with and without tools. */
static void compare_file(const json_t *one, const json_t *contexts, int64_t now, const char *text, size_t n, size_t agreed[2])
{
    const char *name = json_string_value(json_object_get(one, "file"));
    const json_t *texts = json_object_get(one, "texts"), *c;
    size_t i;
    json_array_foreach(contexts, i, c)
    {
        const char *expected = json_string_value(json_array_get(texts, i));
        char hex[65] = "";
        struct text x = {0};
        struct hone_error e = {0};
        int rc = rendered(text, n, c, now, NULL, &x, &e);
        if (!rc)
            digest(x.data ? x.data : "", x.n, hex);
        if (expected && rc)
            fail_msg("%s, conversation %zu: %s", name, i, e.message);
        if (!expected && !rc)
            fail_msg("%s, conversation %zu: rendered, but Jinja refuses it", name, i);
        if (expected && strncmp(hex, expected, 16))
            fail_msg("%s, conversation %zu: another text than Jinja's: '%s'", name, i, x.data);
        agreed[json_is_array(json_object_get(c, "tools"))] += expected != NULL;
        text_free(&x);
    }
}

static void test_real(void **state)
{
    (void)state;
    const char *folder = getenv("HONE_TEMPLATES");
    if (!folder || !*folder) {
        print_message("test_jinja: published templates: SKIPPED: HONE_TEMPLATES is not set (tests/golden/templates.sh)\n");
        skip();
    }
    json_t *all = golden("tests/golden/jinja_real.json"), *one;
    int64_t now = json_integer_value(json_object_get(all, "now"));
    size_t i, with = 0, without = 0;
    json_array_foreach(json_object_get(all, "files"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "file"));
        size_t n, agreed[2] = {0, 0};
        char hex[65], *text = file_text(folder, name, &n);
        digest(text, n, hex);
        if (strcmp(hex, json_string_value(json_object_get(one, "template"))))
            fail_msg("%s/%s is missing, or another than the one that golden/jinja.py saw", folder, name);
        compare_file(one, json_object_get(all, "contexts"), now, text, n, agreed);
        without += agreed[0] > 0;
        with += agreed[1] > 0;
        free(text);
    }
    print_message(
        "%zu published templates agree with Jinja byte for byte; %zu of them take conversations without tools, %zu with\n", i,
        without, with);
    assert_true(with >= 25 && without >= 25);
    json_decref(all);
}

static void refused(const char *template_text, const struct jinja_limits *limits, const char *why)
{
    struct text x = {0};
    struct hone_error e = {0};
    json_t *none = json_object();
    if (rendered(template_text, strlen(template_text), none, -1, limits, &x, &e) != HONE_EINPUT)
        fail_msg("'%.60s' is rendered", template_text);
    if (!strstr(e.message, why))
        fail_msg("'%.60s': '%s', without '%s'", template_text, e.message, why);
    json_decref(none);
    text_free(&x);
}

static void test_places(void **state)
{
    (void)state;
    refused("a\nb {{ x.y }}", NULL, "line 2, column 8: 'x' is not defined");
    refused("\xc3\xa9\xc3\xa9{{ 1 + }}", NULL, "line 1, column 10");
    refused("a\r\nb\r\n{% foo %}", NULL, "line 3, column 4: the tag 'foo'");
    refused("{% for x in y recursive %}{% endfor %}", NULL, "recursive");
    refused("{{ x|pprint }}", NULL, "the filter 'pprint' is not known");
    refused("{% if true %}{{ x|pprint }}{% endif %}", NULL, "the filter 'pprint' is not known");
    refused("{{ strftime_now('%Y') }}", NULL, "'strftime_now' is not defined");
    refused("{{ raise_exception('not\nso') }}", NULL, "the template refuses: not so");
    refused("{% set loop = 1 %}", NULL, "column 8");
    refused("{{ 99999999999999999999 }}", NULL, "64 bits");
    refused("{{ 9223372036854775807 + 1 }}", NULL, "64 bits");
    refused("{{ (-9223372036854775807 - 1) // -1 }}", NULL, "64 bits");
    refused("{{ 2 ** 64 }}", NULL, "64 bits");
    refused("{{ '\xff' }}", NULL, "UTF-8");
    refused("{{ '\xc3\x9f'|upper }}", NULL, "U+00DF");
    refused("{{ ('a'|safe).upper() }}", NULL, "safe");
}

static char *repeated(const char *what, size_t n, const char *tail)
{
    size_t size = strlen(what);
    char *s = malloc(n * size + strlen(tail) + 1);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++)
        memcpy(s + i * size, what, size);
    memcpy(s + n * size, tail, strlen(tail) + 1);
    return s;
}

static void test_hostile(void **state)
{
    (void)state;
    static const char *const many[] = {"(",
                                       "[",
                                       "{1:",
                                       "{{ ",
                                       "-",
                                       "not ",
                                       "{% if 1 %}",
                                       "a.",
                                       "a(",
                                       "x if ",
                                       "{% for x in y %}",
                                       "1+",
                                       "a[",
                                       "x|trim|",
                                       "{% macro f() %}"};
    static const char loops[] = "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}";
    static const char ends[] = "{% endfor %}{% endfor %}{% endfor %}";
    char text[512];
    snprintf(text, sizeof text, "%s%s", loops, ends);
    refused(text, NULL, "more than");
    refused("{% for a in range(100000) %}{% for b in 'abcdefghijklmnopqrstuvwxyz' %}{% for c in (1,2,3,4,5,6,7,8,9) %}"
            "{% if a < 0 %}{% endif %}{% endfor %}{% endfor %}{% endfor %}",
            &(struct jinja_limits){.memory = (size_t)4 << 30, .steps = 1000000}, "steps");
    snprintf(text, sizeof text, "%sxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx%s", loops, ends);
    refused(text, &(struct jinja_limits){.output = 100000}, "bytes");
    refused("{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", NULL, "bytes");
    refused("{{ 'abcdefgh' * 9000000000000 }}", NULL, "bytes");
    refused("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", NULL,
            "within");
    refused("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", NULL,
            "the template");
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, "within");
    refused("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", &(struct jinja_limits){.depth = 100}, "within");
    refused("{% set ns = namespace() %}{% set ns.d = {'n': ns} %}{{ ns.d }}", NULL, "printed");
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        char *s = repeated(many[i], 100000, "");
        char *in_tag = malloc(strlen(s) + 8);
        assert_non_null(in_tag);
        sprintf(in_tag, "{{ %s }}", s);
        refused(in_tag, NULL, "line 1");
        refused(s[0] == '{' && s[1] != '1' ? s : in_tag, NULL, "line 1");
        free(in_tag);
        free(s);
    }
    char *chain = repeated("1+", 5000, "1 }}"), *whole = malloc(strlen(chain) + 4);
    assert_non_null(whole);
    sprintf(whole, "{{ %s", chain);
    refused(whole, NULL, "in a row");
    free(chain);
    free(whole);
}

/* Text that grows piece by piece costs its length, not its square: a million bytes in ten thousand pieces, within few steps. */
static void test_growing(void **state)
{
    (void)state;
    static const char t[] =
        "{% set ns = namespace(x='') %}{% for i in range(10000) %}{% set ns.x = ns.x + 'xxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' %}{% endfor %}{{ ns.x|length }}";
    struct text x = {0};
    struct hone_error e = {0};
    json_t *none = json_object();
    assert_int_equal(rendered(t, sizeof t - 1, none, -1, &(struct jinja_limits){.steps = 500000, .memory = 16 << 20}, &x, &e),
                     0);
    assert_string_equal(x.data, "1000000");
    json_decref(none);
    text_free(&x);
}

/* Own templates cut anywhere: an error or a text, never a read beyond the end. */
static void test_cut(void **state)
{
    (void)state;
    json_t *all = golden("tests/golden/jinja.json"), *c;
    size_t i;
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        const json_t *t = json_object_get(c, "template");
        size_t size = json_string_length(t), step = size > 200 ? 7 : 1;
        for (size_t n = 0; n < size; n += step) {
            char *part = malloc(n ? n : 1);
            struct text x = {0};
            struct hone_error e = {0};
            assert_non_null(part);
            memcpy(part, json_string_value(t), n);
            rendered(part, n, json_object_get(c, "context"), -1, &(struct jinja_limits){.steps = 20000}, &x, &e);
            text_free(&x);
            free(part);
        }
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_real),    cmocka_unit_test(test_places),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_growing), cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
