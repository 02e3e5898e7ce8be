/* test_chat.c: conversations as Jinja renders them from the models' own templates (golden/chat.json, made by golden/chat.py);
 * rendering in parts; templates that must be refused. */
#include "model/chat.h"

#include "tests/test.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGES = 8 };

static size_t messages_of(const json_t *list, struct chat_message *m)
{
    size_t n = json_array_size(list);
    assert_true(n <= MAX_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        m[i] = (struct chat_message){json_string_value(json_object_get(one, "role")),
                                     json_string_value(json_object_get(one, "content"))};
    }
    return n;
}

static int find(const struct chat_format **f, const char *name, const char *template_text, struct hone_error *e)
{
    return chat_format_find(f, name, &(struct chat_template){.text = template_text}, e);
}

static const struct chat_format *found(const char *name, const char *template_text)
{
    const struct chat_format *f = NULL;
    struct hone_error e = {0};
    if (find(&f, name, template_text, &e))
        fail_msg("%s", e.message);
    return f;
}

static json_t *golden(void)
{
    json_error_t why;
    json_t *all = json_load_file("tests/golden/chat.json", 0, &why);
    if (!all)
        fail_msg("tests/golden/chat.json: %s", why.text);
    return all;
}

static void test_golden(void **state)
{
    (void)state;
    json_t *all = golden(), *one, *c;
    size_t i, k, compared = 0;
    json_array_foreach(all, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *template_text = json_string_value(json_object_get(one, "template"));
        const struct chat_format *f = found(NULL, template_text);
        json_array_foreach(json_object_get(one, "cases"), k, c)
        {
            struct chat_message m[MAX_MESSAGES];
            size_t n = messages_of(json_object_get(c, "messages"), m);
            const char *expected = json_string_value(json_object_get(c, "text"));
            struct text x = {0};
            struct hone_error e = {0};
            int rc = chat_render(f, &(struct chat_template){template_text, NULL, NULL}, m, n, 0,
                                 json_is_true(json_object_get(c, "turn")), &x, &e);
            /* Templates refuse more than hone does (Qwen 3.5 a conversation without a user); Gemma's order of roles must hold.
             */
            if (!expected) {
                assert_true(rc == HONE_EINPUT || strcmp(chat_format_name(f), "gemma"));
            } else {
                if (rc)
                    fail_msg("%s, case %zu: %s", name, k, e.message);
                if (strcmp(x.data, expected))
                    fail_msg("%s, case %zu: '%s', not '%s'", name, k, x.data, expected);
                compared++;
            }
            text_free(&x);
        }
    }
    assert_true(compared > 50);
    json_decref(all);
}

/* What a chat feeds turn by turn, with the model's answers between, is what it would feed at once. */
static void test_parts(void **state)
{
    (void)state;
    static const struct chat_message m[] = {{"system", "S"}, {"user", "u1"},      {"assistant", "a1"},
                                            {"user", "u2"},  {"assistant", "a2"}, {"user", "u3"}};
    json_t *all = golden(), *one;
    size_t i;
    struct hone_error e = {0};
    json_array_foreach(all, i, one)
    {
        const char *t = json_string_value(json_object_get(one, "template"));
        const struct chat_format *f = found(NULL, t);
        for (size_t skip_system = 0; skip_system < 2; skip_system++) {
            const struct chat_message *from = m + skip_system;
            size_t n = 6 - skip_system;
            struct text whole = {0}, parts = {0};
            assert_int_equal(chat_render(f, &(struct chat_template){t, NULL, NULL}, from, n, 0, true, &whole, &e), 0);
            for (size_t turn = 2 - skip_system, first = 0; turn <= n; first = turn + 1, turn += 2) {
                assert_int_equal(chat_render(f, &(struct chat_template){t, NULL, NULL}, from, turn, first, true, &parts, &e),
                                 0);
                if (turn < n)
                    assert_int_equal(text_append(&parts, from[turn].content, strlen(from[turn].content), &e), 0);
            }
            assert_string_equal(parts.data, whole.data);
            text_free(&whole);
            text_free(&parts);
        }
    }
    json_decref(all);
}

