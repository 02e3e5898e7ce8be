/* test_device_plugin.c: files of device code as kernels: every word of their table is checked, they fit where it says and
 * nowhere else, and are launched as it says. The device is pretended; what runs there is recorded. */
#include "tests/fake_device.h"

#include "backends/plugin/plugin.h"
#include "ops/glu.h"
#include "ops/rms_norm.h"

#include <unistd.h>

/* ---- a backend that takes files named *.pretend */

static struct {
    struct hone_cuda_kernel entries[4];
    int n_entries;
    size_t cut; /* bytes that the table lacks at its end */
    int loads, unloads, launches;
    bool no_function; /* none is found any more */
    char told[200];
    unsigned grid[2];
    int threads;
    size_t shared;
    struct hone_cuda_node arg;
} seen;

static int pretend_load(const char *path, void **module, struct hone_error *e)
{
    (void)path, (void)e;
    seen.loads++;
    *module = &seen;
    return 0;
}

static void pretend_unload(void *module)
{
    assert_ptr_equal(module, &seen);
    seen.unloads++;
}

static void pretend_tell(const char *text)
{
    snprintf(seen.told, sizeof seen.told, "%s", text);
}

static bool started;

static bool pretend_started(void)
{
    return started;
}

static int pretend_constant(void *module, const char *name, void **bytes, size_t *n, struct hone_error *e)
{
    assert_ptr_equal(module, &seen);
    assert_string_equal(name, "hone_cuda_kernels");
    *n = (size_t)seen.n_entries * sizeof *seen.entries - seen.cut;
    *bytes = malloc(*n + 1);
    memcpy(*bytes, seen.entries, *n);
    return *bytes ? 0 : err_set(e, HONE_ERESOURCE, "no memory");
}

static int pretend_function(void *module, const char *name, size_t arg_bytes, void **function, int *max_threads,
                            size_t *max_shared, struct hone_error *e)
{
    assert_ptr_equal(module, &seen);
    assert_int_equal(arg_bytes, sizeof(struct hone_cuda_node));
    if (!strcmp(name, "absent") || seen.no_function)
        return err_set(e, HONE_EINPUT, "it has no function '%s'", name);
    *function = &seen;
    *max_threads = 1024;
    *max_shared = 1000;
    return 0;
}

static int pretend_launch(const struct exec *x, void *function, const unsigned grid[2], int threads, size_t shared,
                          const void *arg)
{
    (void)x;
    assert_ptr_equal(function, &seen);
    seen.launches++;
    memcpy(seen.grid, grid, sizeof seen.grid);
    seen.threads = threads;
    seen.shared = shared;
    memcpy(&seen.arg, arg, sizeof seen.arg);
    return 0;
}

static const struct module_api pretend_modules = {.suffixes = ".pretend",
                                                  .load = pretend_load,
                                                  .unload = pretend_unload,
                                                  .started = pretend_started,
                                                  .constant = pretend_constant,
                                                  .function = pretend_function,
                                                  .launch = pretend_launch,
                                                  .tell = pretend_tell};
static struct device_api pretend_api;
static const struct backend pretend;

static const struct kernel *const *pretend_kernels(int *n)
{
    static const struct kernel *const none[] = {NULL};
    return backend_with_registered(&pretend, none, 0, n);
}

static const struct backend pretend = {.name = "pretend",
                                       .api = &pretend_api,
                                       .n_devices = fake_n_devices,
                                       .device = fake_device,
                                       .features = fake_features,
                                       .feature_name = fake_feature_name,
                                       .kernels = pretend_kernels};

/* A new file each time: one with the same bytes is known. */
static char path[64];

static int load(struct hone_error *e)
{
    static int number;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "device code number %d\n", ++number);
    fclose(f);
    memset(e, 0, sizeof *e);
    return plugin_load(path, 1000, e);
}

static const struct hone_cuda_kernel good = {HONE_CUDA_KERNEL,      .op = "mul_mat",     .variant = "mine", .function = "mine",
                                             .formats = "q4_0 f32", .threads = 64,       .values = 4,       .rows = 2,
                                             .shared = 16,          .shared_a_value = 4, .k_multiple = 32,  .max_rows = 6};

static const struct kernel *kernel_of(enum op op, const char *variant)
{
    int n;
    const struct kernel *const *list = pretend_kernels(&n);
    for (int i = 0; i < n; i++)
        if (list[i]->op == op && !strcmp(list[i]->variant, variant))
            return list[i];
    return NULL;
}

/* ---- tables */

