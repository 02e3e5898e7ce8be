/* hash.c: a thin face over xxHash and OpenSSL's libcrypto. */
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t hash64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

static void to_hex(struct sha256 *out, const unsigned char digest[32])
{
    for (unsigned i = 0; i < 32; i++) {
        out->hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out->hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out->hex[64] = 0;
}

int hash_sha256(struct sha256 *out, const void *data, size_t size, struct hone_error *e)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(data, size, digest, &n, EVP_sha256(), NULL) || n != 32)
        return err_set(e, HONE_EFAULT, "libcrypto has no SHA-256");
    to_hex(out, digest);
    return 0;
}

enum { FILE_PIECE = 1 << 20 };

/* Reading goes through a buffer: a mapping would bring a file that somebody cuts meanwhile to us as a SIGBUS. */
static int digest_file(EVP_MD_CTX *ctx, int fd, unsigned char *piece, const char *path, int (*progress)(void *, uint64_t),
                       void *user, struct hone_error *e)
{
    for (uint64_t done = 0;;) {
        ssize_t n = read(fd, piece, FILE_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
        if (n == 0)
            return 0;
        if (!EVP_DigestUpdate(ctx, piece, (size_t)n))
            return err_set(e, HONE_EFAULT, "libcrypto failed");
        done += (uint64_t)n;
        if (progress && progress(user, done))
            return err_set(e, HONE_ECANCELED, "cancelled");
    }
}

int hash_sha256_file(struct sha256 *out, const char *path, int (*progress)(void *user, uint64_t done), void *user,
                     struct hone_error *e)
{
    struct stat st;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char *piece = malloc(FILE_PIECE);
    int rc = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = err_set(e, HONE_EINPUT, "%s: no regular file", path);
    else if (!ctx || !piece || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL))
        rc = err_set(e, HONE_ERESOURCE, "%s: no memory to hash it", path);
    else
        rc = digest_file(ctx, fd, piece, path, progress, user, e);
    if (!rc && (!EVP_DigestFinal_ex(ctx, digest, &n) || n != 32))
        rc = err_set(e, HONE_EFAULT, "libcrypto has no SHA-256");
    if (!rc)
        to_hex(out, digest);
    free(piece);
    EVP_MD_CTX_free(ctx);
    close(fd);
    return rc;
}
