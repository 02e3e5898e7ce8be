/* hash.c: a thin face over xxHash and OpenSSL's libcrypto. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

uint64_t hash64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

int hash_sha256(struct sha256 *out, const void *data, size_t size, struct hone_error *e)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(data, size, digest, &n, EVP_sha256(), NULL) || n != 32)
        return err_set(e, HONE_EFAULT, "libcrypto has no SHA-256");
    for (unsigned i = 0; i < n; i++) {
        out->hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out->hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out->hex[64] = 0;
    return 0;
}