static void refused(const char *says)
{
    struct hone_error e;
    int before, after, loads = seen.loads, unloads = seen.unloads;
    pretend_kernels(&before);
    int rc = load(&e);
    if (rc != HONE_EINPUT || !strstr(e.message, says) || !strstr(e.message, path))
        fail_msg("%d, '%s', and not '%s'", rc, e.message, says);
    pretend_kernels(&after);
    assert_int_equal(before, after);
    assert_int_equal(seen.loads - loads, 1);
    assert_int_equal(seen.unloads - unloads, 1); /* what is refused leaves no module */
}

#define REFUSED(says, change)                                                                                                  \
    do {                                                                                                                       \
        seen.entries[0] = good;                                                                                                \
        seen.n_entries = 1;                                                                                                    \
        struct hone_cuda_kernel *it = &seen.entries[0];                                                                        \
        change;                                                                                                                \
        refused(says);                                                                                                         \
    } while (0)

static void all_tables(void)
{
    REFUSED("hone_cuda_kernels has 0 bytes", (void)it; seen.n_entries = 0);
    REFUSED("its size is given as 12 bytes", it->size = 12);
    REFUSED("begin each with HONE_CUDA_KERNEL", it->size += 4);
    REFUSED("version 2 of hone_cuda.h", it->abi = 2);
    REFUSED("its op has no end", memset(it->op, 'a', sizeof it->op));
    REFUSED("its where has no end", memset(it->where, 'a', sizeof it->where));
    REFUSED("its params[7] has no end", memset(it->params[7], 'a', sizeof it->params[7]));
    REFUSED("there is no op 'mul_matt'", strcpy(it->op, "mul_matt"));
    REFUSED("it names no op", it->op[0] = 0);
    REFUSED("there is no op 'view'", strcpy(it->op, "view"));
    REFUSED("it has no name", it->variant[0] = 0);
    REFUSED("0x20", strcpy(it->variant, "a b"));
    REFUSED("longer than", memset(it->variant, 'a', 42));
    REFUSED("names no function", it->function[0] = 0);
    REFUSED("0x2e in its name", strcpy(it->function, "a.b"));
    REFUSED("has no function 'absent'", strcpy(it->function, "absent"));
    REFUSED("no format 'q4_9'", strcpy(it->formats, "q4_9"));
    REFUSED("no format 'x'", strcpy(it->out_format, "x"));
    REFUSED("more than 16 sources", strcpy(it->formats, "* * * * * * * * * * * * * * * * *"));
    REFUSED("no layout 'nowhere'", strcpy(it->layout, "nowhere"));
    REFUSED("the layout q4_K.x16 is of q4_K", strcpy(it->layout, "q4_K.x16"));
    REFUSED("blocks of 0 threads", it->threads = 0);
    REFUSED("blocks of 1025 threads", it->threads = 1025);
    REFUSED("1001 bytes of shared memory", it->shared = 1001);
    REFUSED("bytes of scratch a value", it->scratch_a_value = 2 << 20);
    REFUSED("two of this name", seen.entries[1] = *it; seen.n_entries = 2);
    REFUSED("its size is given as 7 bytes", seen.entries[1] = *it; seen.entries[1].size = 7; seen.n_entries = 2);
    REFUSED("only mul_mat", strcpy(it->op, "add"); strcpy(it->formats, "f32 a8"));
    seen.cut = 1;
    REFUSED("begin each with HONE_CUDA_KERNEL", (void)it);
    seen.cut = 0;
}

static void test_tables(void **unused)
{
    (void)unused;
    all_tables(); /* looked at by a child */
    started = true;
    all_tables();
    started = false;
}

/* An entry of a newer header is fine as long as what this hone does not know is zero. */
static void test_newer(void **unused)
{
    (void)unused;
    struct hone_error e;
    struct {
        struct hone_cuda_kernel entry;
        unsigned more;
    } newer = {good, 1};
    newer.entry.size = sizeof newer;
    strcpy(newer.entry.variant, "newer");
    memcpy(seen.entries, &newer, sizeof newer);
    seen.n_entries = 2;
    seen.cut = 2 * sizeof *seen.entries - sizeof newer;
    refused("it needs a newer one");
    newer.more = 0;
    memcpy(seen.entries, &newer, sizeof newer);
    if (load(&e))
        fail_msg("%s", e.message);
    seen.cut = 0;
    assert_non_null(kernel_of(OP_MUL_MAT, "newer"));
}

/* ---- nodes */

struct product {
    struct tensor w, x, out;
    struct node node;
};

static void product(struct product *p, enum format_id format, int64_t k, int64_t m, int64_t n)
{
    *p = (struct product){.w = {.name = "w", .kind = TENSOR_WEIGHT},
                          .x = {.name = "x", .kind = TENSOR_VALUE},
                          .out = {.name = "out", .kind = TENSOR_VALUE}};
    tensor_shape(&p->w, format, 2, (int64_t[]){k, m});
    tensor_shape(&p->x, FORMAT_F32, 2, (int64_t[]){k, n});
    tensor_shape(&p->out, FORMAT_F32, 2, (int64_t[]){m, n});
    p->w.data = (void *)0x1000;
    p->x.data = (void *)0x2000;
    p->out.data = (void *)0x3000;
    p->node = (struct node){.op = OP_MUL_MAT, .src = {&p->w, &p->x}, .n_src = 2, .out = &p->out};
}

