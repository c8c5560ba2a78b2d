/* Base64, for bytes that travel in JSON. */
#ifndef COVE_FCGI_BASE64_H
#define COVE_FCGI_BASE64_H

#include <stddef.h>

#include "cove/mem.h"

/* In the arena, NUL-terminated. */
char *base64_encode(struct arena *a, const void *bytes, size_t len);
/* NULL: not base64 with its padding. */
void *base64_decode(struct arena *a, const char *text, size_t len, size_t *ret_len);

#endif
