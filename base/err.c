#include "cove/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"

/* Cuts the text back to the last whole UTF-8 sequence, so that a message that did not fit stays valid text. */
static void trim_partial_utf8(char *s)
{
    size_t len = strlen(s), at = 0;

    while (at < len) {
        size_t n = text_utf8_seq(s + at, len - at);

        if (n == 0) {
            if (len - at < 4) { /* a sequence cut short at the very end */
                s[at] = '\0';
                return;
            }
            s[at] = '?';
            n = 1;
        }
        at += n;
    }
}

__attribute__((format(printf, 4, 0))) static void vfail(struct cove_err *e, enum cove_code code,
                                                        int errnum, const char *fmt, va_list ap)
{
    if (!e)
        return;
    e->code = code;
    e->errnum = errnum;
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    if (errnum) {
        size_t len = strlen(e->msg);

        snprintf(e->msg + len, sizeof(e->msg) - len, ": %s", strerror(errnum));
    }
    trim_partial_utf8(e->msg);
}

int cove_fail(struct cove_err *e, enum cove_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfail(e, code, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int cove_fail_errno(struct cove_err *e, enum cove_code code, const char *fmt, ...)
{
    int errnum = errno;
    va_list ap;

    va_start(ap, fmt);
    vfail(e, code, errnum, fmt, ap);
    va_end(ap);
    errno = errnum;
    return -1;
}

int cove_context(struct cove_err *e, const char *fmt, ...)
{
    char rest[sizeof(e->msg)];
    va_list ap;
    size_t len;

    if (!e)
        return -1;
    memcpy(rest, e->msg, sizeof(rest));
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    len = strlen(e->msg);
    snprintf(e->msg + len, sizeof(e->msg) - len, ": %s", rest);
    trim_partial_utf8(e->msg);
    return -1;
}

void cove_err_sanitize(struct cove_err *e)
{
    e->msg[sizeof(e->msg) - 1] = '\0';
    if (e->code <= COVE_OK || e->code >= COVE_CODE_COUNT)
        e->code = COVE_INTERNAL;
    if (e->errnum < 0 || e->errnum > 4095)
        e->errnum = 0;
    for (char *c = e->msg; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    trim_partial_utf8(e->msg);
}

const char *cove_code_name(enum cove_code code)
{
    static const char *const names[] = {
        [COVE_OK] = "ok",
        [COVE_INVALID] = "invalid",
        [COVE_UNAUTHORIZED] = "unauthorized",
        [COVE_FORBIDDEN] = "forbidden",
        [COVE_NOT_FOUND] = "not_found",
        [COVE_CONFLICT] = "conflict",
        [COVE_TOO_LARGE] = "too_large",
        [COVE_TIMEOUT] = "timeout",
        [COVE_LIMIT] = "limit",
        [COVE_BUSY] = "busy",
        [COVE_GONE] = "gone",
        [COVE_METHOD] = "method",
        [COVE_UNSUPPORTED] = "unsupported",
        [COVE_INTERNAL] = "internal",
        [COVE_QUOTA] = "quota",
        [COVE_NOT_READY] = "not_ready",
    };

    if ((size_t)code >= ARRAY_SIZE(names))
        return "internal";
    return names[code];
}
