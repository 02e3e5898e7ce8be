/* test_gguf.c: the GGUF reader and writer: what is written is read back, parts make one file, numbers convert only where they
 * fit, a failed write leaves nothing, opening is fast. What an independent reader (PyPI gguf) sees in real files and in files
 * that this writer made stands in golden/gguf_facts.txt; golden/gguf_facts.py makes it. Files that must be refused:
 * test_malformed.c.
 *
 * `test_gguf seeds FOLDER` writes the seeds of the fuzz target instead. */
#include "model/gguf.h"

#include "base/clock.h"
#include "base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[200]; /* all files of a run; emptied at the end */

static const char *in_folder(const char *name)
{
    static char path[4][400];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static struct gguf *open_ok(const char *path)
{
    struct hone_error e = {0};
    struct gguf *g;
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.message);
    return g;
}

static void open_refused(const char *path, const char *says)
{
    struct hone_error e = {0};
    struct gguf *g;
    assert_int_equal(gguf_open(&g, path, &e), HONE_EINPUT);
    assert_null(g);
    if (!strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static struct gguf_writer *create(const char *path)
{
    struct hone_error e = {0};
    struct gguf_writer *w;
    if (gguf_writer_create(&w, path, &e))
        fail_msg("%s", e.message);
    return w;
}

static void close_ok(struct gguf_writer *w)
{
    struct hone_error e = {0};
    if (gguf_writer_close(w, true, &e))
        fail_msg("%s", e.message);
}

static void close_refused(struct gguf_writer *w, int code, const char *says)
{
    struct hone_error e = {0};
    assert_int_equal(gguf_writer_close(w, true, &e), code);
    if (!strstr(e.message, says))
        fail_msg("'%s' does not say '%s'", e.message, says);
}

static void write_scalar(struct gguf_writer *w, const char *key, enum gguf_type t, const void *data)
{
    gguf_write_value(w, key, &(struct gguf_value){.type = t, .n = 1, .data = data});
}

static void write_tensor_f32(struct gguf_writer *w, const char *name, int64_t n)
{
    gguf_write_tensor(w, name, FORMAT_F32, 1, &n);
}

static void write_data_ok(struct gguf_writer *w, const void *data, size_t n)
{
    struct hone_error e = {0};
    if (gguf_write_data(w, data, n, &e))
        fail_msg("%s", e.message);
}

/* One value of each type: what it holds stands in test_types. */
static const struct {
    const char *key;
    enum gguf_type type;
    uint64_t bits;
    double number;
} scalars[] = {
    {"t.u8", GGUF_U8, 200, 200},
    {"t.i8", GGUF_I8, 0x85, -123},
    {"t.u16", GGUF_U16, 60000, 60000},
    {"t.i16", GGUF_I16, 0x8001, -32767},
    {"t.u32", GGUF_U32, 4000000000, 4e9},
    {"t.i32", GGUF_I32, 0x80000000, -2147483648.0},
    {"t.f32", GGUF_F32, 0x3e200000, 0.15625},
    {"t.bool", GGUF_BOOL, 1, 1},
    {"t.u64", GGUF_U64, UINT64_MAX, 18446744073709551615.0},
    {"t.i64", GGUF_I64, (uint64_t)-5, -5},
    {"t.f64", GGUF_F64, 0xc0091eb851eb851f, -3.14},
};
enum { N_SCALARS = sizeof scalars / sizeof scalars[0] };

/* A file with every type of value, as scalar and as array, and tensors of different sizes. */
static void write_all_types(const char *path)
{
    struct gguf_writer *w = create(path);
    for (int i = 0; i < N_SCALARS; i++)
        write_scalar(w, scalars[i].key, scalars[i].type, &scalars[i].bits);
    gguf_write_string(w, "t.string", "a\xc3\xa4\n");
    gguf_write_array(w, "t.u8s", GGUF_U8, "\1\2\3", 3);
    gguf_write_array(w, "t.bools", GGUF_BOOL, "\1\0", 2);
    gguf_write_array(w, "t.i32s", GGUF_I32, (int32_t[]){-1, 2, INT32_MAX}, 3);
    gguf_write_array(w, "t.f32s", GGUF_F32, (float[]){1, -0.5f}, 2);
    gguf_write_array(w, "t.none", GGUF_U64, NULL, 0);
    gguf_write_strings(w, "t.strings", (struct gguf_string[]){{"", 0}, {"a\0b", 3}, {"\xff\xfe", 2}}, 3);
    gguf_write_strings(w, "t.no_strings", NULL, 0);
    write_tensor_f32(w, "one", 1);
    gguf_write_tensor(w, "four", FORMAT_F16, 4, (int64_t[]){2, 3, 1, 2});
    gguf_write_tensor(w, "q", FORMAT_Q8_0, 2, (int64_t[]){64, 2});
    uint8_t data[136];
    for (int i = 0; i < 136; i++)
        data[i] = (uint8_t)(i * 7);
    write_data_ok(w, &(float){2.5f}, 4);
    write_data_ok(w, data, 24);
    write_data_ok(w, data, 100); /* a tensor in two pieces */
    write_data_ok(w, data + 100, 36);
    close_ok(w);
}

static void test_types(void **state)
{
    (void)state;
    write_all_types(in_folder("types.gguf"));
    struct gguf *g = open_ok(in_folder("types.gguf"));
    assert_int_equal(g->version, 3);
    assert_int_equal(g->alignment, 32);
    assert_int_equal(g->n_values, N_SCALARS + 8);
    for (int i = 0; i < N_SCALARS; i++) {
        const struct gguf_value *v = gguf_find(g, scalars[i].key);
        assert_ptr_equal(v, &g->values[i]);
        assert_int_equal(v->type, scalars[i].type);
        assert_int_equal(v->n, 1);
        if (scalars[i].type == GGUF_F32)
            assert_true((float)gguf_number(v, 0) == (float)scalars[i].number);
        else
            assert_true(gguf_number(v, 0) == scalars[i].number);
    }
    assert_true(gguf_integer(gguf_find(g, "t.u64"), 0) == INT64_MAX);
    assert_int_equal(gguf_integer(gguf_find(g, "t.f64"), 0), -3);
    const struct gguf_value *v = gguf_find(g, "t.i32s");
    assert_int_equal(v->type, GGUF_ARRAY);
    assert_int_equal(v->element, GGUF_I32);
    assert_int_equal(v->n, 3);
    assert_int_equal(gguf_integer(v, 0), -1);
    assert_int_equal(gguf_integer(v, 2), INT32_MAX);
    assert_true(gguf_number(gguf_find(g, "t.f32s"), 1) == -0.5);
    assert_int_equal(gguf_integer(gguf_find(g, "t.bools"), 0), 1);
    assert_int_equal(gguf_find(g, "t.none")->n, 0);
    assert_int_equal(gguf_find(g, "t.no_strings")->n, 0);
    v = gguf_find(g, "t.strings");
    assert_int_equal(v->n, 3);
    assert_int_equal(v->strings[0].size, 0);
    assert_memory_equal(v->strings[1].data, "a\0b", 3);
    assert_memory_equal(v->strings[2].data, "\xff\xfe", 2);

    assert_int_equal(g->n_tensors, 3);
    const struct gguf_tensor *t = gguf_tensor(g, "four");
    assert_ptr_equal(t, &g->tensors[1]);
    assert_true(t->known);
    assert_int_equal(t->format, FORMAT_F16);
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->ne[0] * 100 + t->ne[1] * 10 + t->ne[3], 232);
    assert_int_equal(t->bytes, 24);
    assert_int_equal(t->offset % 32, 0);
    assert_int_equal(((const uint8_t *)t->data)[23], 161);
    t = gguf_tensor(g, "q");
    assert_int_equal(t->bytes, 136);
    assert_int_equal(((const uint8_t *)t->data)[135], (uint8_t)(135 * 7));
    assert_int_equal(t->ne[2], 1);
    assert_null(gguf_tensor(g, "Q"));
    assert_null(gguf_find(g, "one"));
    gguf_close(g);
}

static void test_gets(void **state)
{
    (void)state;
    write_all_types(in_folder("gets.gguf"));
    struct gguf *g = open_ok(in_folder("gets.gguf"));
    uint32_t u = 77;
    float f = 7;
    bool b = false;
    struct gguf_string s = {0};
    struct hone_error e = {0};
    assert_int_equal(gguf_get_u32(g, "absent", false, &u, &e), 0);
    assert_int_equal(u, 77);
    assert_int_equal(gguf_get_u32(g, "t.u8", true, &u, &e), 0);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_get_u32(g, "t.bool", true, &u, &e), 0);
    assert_int_equal(u, 1);
    assert_int_equal(gguf_get_f32(g, "t.f64", true, &f, &e), 0);
    assert_true(f == -3.14f);
    assert_int_equal(gguf_get_f32(g, "t.i16", true, &f, &e), 0);
    assert_true(f == -32767);
    assert_int_equal(gguf_get_bool(g, "t.bool", true, &b, &e), 0);
    assert_true(b);
    assert_int_equal(gguf_get_string(g, "t.string", true, &s, &e), 0);
    assert_memory_equal(s.data, "a\xc3\xa4\n", 4);

    u = 77;
    static const char *const no_u32[] = {"t.i8", "t.u64", "t.i64", "t.f32", "t.string", "t.i32s"};
    for (int i = 0; i < 6; i++) {
        e = (struct hone_error){0};
        assert_int_equal(gguf_get_u32(g, no_u32[i], false, &u, &e), HONE_EINPUT);
        assert_non_null(strstr(e.message, no_u32[i]));
        assert_non_null(strstr(e.message, "gets.gguf: byte "));
    }
    assert_int_equal(u, 77);
    e = (struct hone_error){0};
    assert_int_equal(gguf_get_u32(g, "absent", true, &u, &e), HONE_EINPUT);
    assert_non_null(strstr(e.message, "absent"));
    assert_int_equal(gguf_get_f32(g, "t.bool", true, &f, NULL), HONE_EINPUT);
    assert_int_equal(gguf_get_f32(g, "t.f32s", true, &f, NULL), HONE_EINPUT);
    assert_int_equal(gguf_get_bool(g, "t.u8", true, &b, NULL), HONE_EINPUT);
    assert_int_equal(gguf_get_string(g, "t.strings", true, &s, NULL), HONE_EINPUT);
    gguf_close(g);
}

