/* allocations.c: how often a program asks for memory, and the system for anything at all: a library that is loaded before it
 * (LD_PRELOAD) and counts calls of the C library's allocator, of mmap, and of ioctl, by which a GPU's driver is asked for memory
 * of the card. At the end they are written to the file that ALLOCATIONS names.
 *
 * A run of many steps and one of few, whose counts are equal, prove that a step asks for nothing (bench/allocations.sh). Counting
 * inside hone was the alternative: it would not see the libraries and drivers that hone calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t n, size_t size), *__libc_realloc(void *p, size_t size),
    *__libc_memalign(size_t alignment, size_t size);

static atomic_llong n_allocated, n_mapped, n_asked;

void *malloc(size_t size)
{
    n_allocated++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    n_allocated++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    n_allocated++;
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    n_allocated++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    n_allocated++;
    *p = __libc_memalign(alignment, size);
    return *p ? 0 : 12; /* ENOMEM */
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    n_mapped++;
    return next(address, size, protection, flags, fd, offset);
}

int ioctl(int fd, unsigned long request, ...)
{
    static int (*next)(int, unsigned long, void *);
    va_list ap;
    va_start(ap, request);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
    n_asked++;
    return next(fd, request, argument);
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("ALLOCATIONS");
    long long n = n_allocated, mapped = n_mapped, asked = n_asked;
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fprintf(f, "%lld %lld %lld\n", n, mapped, asked);
        fclose(f);
    }
}
