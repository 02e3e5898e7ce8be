/* module.c: a user's own device code (include/hone_cuda.h): a .cu is compiled by NVRTC for the device that is here, a .cubin or
 * .ptx is given to the driver as it is.
 *
 * NVRTC is looked for when a .cu comes, by dlopen: hone has no need of it otherwise, and a machine with a driver alone still
 * runs .cubin and .ptx. hone_cuda.h is in the binary, so that what was copied to another machine compiles there; the toolkit's
 * own headers are found where there is a toolkit. nvcc as a child process was the alternative; it takes seconds where NVRTC
 * takes 0.2, and needs a host compiler. */
#include "backends/cuda/module.h"

#include "base/child.h"

#include <dlfcn.h>
#include <errno.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_FILE = 64 << 20, MAX_CONSTANT = 1 << 20, MAX_OPTIONS = 8, COMPILE_MS = 120000 };

/* The header as the include folder has it. */
extern const char module_header[];
__asm__(".section .rodata\n"
        ".global module_header\n"
        ".hidden module_header\n"
        "module_header:\n"
        ".incbin \"include/hone_cuda.h\"\n"
        ".byte 0\n"
        ".previous\n");

/* ---- NVRTC */

struct compiler {
    __typeof__(nvrtcCreateProgram) *create;
    __typeof__(nvrtcDestroyProgram) *destroy;
    __typeof__(nvrtcCompileProgram) *compile;
    __typeof__(nvrtcGetProgramLogSize) *log_size;
    __typeof__(nvrtcGetProgramLog) *log;
    __typeof__(nvrtcGetCUBINSize) *code_size;
    __typeof__(nvrtcGetCUBIN) *code;
    __typeof__(nvrtcGetErrorString) *words;
};

/* Where the toolkit is: CUDA_HOME, CUDA_PATH, or where it usually is. NULL: nowhere. */
static const char *toolkit(void)
{
    static const char *const names[] = {"CUDA_HOME", "CUDA_PATH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && *getenv(names[i]))
            return getenv(names[i]);
    return access("/usr/local/cuda/include", R_OK) ? NULL : "/usr/local/cuda";
}

static void *compiler_library(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !handle; i++) {
        char path[4200];
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!handle && toolkit() && snprintf(path, sizeof path, "%.4000s/lib64/%s", toolkit(), names[i]) > 0)
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

static int compiler_open(struct compiler *c, struct hone_error *e)
{
    void *handle = compiler_library();
    if (!handle)
        return err_set(
            e, HONE_EINPUT,
            "a .cu needs NVRTC (libnvrtc.so, part of the CUDA toolkit), which is not found here; a .cubin or .ptx does not");
    const struct {
        void **function;
        const char *name;
    } all[] = {{(void **)&c->create, "nvrtcCreateProgram"},   {(void **)&c->destroy, "nvrtcDestroyProgram"},
               {(void **)&c->compile, "nvrtcCompileProgram"}, {(void **)&c->log_size, "nvrtcGetProgramLogSize"},
               {(void **)&c->log, "nvrtcGetProgramLog"},      {(void **)&c->code_size, "nvrtcGetCUBINSize"},
               {(void **)&c->code, "nvrtcGetCUBIN"},          {(void **)&c->words, "nvrtcGetErrorString"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i].function = dlsym(handle, all[i].name)))
            return err_set(e, HONE_EINPUT, "this NVRTC has no %s: hone needs that of CUDA 11.1 or later", all[i].name);
    return 0;
}

/* The first line of the compiler's log that speaks of an error, else its first. */
static int compile_failed(const struct compiler *c, nvrtcProgram program, nvrtcResult result, struct hone_error *e)
{
    size_t size = 0;
    char *log = c->log_size(program, &size) == NVRTC_SUCCESS && size < MAX_FILE ? calloc(size + 1, 1) : NULL;
    if (log && c->log(program, log) == NVRTC_SUCCESS) {
        char *line = strstr(log, "error");
        while (line && line > log && line[-1] != '\n')
            line--;
        line = line ? line : log;
        line[strcspn(line, "\n")] = 0;
        err_set(e, HONE_EINPUT, "it does not compile: %.300s", *line ? line : c->words(result));
    } else {
        err_set(e, HONE_EINPUT, "it does not compile: %s", c->words(result));
    }
    free(log);
    return HONE_EINPUT;
}

