/* SHA-256 of what passes, and of what lies in a file. */
#include <errno.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

enum { READ_BYTES = 256 * 1024 };

int sha_init(struct sha *s, struct cove_err *e)
{
    s->bytes = 0;
    s->ctx = EVP_MD_CTX_new();
    if (s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1)
        return 0;
    return cove_fail(e, COVE_INTERNAL, "libcrypto offers no SHA-256");
}

void sha_add(struct sha *s, const void *bytes, size_t len)
{
    EVP_DigestUpdate(s->ctx, bytes, len);
    s->bytes += len;
}

void sha_drop(struct sha *s)
{
    EVP_MD_CTX_free(s->ctx);
    s->ctx = NULL;
}

void sha_end(struct sha *s, char ret[SAVED_DIGEST_TEXT])
{
    unsigned char sum[EVP_MAX_MD_SIZE];

    EVP_DigestFinal_ex(s->ctx, sum, NULL);
    sha_drop(s);
    text_hex(sum, 32, ret);
}

int saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT], struct cove_err *e)
{
    AUTO_FREE char *buf = malloc(READ_BYTES);
    struct sha sha;
    ssize_t n = -1;

    if (!buf || sha_init(&sha, e) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (off_t at = 0; (n = pread(fd, buf, READ_BYTES, at)) > 0; at += n)
        sha_add(&sha, buf, (size_t)n);
    *ret_bytes = sha.bytes;
    sha_end(&sha, ret);
    return n < 0 ? cove_fail_errno(e, COVE_INTERNAL, "reading the archive again") : 0;
}