static void test_floats_that_are_none(void **state)
{
    (void)state;
    struct gguf_writer *w = create(in_folder("nan.gguf"));
    gguf_write_f32(w, "nan", NAN);
    gguf_write_f32(w, "inf", INFINITY);
    write_scalar(w, "large", GGUF_F64, &(double){1e300});
    close_ok(w);
    struct gguf *g = open_ok(in_folder("nan.gguf"));
    float f = 7;
    assert_int_equal(gguf_get_f32(g, "nan", true, &f, NULL), HONE_EINPUT);
    assert_int_equal(gguf_get_f32(g, "inf", true, &f, NULL), HONE_EINPUT);
    assert_int_equal(gguf_get_f32(g, "large", true, &f, NULL), HONE_EINPUT);
    assert_true(f == 7);
    assert_int_equal(gguf_integer(gguf_find(g, "nan"), 0), 0);
    assert_true(gguf_integer(gguf_find(g, "large"), 0) == INT64_MAX);
    gguf_close(g);
}

static void poke(const char *path, long at, const void *data, size_t n)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_version_2(void **state)
{
    (void)state;
    const char *path = in_folder("v2.gguf");
    write_all_types(path);
    poke(path, 4, &(uint32_t){2}, 4);
    struct gguf *g = open_ok(path);
    assert_int_equal(g->version, 2);
    assert_int_equal(g->n_tensors, 3);
    gguf_close(g);
}