static int compile_with(const struct compiler *c, nvrtcProgram program, const char *architecture, const char *folder,
                        void **code, size_t *n_code, struct hone_error *e)
{
    char include[4200], beside[4200];
    const char *options[MAX_OPTIONS] = {architecture, "--std=c++20", "-lineinfo", beside};
    int n = 4;
    snprintf(beside, sizeof beside, "-I%.4000s", folder);
    if (toolkit() && snprintf(include, sizeof include, "-I%.4000s/include", toolkit()) > 0)
        options[n++] = include;
    nvrtcResult result = c->compile(program, n, options);
    if (result != NVRTC_SUCCESS)
        return compile_failed(c, program, result, e);
    *n_code = 0;
    result = c->code_size(program, n_code);
    *code = result == NVRTC_SUCCESS && *n_code ? malloc(*n_code) : NULL;
    if (*code && c->code(program, *code) == NVRTC_SUCCESS)
        return 0;
    free(*code);
    *code = NULL;
    return err_set(e, HONE_EINPUT, "NVRTC gives no code for %s", architecture + strlen("--gpu-architecture="));
}

int module_compile(const char *path, const char *source, const char *architecture, void **code, size_t *n_code,
                   struct hone_error *e)
{
    struct compiler c;
    nvrtcProgram program = NULL;
    const char *headers[] = {module_header}, *names[] = {"hone_cuda.h"};
    char option[64], folder[4200];
    const char *slash = strrchr(path, '/');
    *code = NULL;
    int rc = compiler_open(&c, e);
    if (rc)
        return rc;
    snprintf(option, sizeof option, "--gpu-architecture=%s", architecture);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path < 4000 ? slash - path + 1 : 4000) : 1,
             slash ? path : ".");
    nvrtcResult result = c.create(&program, source, path, 1, headers, names);
    if (result != NVRTC_SUCCESS)
        return err_set(e, HONE_EINPUT, "NVRTC: %s", c.words(result));
    rc = compile_with(&c, program, option, folder, code, n_code, e);
    c.destroy(&program);
    return rc;
}

/* ---- modules */

/* The file with a NUL behind it, malloc'd. */
static int file_read(const char *path, char **text, struct hone_error *e)
{
    FILE *f = fopen(path, "rb");
    size_t size = 0, room = 1 << 16;
    char *all = NULL;
    if (!f)
        return err_set(e, HONE_EINPUT, "cannot be opened: %s", strerror(errno));
    for (;;) {
        char *larger = room <= MAX_FILE ? realloc(all, room + 1) : NULL;
        if (!larger) {
            room = size;
            break;
        }
        all = larger;
        size_t got = fread(all + size, 1, room - size, f);
        size += got;
        if (size < room)
            break;
        room *= 2;
    }
    bool bad = ferror(f) || !all || size == room; /* full: no memory for more, or too large */
    fclose(f);
    if (bad || !size) {
        free(all);
        return err_set(e, HONE_EINPUT, bad ? "cannot be read: it is 64 MiB or larger, or there is no memory for it" : "is empty");
    }
    all[size] = 0;
    *text = all;
    return 0;
}

/* A file's code; the driver gets it when it is first needed, in each process for itself. */
struct module {
    char *code;
    pthread_mutex_t mutex;
    cudaLibrary_t library; /* NULL: not yet */
};

struct source {
    const char *path, *text;
};

static int compile(void *arg, void **code, size_t *n, struct hone_error *e)
{
    const struct source *s = arg;
    return module_compile(s->path, s->text, "sm_90a", code, n, e); /* as hone's own kernels are: no other device runs any */
}

static int load(const char *path, void **out, struct hone_error *e)
{
    char *text = NULL;
    size_t n = strlen(path);
    int rc = file_read(path, &text, e);
    if (!rc && n > 3 && !strcasecmp(path + n - 3, ".cu")) {
        void *code = NULL;
        struct source s = {path, text};
        /* In a child: NVRTC begins to work with the driver, and then no child of this process could. */
        rc = cuda_started() ? compile(&s, &code, &n, e) : child_bytes(compile, &s, COMPILE_MS, &code, &n, e);
        free(text);
        text = code;
    }
    struct module *m = rc ? NULL : malloc(sizeof *m);
    if (!rc && !m)
        rc = err_set(e, HONE_ERESOURCE, "no memory for it");
    if (rc) {
        free(text);
        return rc;
    }
    *m = (struct module){.code = text, .mutex = PTHREAD_MUTEX_INITIALIZER};
    *out = m;
    return 0;
}

