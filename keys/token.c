/*
 * A sandbox's own token: its holder may use this one sandbox and nothing else. It is a MAC of
 * the sandbox's id under a secret of this instance, so there is no table of tokens to keep: it is
 * the same after a restart, and worth nothing when the sandbox has ended, because ids do not come
 * back.
 */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/keys.h"
#include "cove/mem.h"

void token_make(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                char ret[TOKEN_LEN + 1])
{
    unsigned char mac[32];
    char text[64];
    /* The MAC is made over the purpose as well, so that no other MAC under this secret can serve
     * as a token. */
    int len = snprintf(text, sizeof(text), "sandbox token %.32s", id);

    HMAC(EVP_sha256(), secret, TOKEN_SECRET_BYTES, (unsigned char *)text, (size_t)len, mac, NULL);
    for (int i = 0; i < TOKEN_LEN / 2; i++)
        snprintf(ret + 2 * i, 3, "%02x", mac[i]);
}

bool token_fits(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id, const char *given)
{
    char wanted[TOKEN_LEN + 1];
    bool fits;

    token_make(secret, id, wanted);
    fits = strlen(given) == TOKEN_LEN && CRYPTO_memcmp(wanted, given, TOKEN_LEN) == 0;
    OPENSSL_cleanse(wanted, sizeof(wanted));
    return fits;
}

/* No id begins with this text, so neither kind of token can serve as the other. */
static void traffic_name(const char *id, char out[32])
{
    snprintf(out, 32, "traffic-%.20s", id);
}

void traffic_token_make(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                        char ret[TOKEN_LEN + 1])
{
    char name[32];

    traffic_name(id, name);
    token_make(secret, name, ret);
}

bool traffic_token_fits(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                        const char *given)
{
    char name[32];

    traffic_name(id, name);
    return token_fits(secret, name, given);
}

int token_read_secret(const char *run_dir, unsigned char ret[TOKEN_SECRET_BYTES],
                      struct cove_err *e)
{
    unsigned char secret[TOKEN_SECRET_BYTES];
    char path[256];
    AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "%s/" TOKEN_SECRET_FILE, run_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (read(fd, secret, sizeof(secret)) != sizeof(secret))
        return cove_fail(e, COVE_INTERNAL, "%s: too short", path);
    memcpy(ret, secret, sizeof(secret));
    OPENSSL_cleanse(secret, sizeof(secret));
    return 0;
}