static void test_unknown_tensor_type(void **state)
{
    (void)state;
    const char *path = in_folder("unknown.gguf");
    struct gguf_writer *w = create(path);
    write_tensor_f32(w, "x", 5);
    write_tensor_f32(w, "y", 2);
    write_data_ok(w, "12345678901234567890", 20);
    write_data_ok(w, "12345678", 8);
    close_ok(w);
    /* Header 24, name 8 + 1, dimensions 4 + 8. */
    poke(path, 24 + 9 + 12, &(uint32_t){19}, 4);
    struct gguf *g = open_ok(path);
    assert_false(gguf_tensor(g, "x")->known);
    assert_int_equal(gguf_tensor(g, "x")->gguf_type, 19);
    assert_int_equal(gguf_tensor(g, "x")->ne[0], 5);
    assert_true(gguf_tensor(g, "y")->known);
    gguf_close(g);
}

static void test_alignment(void **state)
{
    (void)state;
    struct gguf_writer *w = create(in_folder("align.gguf"));
    gguf_write_u32(w, "general.alignment", 4096);
    write_tensor_f32(w, "x", 3);
    write_tensor_f32(w, "y", 3);
    write_data_ok(w, "aaaaaaaaaaaa", 12);
    write_data_ok(w, "bbbbbbbbbbbb", 12);
    close_ok(w);
    struct gguf *g = open_ok(in_folder("align.gguf"));
    assert_int_equal(g->alignment, 4096);
    assert_int_equal(gguf_tensor(g, "y")->offset, 8192);
    assert_memory_equal(gguf_tensor(g, "y")->data, "bbbbbbbbbbbb", 12);
    gguf_close(g);
}