static void unload(void *module)
{
    struct module *m = module;
    if (!m)
        return;
    if (m->library)
        cuda_code(cudaLibraryUnload(m->library));
    pthread_mutex_destroy(&m->mutex);
    free(m->code);
    free(m);
}

static int library_of(struct module *m, cudaLibrary_t *library, struct hone_error *e)
{
    int n = 0, rc = 0;
    pthread_mutex_lock(&m->mutex);
    if (!m->library && (cuda_code(cudaGetDeviceCount(&n)) || !n))
        rc = err_set(e, HONE_EINPUT, "it is code for a CUDA device, and there is none here");
    if (!m->library && !rc && cuda_code(cudaLibraryLoadData(&m->library, m->code, NULL, NULL, 0, NULL, NULL, 0)))
        rc = err_set(e, HONE_EINPUT, "the driver does not take it: %s", cuda_why());
    *library = m->library;
    pthread_mutex_unlock(&m->mutex);
    return rc;
}

static int constant(void *module, const char *name, void **bytes, size_t *n, struct hone_error *e)
{
    void *at = NULL;
    cudaLibrary_t library;
    *bytes = NULL;
    *n = 0;
    int rc = library_of(module, &library, e);
    if (rc)
        return rc;
    if (cuda_code(cudaLibraryGetGlobal(&at, n, library, name)))
        return err_set(e, HONE_EINPUT, "it has no %s: see include/hone_cuda.h (%s)", name, cuda_why());
    if (*n > MAX_CONSTANT)
        return err_set(e, HONE_EINPUT, "its %s has %zu bytes", name, *n);
    *bytes = malloc(*n + 1);
    if (!*bytes)
        return err_set(e, HONE_ERESOURCE, "no memory for its table");
    if (!cuda_code(cudaMemcpy(*bytes, at, *n, cudaMemcpyDeviceToHost)))
        return 0;
    free(*bytes);
    *bytes = NULL;
    return err_set(e, HONE_EFAULT, "its %s cannot be read: %s", name, cuda_why());
}

static int function(void *module, const char *name, size_t arg_bytes, void **out, int *max_threads, size_t *max_shared,
                    struct hone_error *e)
{
    cudaKernel_t kernel = NULL;
    struct cudaFuncAttributes a;
    size_t offset, size, second;
    cudaLibrary_t library;
    int rc = library_of(module, &library, e);
    if (rc)
        return rc;
    if (cuda_code(cudaLibraryGetKernel(&kernel, library, name)) || cuda_code(cudaFuncGetAttributes(&a, (const void *)kernel)))
        return err_set(e, HONE_EINPUT, "it has no function '%s': declare it extern \"C\" __global__ (%s)", name, cuda_why());
    if (cudaFuncGetParamInfo((const void *)kernel, 0, &offset, &size) != cudaSuccess || size > arg_bytes ||
        cudaFuncGetParamInfo((const void *)kernel, 1, &offset, &second) == cudaSuccess)
        return err_set(e, HONE_EINPUT, "its function '%s' must take one argument, const struct hone_cuda_node node", name);
    cudaGetLastError(); /* of the argument that is not there */
    size_t most = cuda_block_shared(0);
    *out = (void *)kernel;
    *max_threads = a.maxThreadsPerBlock;
    *max_shared = most > a.sharedSizeBytes ? most - a.sharedSizeBytes : 0;
    return 0;
}

static int launch(const struct exec *x, void *kernel, const unsigned grid[2], int threads, size_t shared, const void *arg)
{
    void *args[] = {(void *)(uintptr_t)arg};
    cudaLaunchConfig_t config = {.gridDim = {grid[0], grid[1], 1},
                                 .blockDim = {(unsigned)threads, 1, 1},
                                 .dynamicSmemBytes = shared,
                                 .stream = (cudaStream_t)x->stream};
    int rc = shared ? cuda_allow_shared(kernel, x->device) : 0;
    return rc ? rc : cuda_code(cudaLaunchKernelExC(&config, kernel, args));
}

static void tell(const char *text)
{
    cuda_fault("%s", text);
}

const struct module_api cuda_modules = {.suffixes = ".cu .cubin .ptx",
                                        .load = load,
                                        .unload = unload,
                                        .started = cuda_started,
                                        .constant = constant,
                                        .function = function,
                                        .launch = launch,
                                        .tell = tell};
