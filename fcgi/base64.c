/* Base64 by libcrypto, which forgives more than we do. */
#include "fcgi/base64.h"

#include <openssl/evp.h>
#include <string.h>

char *base64_encode(struct arena *a, const void *bytes, size_t len)
{
    char *text = arena_alloc(a, (len + 2) / 3 * 4 + 1);

    EVP_EncodeBlock((unsigned char *)text, bytes, (int)len);
    return text;
}

void *base64_decode(struct arena *a, const char *text, size_t len, size_t *ret_len)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t body = strspn(text, letters), padding = len - body;
    unsigned char *bytes;

    if (len % 4 != 0 || padding > 2 || strspn(text + body, "=") != padding)
        return NULL;
    bytes = arena_alloc(a, len / 4 * 3 + 1);
    if (len > 0 && EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)len) < 0)
        return NULL;
    *ret_len = len / 4 * 3 - padding;
    return bytes;
}
