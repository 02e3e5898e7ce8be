/* hash.h: xxHash for tables and quick identity, SHA-256 for what people compare. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* XXH3, 64 bit. */
uint64_t hash64(const void *data, size_t size);

/* SHA-256 as 64 lower-case hex digits and a NUL. */
struct sha256 {
    char hex[65];
};
int hash_sha256(struct sha256 *out, const void *data, size_t size, struct hone_error *e);
/* Of a file's content. progress: bytes read so far; non-zero cancels; may be NULL. */
int hash_sha256_file(struct sha256 *out, const char *path, int (*progress)(void *user, uint64_t done), void *user, struct hone_error *e);

#endif