static void test_names(void **state)
{
    (void)state;
    const struct chat_format *f = NULL;
    struct chat_message m[] = {{"user", "hi"}};
    struct text x = {0};
    struct hone_error e = {0};
    assert_string_equal(chat_format_names(), "chatml, gemma, llama3");
    assert_int_equal(chat_render(found("chatml", NULL), &(struct chat_template){NULL, NULL, NULL}, m, 1, 0, true, &x, &e), 0);
    assert_string_equal(x.data, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    x.n = 0;
    assert_int_equal(chat_render(found("llama3", "{{ nonsense }}"), &(struct chat_template){"{{ nonsense }}", NULL, NULL}, m, 1,
                                 0, true, &x, &e),
                     0);
    assert_string_equal(
        x.data, "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    x.n = 0;
    assert_int_equal(chat_render(found("gemma", NULL), &(struct chat_template){NULL, NULL, NULL}, m, 1, 0, true, &x, &e), 0);
    assert_string_equal(x.data, "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n");
    assert_int_equal(find(&f, "alpaca", NULL, &e), HONE_EUSAGE);
    assert_non_null(strstr(e.message, "chatml, gemma, llama3"));
    /* A role that no family has: refused, and the text stays as it was. */
    e = (struct hone_error){0};
    m[0].role = "tool";
    assert_int_equal(chat_render(found("chatml", NULL), &(struct chat_template){NULL, NULL, NULL}, m, 1, 0, true, &x, &e),
                     HONE_EINPUT);
    assert_string_equal(x.data, "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n");
    text_free(&x);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const templates[] = {
        NULL,
        "",
        "{{ message['content'] }}",
        "[INST] {{ message }} [/INST]",
        "<|im_start|>",
        "<|im_end|>",
        "<start_of_turn>",
        "{% for m in messages %}",
        "{% for m in messages %}{% include 'x' %}{% endfor %}",
        /* Phi 4: another separator. */
        "'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'",
        /* ChatML with a rule for thinking that is not known. */
        "'<|im_start|>' + message['role'] + '<|im_end|>' + '<think>'",
        /* Llama 3 with another preface. */
        "<|start_header_id|><|end_header_id|><|eot_id|>Cutting Knowledge Date: December 2023",
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const struct chat_format *f = NULL;
        struct hone_error e = {0};
        if (find(&f, NULL, templates[i], &e) != HONE_EINPUT)
            fail_msg("'%s' is taken", templates[i]);
        assert_non_null(strstr(e.message, "--chat-template"));
        assert_non_null(strstr(e.message, "--raw"));
    }
}

/* A template of no family is run: whole, and in parts behind answers that it trims; what goes wrong names the place and the
 * ways out. */
static void test_own_template(void **state)
{
    (void)state;
    static const char t[] =
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}<<{{ m.content }}>>{% elif m.role == 'user' %}"
        "[INST]{{ m.content }}[/INST]{% else %}{{ m.content | trim }}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if messages[0].content == 'bad' %}\n{{ nothing.at_all }}{% endif %}";
    static const struct chat_message m[] = {{"system", "S"}, {"user", "u1"}, {"assistant", " a1 "}, {"user", "u2"}};
    const struct chat_format *f = found(NULL, t);
    struct text x = {0};
    struct hone_error e = {0};
    assert_string_equal(chat_format_name(f), "the file's own template");
    assert_int_equal(chat_render(f, &(struct chat_template){t, "</s>", NULL}, m, 4, 0, true, &x, &e), 0);
    assert_string_equal(x.data, "<<S>>[INST]u1[/INST]a1</s>[INST]u2[/INST]");
    x.n = 0;
    assert_int_equal(chat_render(f, &(struct chat_template){t, "</s>", NULL}, m, 4, 3, true, &x, &e), 0);
    assert_string_equal(x.data, "</s>[INST]u2[/INST]");
    assert_int_equal(chat_render(f, &(struct chat_template){t, NULL, NULL}, m, 4, 0, true, &x, &e), HONE_EINPUT);
    assert_string_equal(x.data, "</s>[INST]u2[/INST]");
    e = (struct hone_error){0};
    assert_int_equal(
        chat_render(f, &(struct chat_template){t, "</s>", NULL}, &(struct chat_message){"user", "bad"}, 1, 0, true, &x, &e),
        HONE_EINPUT);
    assert_non_null(strstr(e.message, "line 2, column "));
    assert_non_null(strstr(e.message, "--chat-template"));
    assert_non_null(strstr(e.message, "--raw"));
    text_free(&x);
}

/* The user's own is run though it has the markers of a family, and is named where it is wrong. */
static void test_given_template(void **state)
{
    (void)state;
    static const char with[] = "{% for m in messages %}<|im_start|>{{ m.role | upper }} {{ m.content }}<|im_end|>{% endfor %}";
    static const char *const wrong[] = {"<|im_start|><|im_end|>", "<start_of_turn><end_of_turn>{% for m in messages %}",
                                        "<|start_header_id|><|end_header_id|><|eot_id|>{{ messages | nonsense }}", ""};
    const struct chat_format *f = NULL;
    struct chat_template t = {.text = with, .path = "my.jinja"};
    struct text x = {0};
    struct hone_error e = {0};
    if (chat_format_find(&f, NULL, &t, &e) || chat_render(f, &t, &(struct chat_message){"user", "hi"}, 1, 0, true, &x, &e))
        fail_msg("%s", e.message);
    assert_string_equal(x.data, "<|im_start|>USER hi<|im_end|>");
    text_free(&x);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e = (struct hone_error){0};
        t.text = wrong[i];
        assert_int_equal(chat_format_find(&f, NULL, &t, &e), HONE_EINPUT);
        if (strncmp(e.message, "my.jinja: ", 10) != 0 || strstr(e.message, "the model's"))
            fail_msg("'%s' is refused by: %s", wrong[i], e.message);
    }
}