static void fits_not_because(const struct kernel *k, const struct node *n, const char *says)
{
    struct reason r = {""};
    if (k->fits(n, &r) || !strstr(r.text, says))
        fail_msg("'%s', and not '%s'", r.text, says);
}

static void test_product(void **unused)
{
    (void)unused;
    struct hone_error e;
    struct product p;
    struct reason r;
    struct exec x = {.worker = {.nth = 1}, .shared = (void *)0x4000};
    seen.entries[0] = good;
    seen.n_entries = 1;
    if (load(&e))
        fail_msg("%s", e.message);
    int loads = seen.loads;
    assert_int_equal(plugin_load(path, 1000, &e), 0); /* once more changes nothing */
    assert_int_equal(seen.loads, loads);
    const struct kernel *k = kernel_of(OP_MUL_MAT, "mine");
    assert_non_null(k);
    assert_true(k->by_name_only);
    assert_true(backend_has_origin(k->origin));
    assert_null(k->shared);

    product(&p, FORMAT_Q4_0, 64, 9, 5);
    assert_true(k->fits(&p.node, &r));
    seen.no_function = true; /* what the launch fails of is what `why` is to say */
    assert_int_equal(k->run(&x, &p.node), HONE_EINPUT);
    assert_string_equal(seen.told, "it has no function 'mine'");
    seen.no_function = false;
    assert_int_equal(k->run(&x, &p.node), 0);
    assert_int_equal(seen.grid[0], 3); /* 9 values, 4 a block */
    assert_int_equal(seen.grid[1], 3); /* 5 rows, 2 a block */
    assert_int_equal(seen.threads, 64);
    assert_int_equal(seen.shared, 16 + 4 * 64);
    assert_ptr_equal(seen.arg.src[0].data, p.w.data);
    assert_int_equal(seen.arg.src[0].block_bytes, 18);
    assert_int_equal(seen.arg.src[0].nb[1], 36);
    assert_int_equal(seen.arg.src[1].ne[1], 5);
    assert_ptr_equal(seen.arg.out.data, p.out.data);
    assert_null(seen.arg.src[2].data);
    assert_int_equal(seen.arg.n_src, 2);

    int launches = seen.launches;
    product(&p, FORMAT_Q4_0, 64, 9, 0);
    assert_true(k->fits(&p.node, &r));
    assert_int_equal(k->run(&x, &p.node), 0);
    assert_int_equal(seen.launches, launches); /* nothing to do */

    product(&p, FORMAT_Q8_0, 64, 9, 5);
    fits_not_because(k, &p.node, "q8_0, not q4_0");
    product(&p, FORMAT_Q4_0, 64, 9, 7);
    fits_not_because(k, &p.node, "7 rows, and it takes up to 6");
    product(&p, FORMAT_Q4_0, 512, 9, 1);
    fits_not_because(k, &p.node, "2064 bytes of shared memory");
    product(&p, FORMAT_Q4_0, 64, 9, 5);
    p.x.format = FORMAT_F16;
    fits_not_because(k, &p.node, "x is f16, not f32");
    product(&p, FORMAT_Q4_0, 64, 9, 5);
    p.x.nb[1] += 4;
    fits_not_because(k, &p.node, "x has gaps");
    product(&p, FORMAT_Q4_0, 64, 9, 5);
    p.w.layout = &layout_q4_0_x16;
    assert_int_equal(k->run(&x, &p.node), HONE_EFAULT); /* bytes in another order than it reads are never given to it */
    assert_non_null(strstr(seen.told, "sources are not as"));
}

