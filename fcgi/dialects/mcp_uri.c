/* Paths of files as URIs: file:///workspace/a%20b. */
#include <string.h>

#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

#define FILE_SCHEME "file://"

const char *mcp_uri_path(struct arena *a, const char *uri)
{
    const char *path = uri + strlen(FILE_SCHEME);

    if (strncmp(uri, FILE_SCHEME, strlen(FILE_SCHEME)) != 0 || *path != '/' ||
        strpbrk(path, "?#") || strlen(path) >= MSG_PATH_MAX)
        return NULL;
    return http_decode(a, path, strlen(path), 0);
}

const char *mcp_path_uri(struct arena *a, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~-+@,=";
    char *out = arena_alloc(a, sizeof(FILE_SCHEME) + 3 * strlen(path)), *at = out;

    at = stpcpy(at, FILE_SCHEME);
    for (; *path; path++) {
        if (strchr(plain, *path)) {
            *at++ = *path;
        } else {
            *at++ = '%';
            text_hex(path, 1, at);
            at += 2;
        }
    }
    *at = '\0';
    return out;
}
