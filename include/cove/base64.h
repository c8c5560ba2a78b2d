/* Base64 with its padding, for bytes that travel in JSON or in a header. */
#ifndef COVE_BASE64_H
#define COVE_BASE64_H

#include <stddef.h>

/* How many characters `len` bytes become, without a NUL. */
#define BASE64_LEN(len) (((len) + 2) / 3 * 4)

/* Writes BASE64_LEN(len) characters and no NUL. */
void base64_encode(const void *bytes, size_t len, char *out);

/*
 * Writes at most len / 4 * 3 bytes to `out`, which may be `text` itself. -1: the text is not base64
 * with its padding.
 */
int base64_decode(const char *text, size_t len, void *out, size_t *ret_len);

#endif
