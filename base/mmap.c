/* mmap.c: files as memory. A mapped 1 GB model is ready at once and its pages are shared between processes; reading it
 * into malloc costs the copy and doubles the memory while it lasts. */
#include "base/mmap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int mapping_open(struct mapping *m, const char *path, struct hone_error *e)
{
    *m = (struct mapping){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must not hang us */
    if (fd < 0)
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    int rc = 0;
    struct stat st;
    if (fstat(fd, &st) < 0) {
        rc = err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, HONE_EINPUT, "%s: not a regular file", path);
        goto done;
    }
    if (st.st_size == 0)
        goto done;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        rc = err_set(e, HONE_ERESOURCE, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
        goto done;
    }
    m->data = p;
    m->size = (size_t)st.st_size;
done:
    close(fd);
    return rc;
}

void mapping_close(struct mapping *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct mapping){0};
}

static void advise(const struct mapping *m, size_t offset, size_t size, int advice)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!m->data || offset >= m->size)
        return;
    if (size > m->size - offset)
        size = m->size - offset;
    size_t start = offset / page * page;
    madvise((void *)(uintptr_t)(m->data + start), size + (offset - start), advice); /* advice: failure changes nothing */
}

void mapping_will_need(const struct mapping *m, size_t offset, size_t size)
{
    advise(m, offset, size, MADV_WILLNEED);
}

void mapping_dont_need(const struct mapping *m, size_t offset, size_t size)
{
    advise(m, offset, size, MADV_DONTNEED);
}

enum { HUGE_PAGE = 2 << 20 };

/* Where a block is longer than a huge page it starts on one, or its first and last megabytes would stay in small pages: of the
 * 9 MB matrices of a 1B model a fifth. */
void *pages_alloc(size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE), span;
    size = size ? (size + align - 1) / align * align : align;
    if (__builtin_add_overflow(size, align, &span))
        return NULL;
    char *p = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    char *start = (char *)(((uintptr_t)p + align - 1) / align * align);
    if (start > p)
        munmap(p, (size_t)(start - p));
    if (p + span > start + size)
        munmap(start + size, (size_t)(p + span - (start + size)));
    madvise(start, size, MADV_HUGEPAGE); /* a wish: refused where huge pages are off */
    return start;
}

void pages_free(void *p, size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
    if (p)
        munmap(p, size ? (size + align - 1) / align * align : align);
}

void pages_forget(const void *p, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = ((uintptr_t)p + page - 1) / page * page, hi = ((uintptr_t)p + size) / page * page;
    if (lo < hi)
        madvise((void *)lo, hi - lo, MADV_DONTNEED); /* advice: failure changes nothing */
}

size_t pages_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return 0;
    char line[128];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        ;
    fclose(f);
    return (size_t)kib * 1024;
}
