/* SHA-256 of what passes, and of what lies in a file. By nettle: libarchive has loaded that already, and to load and
 * set up libcrypto as well would take as long as packing a small sandbox. */
#include <errno.h>
#include <unistd.h>

#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

enum { READ_BYTES = 256 * 1024 };

void sha_init(struct sha *s)
{
    s->bytes = 0;
    sha256_init(&s->ctx);
}

void sha_add(struct sha *s, const void *bytes, size_t len)
{
    sha256_update(&s->ctx, len, bytes);
    s->bytes += len;
}

void sha_end(struct sha *s, char ret[SAVED_DIGEST_TEXT])
{
    unsigned char sum[SHA256_DIGEST_SIZE];

    sha256_digest(&s->ctx, sizeof(sum), sum);
    text_hex(sum, sizeof(sum), ret);
}

int saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT], struct cove_err *e)
{
    AUTO_FREE char *buf = malloc(READ_BYTES);
    struct sha sha;
    ssize_t n = -1;

    if (!buf)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    sha_init(&sha);
    for (off_t at = 0; (n = pread(fd, buf, READ_BYTES, at)) > 0; at += n)
        sha_add(&sha, buf, (size_t)n);
    *ret_bytes = sha.bytes;
    sha_end(&sha, ret);
    return n < 0 ? cove_fail_errno(e, COVE_INTERNAL, "reading the archive again") : 0;
}