static json_t *tools_of(const char *text)
{
    json_t *tools = json_loads(text, 0, NULL);
    assert_non_null(tools);
    return tools;
}

/* With tools it is the template that is run, that of a family too; what takes none or writes none is refused. */
static void test_tools(void **state)
{
    (void)state;
    static const char plain[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const char with[] = "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"
                               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const char silent[] = "{# tools #}{% for m in messages %}{{ m.content }}{% endfor %}";
    static const struct chat_message m[] = {{"user", "u1"}, {"assistant", "a1"}, {"user", "u2"}};
    json_t *tools = tools_of("[{\"type\": \"function\", \"function\": {\"name\": \"get_time\", \"parameters\": {}}}]");
    struct chat_template t = {.text = with, .tools = tools}, none = {.text = plain, .tools = tools},
                         mute = {.text = silent, .tools = tools};
    const struct chat_format *f = NULL;
    struct text x = {0};
    struct hone_error e = {0};
    if (chat_format_find(&f, NULL, &t, &e) || chat_render(f, &t, m, 1, 0, true, &x, &e))
        fail_msg("%s", e.message);
    assert_string_equal(x.data,
                        "<tools>{\"type\": \"function\", \"function\": {\"name\": \"get_time\", \"parameters\": {}}}</tools>"
                        "<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\n");
    x.n = 0;
    assert_int_equal(chat_render(f, &t, m, 3, 2, true, &x, &e), 0);
    assert_string_equal(x.data, "<|im_end|>\n<|im_start|>user\nu2<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(chat_format_find(&f, NULL, &none, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "takes no tools"));
    none.text = NULL;
    e = (struct hone_error){0};
    assert_int_equal(chat_format_find(&f, NULL, &none, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "tools need one"));
    e = (struct hone_error){0};
    assert_int_equal(chat_format_find(&f, "chatml", &t, &e), HONE_EUSAGE);
    assert_int_equal(chat_format_find(&f, NULL, &mute, &e), 0);
    e = (struct hone_error){0};
    assert_int_equal(chat_render(f, &mute, m, 1, 0, true, &x, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "does not write the tools"));
    text_free(&x);
    json_decref(tools);
}

static char *file_text(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 18);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 18) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Published templates (test_jinja.c compares their text with Jinja's): with tools they write them, or say why not, and what a
 * second turn adds is the end of the whole. */
static void test_published_tools(void **state)
{
    (void)state;
    static const struct chat_message m[] = {{"user", "u1"}, {"assistant", "a1"}, {"user", "u2"}};
    const char *folder = getenv("HONE_TEMPLATES");
    DIR *d = folder && *folder ? opendir(folder) : NULL;
    if (!d) {
        print_message("test_chat: published templates: SKIPPED: HONE_TEMPLATES is not set (tests/golden/templates.sh)\n");
        skip();
    }
    json_t *tools = tools_of(
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_the_time\", \"description\": \"The time of a place.\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {\"place\": {\"type\": \"string\", \"description\": "
        "\"Where.\"}}, "
        "\"required\": [\"place\"]}}}]");
    int taken = 0, refused = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        size_t n = strlen(entry->d_name);
        if (n < 7 || strcmp(entry->d_name + n - 6, ".jinja") != 0)
            continue;
        char *text = file_text(folder, entry->d_name);
        struct chat_template t = {text, "</s>", tools};
        const struct chat_format *f;
        struct text first = {0}, whole = {0}, second = {0};
        struct hone_error e = {0};
        if (chat_format_find(&f, NULL, &t, &e) || chat_render(f, &t, m, 1, 0, true, &first, &e)) {
            assert_true(e.code == HONE_EINPUT && e.message[0]);
            refused++;
        } else {
            assert_non_null(strstr(first.data, "get_the_time"));
            if (!chat_render(f, &t, m, 3, 0, true, &whole, &e) && !chat_render(f, &t, m, 3, 2, true, &second, &e) &&
                (second.n > whole.n || strcmp(whole.data + whole.n - second.n, second.data) != 0))
                fail_msg("%s: the second turn is not the end of the whole", entry->d_name);
            taken++;
        }
        text_free(&first);
        text_free(&whole);
        text_free(&second);
        free(text);
    }
    closedir(d);
    json_decref(tools);
    print_message("%d published templates take tools, %d do not and say so\n", taken, refused);
    assert_true(taken >= 25);
}

static void test_tools_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{}", "an array"},
        {"[]", "an array"},
        {"[7]", "tool 1 is no object"},
        {"[{\"function\": {\"name\": \"f\"}}]", "tool 1 has not the type"},
        {"[{\"type\": \"web\", \"function\": {\"name\": \"f\"}}]", "tool 1 has not the type"},
        {"[{\"type\": \"function\"}]", "no object \"function\""},
        {"[{\"type\": \"function\", \"function\": {}}]", "without a name"},
        {"[{\"type\": \"function\", \"function\": {\"name\": \"\"}}]", "a name that is not"},
        {"[{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]", "a name that is not"},
        {"[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}, {\"type\": \"function\", \"function\": {\"name\": \"g\", "
         "\"description\": 1}}]",
         "tool 2 has a description"},
        {"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": []}}]", "parameters that are no object"},
        {"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"array\"}}}]",
         "no schema of an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *tools = tools_of(bad[i].text);
        struct hone_error e = {0};
        assert_int_equal(chat_tools_check(tools, &e), HONE_EINPUT);
        if (!strstr(e.message, bad[i].says))
            fail_msg("'%s' does not say '%s'", e.message, bad[i].says);
        json_decref(tools);
    }
}

/* Templates are read by their text alone; cut anywhere, they must not be read past their end. */
static void test_cut(void **state)
{
    (void)state;
    json_t *all = golden(), *one;
    size_t i;
    static const struct chat_message m[] = {{"user", "u"}, {"assistant", "<think>\nx</think>\ny"}};
    json_array_foreach(all, i, one)
    {
        const char *t = json_string_value(json_object_get(one, "template"));
        for (size_t n = 0; n <= strlen(t); n++) {
            char *part = strndup(t, n);
            const struct chat_format *f = NULL;
            struct hone_error e = {0};
            assert_non_null(part);
            if (!find(&f, NULL, part, &e)) {
                struct text x = {0};
                int rc = chat_render(f, &(struct chat_template){part, NULL, NULL}, m, 2, 0, true, &x, &e);
                assert_true(rc == 0 || (rc == HONE_EINPUT && strstr(e.message, "line ")));
                text_free(&x);
            }
            free(part);
        }
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_parts),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_own_template),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_tools),   cmocka_unit_test(test_tools_refused), cmocka_unit_test(test_published_tools),
        cmocka_unit_test(test_given_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
