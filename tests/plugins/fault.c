/* fault.c: plug-ins that hone must refuse. Built once a fault, with -DFAULT_<name>; without any it is a good one, which the
 * test checks too, so that no fault is found for the wrong reason. */
#include "hone_kernel.h"

#include <stdlib.h>
#include <unistd.h>

#define KERNEL_SIZE    sizeof(struct hone_kernel)
#define KERNEL_OP      "add"
#define KERNEL_VARIANT "fault"
#define KERNEL_FITS    fits
#define KERNEL_RUN     run
#define KERNEL_MORE
#define LAYOUT_MORE
#define LAYOUT_NAME    "q4_0.fault"
#define LAYOUT_FORMAT  "q4_0"
#define LAYOUT_GRAIN   1
#define PLUGIN_HEAD    HONE_PLUGIN_HEAD
#define PLUGIN_KERNELS kernels

#if defined FAULT_version
#undef PLUGIN_HEAD
#define PLUGIN_HEAD .magic = HONE_KERNEL_MAGIC, .abi = HONE_KERNEL_ABI + 1, .size = sizeof(struct hone_plugin)
#elif defined FAULT_magic
#undef PLUGIN_HEAD
#define PLUGIN_HEAD .magic = 1, .abi = HONE_KERNEL_ABI, .size = sizeof(struct hone_plugin)
#elif defined FAULT_plugin_size
#undef PLUGIN_HEAD
#define PLUGIN_HEAD .magic = HONE_KERNEL_MAGIC, .abi = HONE_KERNEL_ABI, .size = 4000
#elif defined FAULT_plugin_short
#undef PLUGIN_HEAD
#define PLUGIN_HEAD .magic = HONE_KERNEL_MAGIC, .abi = HONE_KERNEL_ABI, .size = 24
#elif defined FAULT_kernel_size
#undef KERNEL_SIZE
#define KERNEL_SIZE 0
#elif defined FAULT_no_op
#undef KERNEL_OP
#define KERNEL_OP NULL
#elif defined FAULT_op
#undef KERNEL_OP
#define KERNEL_OP "multiply"
#elif defined FAULT_alias_op
#undef KERNEL_OP
#define KERNEL_OP "view"
#elif defined FAULT_no_variant
#undef KERNEL_VARIANT
#define KERNEL_VARIANT ""
#elif defined FAULT_variant_letters
#undef KERNEL_VARIANT
#define KERNEL_VARIANT "my variant"
#elif defined FAULT_variant_long
#undef KERNEL_VARIANT
#define KERNEL_VARIANT "a_name_that_goes_on_and_on_and_will_not_come_to_an_end"
#elif defined FAULT_variant_taken
#undef KERNEL_VARIANT
#define KERNEL_VARIANT "ref"
#elif defined FAULT_no_run
#undef KERNEL_RUN
#define KERNEL_RUN NULL
#elif defined FAULT_no_fits
#undef KERNEL_FITS
#define KERNEL_FITS NULL
#elif defined FAULT_format
#undef KERNEL_MORE
#define KERNEL_MORE .format = "q4_9",
#elif defined FAULT_layout
#undef KERNEL_MORE
#define KERNEL_MORE .layout = "q4_0.nowhere",
#elif defined FAULT_layout_empty
#undef KERNEL_MORE
#define KERNEL_MORE .layout = " ",
#elif defined FAULT_layout_format
#undef KERNEL_MORE
#define KERNEL_MORE .format = "q8_0", .layout = "q4_0.fault",
#elif defined FAULT_activation_op
#undef KERNEL_MORE
#define KERNEL_MORE .activation = "q8_0",
#elif defined FAULT_activation_format
#undef KERNEL_OP
#define KERNEL_OP "mul_mat"
#undef KERNEL_MORE
#define KERNEL_MORE .activation = "i32",
#elif defined FAULT_needs
#undef KERNEL_MORE
#define KERNEL_MORE .needs = "avx2 mmx",
#elif defined FAULT_declines
#undef KERNEL_MORE
#define KERNEL_MORE .declines = fits,
#elif defined FAULT_no_kernels
#undef PLUGIN_KERNELS
#define PLUGIN_KERNELS NULL
#elif defined FAULT_wild
#undef PLUGIN_KERNELS
#define PLUGIN_KERNELS (const struct hone_kernel *const *)0x10
#elif defined FAULT_layout_grain
#undef LAYOUT_GRAIN
#define LAYOUT_GRAIN 0
#elif defined FAULT_layout_of
#undef LAYOUT_FORMAT
#define LAYOUT_FORMAT "i32"
#elif defined FAULT_layout_taken
#undef LAYOUT_NAME
#define LAYOUT_NAME "q4_0.x16"
#elif defined FAULT_layout_rows
#undef LAYOUT_NAME
#define LAYOUT_NAME "rows"
#elif defined FAULT_layout_no_pack
#undef LAYOUT_MORE
#define LAYOUT_MORE .pack = NULL,
#elif defined FAULT_layout_refuses
#undef LAYOUT_MORE
#define LAYOUT_MORE .refuses = refuses,
#endif

#ifdef FAULT_crash
__attribute__((constructor)) static void crash(void)
{
    *(volatile int *)8 = 1;
}
#endif
#ifdef FAULT_abort
__attribute__((constructor)) static void stop(void)
{
    abort();
}
#endif
#ifdef FAULT_exit
__attribute__((constructor)) static void leave(void)
{
    exit(0);
}
#endif
#ifdef FAULT_hang
__attribute__((constructor)) static void hang(void)
{
    for (;;)
        pause();
}
#endif
#ifdef FAULT_undefined
void nowhere_to_be_found(void);
__attribute__((constructor)) static void call(void)
{
    nowhere_to_be_found();
}
#endif