static void test_many_tensors(void **state)
{
    (void)state;
    enum { N = 5000 };
    char name[32];
    struct gguf_writer *w = create(in_folder("many.gguf"));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%d.w", i);
        write_tensor_f32(w, name, 1);
    }
    for (int i = 0; i < N; i++)
        write_data_ok(w, &(float){(float)i}, 4);
    close_ok(w);
    struct gguf *g = open_ok(in_folder("many.gguf"));
    assert_int_equal(g->n_tensors, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%d.w", i);
        const struct gguf_tensor *t = gguf_tensor(g, name);
        assert_non_null(t);
        assert_true(*(const float *)t->data == (float)i);
    }
    assert_null(gguf_tensor(g, "blk.5000.w"));
    gguf_close(g);
}

/* Names chosen to fall into one slot of the index must not make opening quadratic: they are refused. */
static void test_colliding_names(void **state)
{
    (void)state;
    enum { N = 600, SLOTS = 2048 };
    char name[32];
    struct gguf_writer *w = create(in_folder("collide.gguf"));
    int found = 0;
    for (int i = 0; found < N; i++) {
        int n = snprintf(name, sizeof name, "k%d", i);
        if (hash64(name, (size_t)n) % SLOTS == 7) {
            gguf_write_bool(w, name, true);
            found++;
        }
    }
    close_ok(w);
    open_refused(in_folder("collide.gguf"), "collide");
}

/* A sparse file costs nothing to make and may hold billions of empty strings. */
static void test_too_many_strings(void **state)
{
    (void)state;
    const char *path = in_folder("sparse.gguf");
    struct gguf_writer *w = create(path);
    gguf_write_strings(w, "s", NULL, 0);
    close_ok(w);
    poke(path, 24 + 9 + 8, &(uint64_t){1 << 30}, 8);
    assert_int_equal(truncate(path, 10ll << 30), 0);
    int64_t start = clock_ns();
    open_refused(path, "byte 49: key 's': 1073741824 strings");
    assert_true(clock_ns() - start < 1000000000);
    unlink(path);
}

/* Part `no` of `count` under any name; one tensor named t<no>. */
static void write_part(const char *path, uint16_t no, uint16_t count, int32_t tensors, const char *tensor)
{
    struct gguf_writer *w = create(path);
    if (!no)
        gguf_write_string(w, "general.architecture", "llama");
    write_scalar(w, "split.no", GGUF_U16, &no);
    write_scalar(w, "split.count", GGUF_U16, &count);
    write_scalar(w, "split.tensors.count", GGUF_I32, &tensors);
    write_tensor_f32(w, tensor, 1);
    write_data_ok(w, &(float){no}, 4);
    close_ok(w);
}

static void write_parts(const char *stem)
{
    char path[450], tensor[16];
    for (uint16_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s-%05d-of-00003.gguf", stem, i + 1);
        snprintf(tensor, sizeof tensor, "t%d", i);
        write_part(path, i, 3, 3, tensor);
    }
}

static void test_split(void **state)
{
    (void)state;
    char path[450];
    write_parts(in_folder("s"));
    for (int from = 1; from <= 3; from++) {
        snprintf(path, sizeof path, "%s-%05d-of-00003.gguf", in_folder("s"), from);
        struct gguf *g = open_ok(path);
        assert_int_equal(g->n_parts, 3);
        assert_int_equal(g->n_tensors, 3);
        assert_non_null(gguf_find(g, "general.architecture"));
        for (int i = 0; i < 3; i++) {
            char tensor[16];
            snprintf(tensor, sizeof tensor, "t%d", i);
            const struct gguf_tensor *t = gguf_tensor(g, tensor);
            assert_non_null(t);
            assert_int_equal(t->part, i);
            assert_true(*(const float *)t->data == (float)i);
            assert_ptr_equal(t->data, g->parts[i].data + t->offset);
            assert_non_null(strstr(g->part_paths[i], "-of-00003.gguf"));
        }
        gguf_close(g);
    }
}

