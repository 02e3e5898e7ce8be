/* mmap.h: a file mapped read-only, and large anonymous memory. */
#ifndef BASE_MMAP_H
#define BASE_MMAP_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct mapping {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;         /* bytes */
};

/* Maps the whole of path, which must be a regular file. 0, or a code with a message that names path. */
int mapping_open(struct mapping *m, const char *path, struct hone_error *e);
/* Unmaps; *m is zeroed. Harmless on a zeroed mapping. */
void mapping_close(struct mapping *m);
/* Tells the kernel that [offset, offset + size) will be read soon, in order / is not needed any more. */
void mapping_will_need(const struct mapping *m, size_t offset, size_t size);
void mapping_dont_need(const struct mapping *m, size_t offset, size_t size);

/* size bytes of zeroed memory straight from the kernel: physical pages come on first touch, in huge pages where the kernel
 * gives them. NULL when out of memory. For what is large and lives long: KV cells, packed weights. */
void *pages_alloc(size_t size);
void pages_free(void *p, size_t size); /* p may be NULL */
/* Lets the system take back the whole pages within [p, p + size) of a mapped file: the next read brings them in again. */
void pages_forget(const void *p, size_t size);
/* Bytes of memory that the system could still give to this process (MemAvailable); 0: unknown. */
size_t pages_available(void);

#endif