static void test_more(void **unused)
{
    (void)unused;
    struct hone_error e;
    struct product p;
    struct reason r;
    struct exec x = {.worker = {.nth = 1}, .shared = (void *)0x4000};
    seen.entries[0] =
        (struct hone_cuda_kernel){HONE_CUDA_KERNEL,     .op = "mul_mat",      .variant = "packed", .function = "f",
                                  .formats = "q4_0 a8", .layout = "q4_0.x16", .threads = 32,       .scratch_a_value = 8};
    seen.entries[1] = (struct hone_cuda_kernel){HONE_CUDA_KERNEL,  .op = "rms_norm", .variant = "own", .function = "f",
                                                .params = {"eps"}, .threads = 32,    .rows = 1,        .strides = 1};
    seen.entries[2] = (struct hone_cuda_kernel){HONE_CUDA_KERNEL, .op = "glu",          .variant = "own",
                                                .function = "f",  .where = "kind=silu", .threads = 32};
    seen.entries[3] = (struct hone_cuda_kernel){HONE_CUDA_KERNEL, .op = "glu",       .variant = "bad",
                                                .function = "f",  .params = {"eps"}, .threads = 32};
    seen.n_entries = 4;
    if (load(&e))
        fail_msg("%s", e.message);

    const struct kernel *k = kernel_of(OP_MUL_MAT, "packed");
    assert_true(k->wants.quantized && k->wants.activation == FORMAT_A8 && k->wants.layout == &layout_q4_0_x16);
    product(&p, FORMAT_Q4_0, 64, 9, 5);
    assert_true(k->fits(&p.node, &r));
    assert_int_equal(k->shared(&p.node), 8 * 9 * 5);
    assert_int_equal(k->run(&x, &p.node), HONE_EFAULT); /* neither packed nor quantised */

    product(&p, FORMAT_F32, 64, 9, 1);
    struct rms_norm_params norm = {.eps = 0.25f};
    struct node n = {.op = OP_RMS_NORM, .src = {&p.x}, .n_src = 1, .out = &p.x};
    memcpy(n.params, &norm, sizeof norm);
    k = kernel_of(OP_RMS_NORM, "own");
    p.x.nb[1] += 64;
    assert_true(k->fits(&n, &r));
    assert_int_equal(k->run(&x, &n), 0);
    assert_true(seen.arg.param[0] == 0.25);
    assert_int_equal(seen.grid[0], 1);

    product(&p, FORMAT_F32, 64, 9, 1);
    struct glu_params glu = {.kind = UNARY_SILU};
    n = (struct node){.op = OP_GLU, .src = {&p.x, &p.x}, .n_src = 2, .out = &p.x};
    memcpy(n.params, &glu, sizeof glu);
    assert_true(kernel_of(OP_GLU, "own")->fits(&n, &r));
    fits_not_because(kernel_of(OP_GLU, "bad"), &n, "no parameter 'eps'");
    glu.kind = UNARY_GELU;
    memcpy(n.params, &glu, sizeof glu);
    fits_not_because(kernel_of(OP_GLU, "own"), &n, "kind is gelu, not silu");
}

/* ---- files */

static void test_files(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    assert_int_equal(plugin_load("/no/such/file.pretend", 1000, &e), HONE_EINPUT);
    assert_int_equal(plugin_load("/no/such/file.CU", 1000, &e), HONE_EINPUT); /* with CUDA or without: a message of its own */
    if (!backend_by_name("cuda") && !strstr(e.message, "no CUDA"))
        fail_msg("%s", e.message);
}

/* ---- compiling, where the build has CUDA */

__attribute__((weak)) int module_compile(const char *path, const char *source, const char *architecture, void **code,
                                         size_t *n_code, struct hone_error *e);

static void test_compile(void **unused)
{
    (void)unused;
    static char source[1 << 16];
    struct hone_error e = {0};
    void *code = NULL;
    size_t n;
    FILE *f = fopen("examples/kernel/q4_0.cu", "r");
    if (!f)
        fail_msg("to be run from the project's folder");
    source[fread(source, 1, sizeof source - 1, f)] = 0;
    fclose(f);
    int rc = module_compile ? module_compile("examples/kernel/q4_0.cu", source, "sm_90a", &code, &n, &e) : 0;
    if (!module_compile || strstr(e.message, "NVRTC (libnvrtc")) {
        print_message("SKIPPED: no CUDA in this build, or no NVRTC here\n");
        skip();
    }
    if (rc)
        fail_msg("%s", e.message);
    assert_memory_equal(code, "\177ELF", 4);
    free(code);
    strcpy(source, "#include \"hone_cuda.h\"\n#include <cuda_fp16.h>\n__global__ void f(half x)\n{\n    no such thing;\n}\n");
    rc = module_compile("broken.cu", source, "sm_90a", &code, &n, &e);
    if (rc != HONE_EINPUT || !strstr(e.message, "broken.cu(5): error") || strchr(e.message, '\n'))
        fail_msg("%d, '%s'", rc, e.message);
    assert_null(code);
}

static int setup(void **unused)
{
    (void)unused;
    struct hone_error e = {0};
    pretend_api = fake_api;
    pretend_api.modules = &pretend_modules;
    snprintf(path, sizeof path, "/tmp/hone-device-%d.pretend", (int)getpid());
    return backend_add(&pretend, &e);
}

static int teardown(void **unused)
{
    (void)unused;
    return unlink(path);
}

int main(void)
{
    (void)fake_backend;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables),  cmocka_unit_test(test_newer),
                                       cmocka_unit_test(test_product), cmocka_unit_test(test_more),
                                       cmocka_unit_test(test_files),   cmocka_unit_test(test_compile)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