static void test_split_alone(void **state)
{
    (void)state;
    write_part(in_folder("alone.gguf"), 0, 1, 1, "t");
    struct gguf *g = open_ok(in_folder("alone.gguf"));
    assert_int_equal(g->n_parts, 1);
    gguf_close(g);
}

static void test_split_faults(void **state)
{
    (void)state;
    char one[450], two[450], three[450];
    snprintf(one, sizeof one, "%s/f-00001-of-00003.gguf", folder);
    snprintf(two, sizeof two, "%s/f-00002-of-00003.gguf", folder);
    snprintf(three, sizeof three, "%s/f-00003-of-00003.gguf", folder);
    const char *stem = in_folder("f");

    write_parts(stem);
    unlink(two);
    open_refused(one, "f-00002-of-00003.gguf");
    open_refused(three, "f-00002-of-00003.gguf");
    unlink(one);
    open_refused(three, "f-00001-of-00003.gguf");

    write_parts(stem);
    write_part(three, 1, 3, 3, "t2"); /* a copy of part 2 under the name of part 3 */
    open_refused(one, "f-00003-of-00003.gguf");
    open_refused(three, "f-00003-of-00003.gguf");

    write_parts(stem);
    write_part(two, 1, 4, 3, "t1");
    open_refused(one, "f-00002-of-00003.gguf");
    write_part(two, 1, 3, 4, "t1");
    open_refused(one, "f-00002-of-00003.gguf");
    write_part(two, 1, 3, 3, "t0"); /* a tensor that part 1 has too */
    open_refused(three, "f-00002-of-00003.gguf: the tensor 't0'");
    struct gguf_writer *w = create(two); /* no part at all */
    close_ok(w);
    open_refused(one, "f-00002-of-00003.gguf");
    poke(two, 0, "X", 1);
    open_refused(one, "f-00002-of-00003.gguf");

    write_part(one, 0, 3, 4, "t0");
    write_part(two, 1, 3, 4, "t1");
    write_part(three, 2, 3, 4, "t2");
    open_refused(one, "3 tensors");
    write_part(in_folder("odd.gguf"), 0, 3, 3, "t0");
    open_refused(in_folder("odd.gguf"), "odd.gguf");
    write_part(in_folder("g-00001-of-00003.gguf"), 3, 3, 3, "t0");
    open_refused(in_folder("g-00001-of-00003.gguf"), "split.no");
}