/* ---- a layout that changes nothing, but for its fault */

enum { BYTES = 18 };

__attribute__((unused)) static const char *refuses(int64_t k, int64_t rows)
{
    (void)k;
    (void)rows;
    return "I do not like it";
}

static uint64_t bytes(int64_t k, int64_t rows)
{
#ifdef FAULT_layout_bytes
    return UINT64_MAX / 2;
#endif
    return (uint64_t)(k / 32 * rows) * BYTES;
}

__attribute__((unused)) static void pack(const void *src, void *packed, int64_t k, int64_t rows, int64_t first, int64_t n)
{
    size_t row = (size_t)(k / 32) * BYTES;
    (void)rows;
    memcpy((char *)packed + (size_t)first * row, (const char *)src + (size_t)first * row, (size_t)n * row);
#ifdef FAULT_layout_lossy
    if (first == 0)
        ((unsigned char *)packed)[row - 1] ^= 1;
#endif
#ifdef FAULT_layout_beyond
    ((unsigned char *)packed)[(size_t)rows * row] = 0;
#endif
#ifdef FAULT_layout_crash
    *(volatile int *)8 = 1;
#endif
#ifdef FAULT_layout_hang
    for (;;)
        pause();
#endif
}

static void restore_row(const void *packed, void *to, int64_t k, int64_t rows, int64_t row)
{
    size_t size = (size_t)(k / 32) * BYTES;
    (void)rows;
#ifdef FAULT_layout_restore
    if (row == rows - 1 && rows > 1)
        row--; /* the last row is the one before it */
#endif
    memcpy(to, (const char *)packed + (size_t)row * size, size);
#ifdef FAULT_layout_row_end
    ((unsigned char *)to)[size] = 0;
#endif
}

static void unpack_row(const void *packed, float *to, int64_t k, int64_t rows, int64_t row)
{
    const unsigned char *block = (const unsigned char *)packed + row * (k / 32) * BYTES;
    (void)rows;
    for (int64_t b = 0; b < k / 32; b++, block += BYTES) {
        uint16_t d;
        memcpy(&d, block, sizeof d);
        for (int j = 0; j < 16; j++) {
#ifdef FAULT_layout_values
            to[b * 32 + 2 * j] = hone_half(d) * (float)((block[2 + j] & 15) - 8); /* nibbles side by side, which they are not */
            to[b * 32 + 2 * j + 1] = hone_half(d) * (float)((block[2 + j] >> 4) - 8);
#else
            to[b * 32 + j] = hone_half(d) * (float)((block[2 + j] & 15) - 8);
            to[b * 32 + j + 16] = hone_half(d) * (float)((block[2 + j] >> 4) - 8);
#endif
        }
    }
}

static const struct hone_layout layout = {.size = sizeof(struct hone_layout),
                                          .grain = LAYOUT_GRAIN,
                                          .name = LAYOUT_NAME,
                                          .format = LAYOUT_FORMAT,
                                          .bytes = bytes,
#ifndef FAULT_layout_no_pack
                                          .pack = pack,
#endif
                                          .unpack_row = unpack_row,
                                          .restore_row = restore_row,
                                          LAYOUT_MORE};
static const struct hone_layout *const layouts[] = {&layout,
#ifdef FAULT_layout_twice
                                                    &layout,
#endif
                                                    NULL};

/* ---- a kernel */

__attribute__((unused)) static int fits(const struct hone_node *node, char *why, size_t why_size)
{
    (void)node;
    (void)why;
    (void)why_size;
    return 1;
}

__attribute__((unused)) static int run(const struct hone_ctx *ctx, const struct hone_node *node, int32_t ith, int32_t nth)
{
    (void)ctx;
    (void)node;
    (void)ith;
    (void)nth;
    return 0;
}

#ifdef FAULT_newer
static const struct {
    struct hone_kernel kernel;
    const void *from_the_future;
} newer = {{.size = sizeof newer, .op = "add", .variant = "fault", .fits = fits, .run = run}, &layout};
#endif

static const struct hone_kernel kernel = {
    .size = KERNEL_SIZE, .op = KERNEL_OP, .variant = KERNEL_VARIANT, KERNEL_MORE.fits = KERNEL_FITS, .run = KERNEL_RUN};
__attribute__((unused)) static const struct hone_kernel *const kernels[] = {&kernel,
#ifdef FAULT_twice
                                                                            &kernel,
#endif
#ifdef FAULT_newer
                                                                            &newer.kernel,
#endif
                                                                            NULL};

#if defined FAULT_symbol
const struct hone_plugin hone_plugins = {PLUGIN_HEAD, .name = "fault", .kernels = kernels, .layouts = layouts};
#elif defined FAULT_function
void entry(void) __asm__("hone_plugin");
__attribute__((visibility("default"))) void entry(void)
{
    fits(NULL, NULL, (size_t)(layouts[0] == NULL));
}
#else
const struct hone_plugin hone_plugin = {PLUGIN_HEAD,
#ifndef FAULT_no_name
                                        .name = "fault",
#endif
                                        .kernels = PLUGIN_KERNELS, .layouts = layouts};
#endif