/* Number of entries whose name contains `part`. */
static int count_files(const char *part)
{
    char command[300];
    snprintf(command, sizeof command, "ls '%s' | grep -c -F -- '%s'", folder, part);
    FILE *p = popen(command, "r");
    int n = -1;
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

static void test_write_appears_at_the_end(void **state)
{
    (void)state;
    const char *path = in_folder("late.gguf");
    struct gguf_writer *w = create(path), *other = create(path);
    write_tensor_f32(w, "x", 1);
    write_data_ok(w, "1234", 4);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(count_files("late.gguf"), 2); /* one each */
    close_ok(w);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(gguf_writer_close(other, false, NULL), 0);
    assert_int_equal(count_files("late.gguf"), 1);

    /* Replacing a file that is mapped. */
    struct gguf *g = open_ok(path);
    w = create(path);
    for (int64_t i = 0; i < g->n_tensors; i++)
        gguf_write_tensor(w, g->tensors[i].cname, g->tensors[i].format, g->tensors[i].n_dims, g->tensors[i].ne);
    write_data_ok(w, g->tensors[0].data, 2);
    write_data_ok(w, (const char *)g->tensors[0].data + 2, 2);
    close_ok(w);
    assert_memory_equal(g->tensors[0].data, "1234", 4);
    gguf_close(g);
    assert_int_equal(count_files(".partial"), 0);
}

static void test_write_misuse(void **state)
{
    (void)state;
    const char *path = in_folder("misuse.gguf");
    struct hone_error e = {0};
    struct gguf_writer *w = create(path);
    gguf_write_u32(w, "a", 1);
    gguf_write_u32(w, "a", 2);
    gguf_write_u32(w, "b", 3);
    close_refused(w, HONE_EFAULT, "'a' declared twice");

    w = create(path);
    write_tensor_f32(w, "x", 1);
    write_tensor_f32(w, "x", 1);
    close_refused(w, HONE_EFAULT, "'x' declared twice");

    w = create(path);
    gguf_write_u32(w, "x", 1);
    write_tensor_f32(w, "x", 1); /* a key and a tensor may share a name */
    assert_int_equal(gguf_write_data(w, "12345", 5, &e), HONE_EFAULT);
    e = (struct hone_error){0};
    assert_int_equal(gguf_write_data(w, "1234", 4, &e), HONE_EFAULT); /* it sticks */
    close_refused(w, HONE_EFAULT, "more than tensor");

    w = create(path);
    write_tensor_f32(w, "x", 2);
    write_data_ok(w, "1234", 4);
    close_refused(w, HONE_EFAULT, "0 of 1 tensors");

    w = create(path);
    write_tensor_f32(w, "x", 1);
    write_data_ok(w, "1234", 4);
    gguf_write_u32(w, "late", 1);
    close_refused(w, HONE_EFAULT, "after data");

    static const int64_t shapes[][4] = {{0, 1, 1, 1}, {33, 1, 1, 1}, {1 << 20, INT64_MAX / 2, 1, 1}, {32, -1, 1, 1}};
    for (int i = 0; i < 4; i++) {
        w = create(path);
        gguf_write_tensor(w, "x", FORMAT_Q8_0, 4, shapes[i]);
        close_refused(w, HONE_EFAULT, "'x' has a shape");
    }
    w = create(path);
    gguf_write_u32(w, "general.alignment", 33);
    close_refused(w, HONE_EFAULT, "general.alignment");
    w = create(path);
    gguf_write_u32(w, "", 33);
    close_refused(w, HONE_EFAULT, "without a name");
    assert_int_equal(count_files("misuse.gguf"), 0);

    e = (struct hone_error){0};
    assert_int_equal(gguf_writer_create(&w, in_folder("no/such/folder.gguf"), &e), HONE_ERESOURCE);
    assert_non_null(strstr(e.message, "no/such/folder.gguf"));
    assert_int_equal(gguf_writer_create(&w, "/dev/null", NULL), HONE_EUSAGE);
    assert_int_equal(gguf_writer_create(&w, folder, NULL), HONE_EUSAGE);
}

/* A file size limit stands for a full disk: the write fails at 64 KiB. */
static void test_write_disk_full(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    struct rlimit old, small;
    uint8_t *data = calloc(1, N);
    assert_non_null(data);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = 65536, .rlim_max = old.rlim_max};
    struct gguf_writer *w = create(in_folder("full.gguf"));
    write_tensor_f32(w, "x", N / 4);
    struct hone_error e = {0};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = gguf_write_data(w, data, N, &e);
    int again = gguf_write_data(w, data, 1, NULL), closed = gguf_writer_close(w, true, NULL);
    /* One that fits the buffer fails only when it is closed. */
    small.rlim_cur = 16;
    struct gguf_writer *tiny = create(in_folder("full.gguf"));
    setrlimit(RLIMIT_FSIZE, &small);
    struct hone_error late = {0};
    int rc_late = gguf_writer_close(tiny, true, &late);
    setrlimit(RLIMIT_FSIZE, &old);
    free(data);
    assert_int_equal(rc, HONE_ERESOURCE);
    assert_non_null(strstr(e.message, strerror(EFBIG)));
    assert_non_null(strstr(e.message, "full.gguf"));
    assert_int_equal(again, HONE_ERESOURCE);
    assert_int_equal(closed, HONE_ERESOURCE);
    assert_int_equal(rc_late, HONE_ERESOURCE);
    assert_non_null(strstr(late.message, "full.gguf"));
    assert_int_equal(count_files("full.gguf"), 0);
}

/* --- what an independent reader sees --- */

static void add_text(char **text, size_t *n, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_text(char **text, size_t *n, const char *format, ...)
{
    char line[1000];
    va_list ap;
    va_start(ap, format);
    int k = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    assert_true(k >= 0 && (size_t)k < sizeof line);
    *text = realloc(*text, *n + (size_t)k + 1);
    assert_non_null(*text);
    memcpy(*text + *n, line, (size_t)k + 1);
    *n += (size_t)k;
}

/* "<key> <type> <items> <sha256 of the bytes>", strings as they stand in the file. */
static void add_value(char **text, size_t *n, const struct gguf_value *v)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    const char *start = v->data;
    size_t size = v->n * gguf_type_bytes(t);
    struct sha256 sum;
    if (t == GGUF_STRING && v->n) {
        start = v->strings[0].data - 8;
        size = (size_t)(v->strings[v->n - 1].data + v->strings[v->n - 1].size - start);
    }
    assert_int_equal(hash_sha256(&sum, start, size, NULL), 0);
    add_text(text, n, "%.*s %s%s %" PRIu64 " %s\n", (int)v->key.size, v->key.data, v->type == GGUF_ARRAY ? "array of " : "",
             gguf_type_name(t), v->n, sum.hex);
}

static char *describe(const struct gguf *g)
{
    char *text = calloc(1, 1);
    size_t n = 0;
    for (int64_t i = 0; i < g->n_values; i++)
        add_value(&text, &n, &g->values[i]);
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        struct sha256 sum;
        assert_true(t->known);
        assert_int_equal(hash_sha256(&sum, t->data, t->bytes, NULL), 0);
        add_text(&text, &n, "%s %d", t->cname, t->gguf_type);
        for (int d = 0; d < t->n_dims; d++)
            add_text(&text, &n, " %" PRId64, t->ne[d]);
        add_text(&text, &n, " %zu at %" PRIu64 " %s\n", t->bytes, t->offset, sum.hex);
    }
    return text;
}

/* Lines of golden/gguf_facts.txt: file, version, values, tensors, SHA-256 of the description. Those under `data` lie in
 * HONE_DATA. */
static int compare_golden(const char *folder_key, const char *root)
{
    FILE *f = fopen("tests/golden/gguf_facts.txt", "r");
    char where[16], name[200], hex[65];
    unsigned version;
    long values, tensors;
    int n = 0;
    assert_non_null(f);
    while (fscanf(f, "%15s %199s %u %ld %ld %64s", where, name, &version, &values, &tensors, hex) == 6) {
        char path[600];
        if (strcmp(where, folder_key))
            continue;
        snprintf(path, sizeof path, "%s/%s", root, name);
        struct gguf *g = open_ok(path);
        assert_int_equal(g->version, version);
        assert_int_equal(g->n_values, values);
        assert_int_equal(g->n_tensors, tensors);
        char *text = describe(g);
        struct sha256 sum;
        assert_int_equal(hash_sha256(&sum, text, strlen(text), NULL), 0);
        if (strcmp(sum.hex, hex))
            fail_msg("%s differs from golden/gguf_facts.txt (gguf_facts.py --text FILE shows what it should be):\n%s", name,
                     text);
        free(text);
        gguf_close(g);
        n++;
    }
    fclose(f);
    return n;
}

static void test_golden_written(void **state)
{
    (void)state;
    assert_true(compare_golden("seeds", "tests/fuzz/seeds/gguf") >= 3);
}

static const char *data_or_skip(void)
{
    const char *data = getenv("HONE_DATA");
    if (!data || access(data, R_OK)) {
        print_message("HONE_DATA is missing: files of other programs are not compared\n");
        skip();
    }
    return data;
}

static void test_golden_data(void **state)
{
    (void)state;
    const char *data = data_or_skip();
    assert_true(compare_golden("data", data) >= 30);
}

static void copy_through(const char *from, const char *to)
{
    struct gguf *g = open_ok(from);
    struct gguf_writer *w = create(to);
    for (int64_t i = 0; i < g->n_values; i++)
        gguf_write_value(w, NULL, &g->values[i]);
    for (int64_t i = 0; i < g->n_tensors; i++)
        gguf_write_tensor(w, g->tensors[i].cname, g->tensors[i].format, g->tensors[i].n_dims, g->tensors[i].ne);
    for (int64_t i = 0; i < g->n_tensors; i++)
        write_data_ok(w, g->tensors[i].data, g->tensors[i].bytes);
    close_ok(w);
    gguf_close(g);
}

/* What other programs wrote comes out of this writer with the same bytes. */
static void test_copies_are_equal(void **state)
{
    (void)state;
    static const char *const files[] = {"archs/llama.gguf",         "archs/gpt-oss-mxfp4.gguf",
                                        "archs/qwen35.gguf",        "quants/llama-Q4_K_M.gguf",
                                        "quants/llama-IQ4_XS.gguf", "vocab/ggml-vocab-llama-spm.gguf"};
    const char *data = data_or_skip();
    for (int i = 0; i < 6; i++) {
        char from[600];
        const char *to = in_folder("copy.gguf");
        struct mapping a, b;
        snprintf(from, sizeof from, "%s/%s", data, files[i]);
        copy_through(from, to);
        assert_int_equal(mapping_open(&a, from, NULL), 0);
        assert_int_equal(mapping_open(&b, to, NULL), 0);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        mapping_close(&a);
        mapping_close(&b);
    }
}

/* --- speed --- */

/* A vocabulary of 150000 tokens and 280000 merges, and 1 GiB of weights (a hole in the file). */
static void test_opens_fast(void **state)
{
    (void)state;
    enum { TOKENS = 150000, MERGES = 280000 };
    struct gguf_string *s = malloc(MERGES * sizeof *s);
    char *text = malloc(MERGES * 16);
    assert_true(s && text);
    for (int i = 0; i < MERGES; i++)
        s[i] = (struct gguf_string){text + 16 * i, (uint64_t)snprintf(text + 16 * i, 16, "tok %d", i)};
    const char *path = in_folder("large.gguf");
    struct gguf_writer *w = create(path);
    gguf_write_strings(w, "tokenizer.ggml.tokens", s, TOKENS);
    gguf_write_strings(w, "tokenizer.ggml.merges", s, MERGES);
    write_tensor_f32(w, "x", 1);
    write_data_ok(w, "1234", 4);
    close_ok(w);
    free(s);
    free(text);
    struct gguf *g = open_ok(path);
    long at = (long)(gguf_tensor(g, "x")->name.data - (const char *)g->map.data);
    off_t start = (off_t)gguf_tensor(g, "x")->offset;
    gguf_close(g);
    poke(path, at + 1 + 4, &(uint64_t){1 << 28}, 8);
    assert_int_equal(truncate(path, start + (1 << 30)), 0);

    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        int64_t t = clock_ns();
        g = open_ok(path);
        double ms = (double)(clock_ns() - t) * 1e-6;
        assert_int_equal(gguf_tensor(g, "x")->bytes, 1 << 30);
        assert_int_equal(gguf_find(g, "tokenizer.ggml.merges")->strings[MERGES - 1].size, 10);
        gguf_close(g);
        best = ms < best ? ms : best;
    }
    unlink(path);
    print_message("150000 tokens, 280000 merges, 1 GiB of weights: open in %.1f ms\n", best);
#ifndef HONE_SANITIZED
    assert_true(best < 50);
#endif
}

/* --- seeds --- */

static int write_seeds(const char *where)
{
    snprintf(folder, sizeof folder, "%s", where);
    write_all_types(in_folder("types.gguf"));
    struct gguf_writer *w = create(in_folder("model.gguf"));
    gguf_write_string(w, "general.architecture", "llama");
    gguf_write_u32(w, "general.alignment", 64);
    gguf_write_u32(w, "llama.block_count", 1);
    gguf_write_strings(w, "tokenizer.ggml.tokens", (struct gguf_string[]){{"<s>", 3}, {"a", 1}}, 2);
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, (float[]){0, -1}, 2);
    gguf_write_tensor(w, "token_embd.weight", FORMAT_Q4_K, 2, (int64_t[]){256, 2});
    write_tensor_f32(w, "output_norm.weight", 8);
    uint8_t zeros[288] = {0};
    write_data_ok(w, zeros, 288);
    write_data_ok(w, zeros, 32);
    close_ok(w);
    w = create(in_folder("empty.gguf"));
    close_ok(w);
    write_part(in_folder("part.gguf"), 0, 1, 1, "t");
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/hone-gguf-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "seeds"))
        return write_seeds(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_gets),
        cmocka_unit_test(test_floats_that_are_none),
        cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_unknown_tensor_type),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_colliding_names),
        cmocka_unit_test(test_too_many_strings),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_alone),
        cmocka_unit_test(test_split_faults),
        cmocka_unit_test(test_write_appears_at_the_end),
        cmocka_unit_test(test_write_misuse),
        cmocka_unit_test(test_write_disk_full),
        cmocka_unit_test(test_golden_written),
        cmocka_unit_test(test_golden_data),
        cmocka_unit_test(test_copies_are_equal),
        cmocka_unit_test(test_opens_fast),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
