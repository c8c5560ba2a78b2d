/* Errors: one type goes up, one place (the dialect, the keeper's loop, main) turns it into a reply. */
#ifndef COVE_ERR_H
#define COVE_ERR_H

enum cove_code {
    COVE_OK = 0,
    COVE_INVALID,      /* the caller's input is wrong; msg names the field */
    COVE_UNAUTHORIZED, /* the caller's key, token or password is wrong or missing */
    COVE_FORBIDDEN,    /* the policy or a permission does not allow it */
    COVE_NOT_FOUND,    /* it does not exist, or belongs to another tenant */
    COVE_CONFLICT,     /* it exists already, or its state does not allow the request */
    COVE_TOO_LARGE,    /* above a configured size */
    COVE_TIMEOUT,      /* a deadline passed */
    COVE_LIMIT,        /* a quota or resource limit of the tenant or the sandbox */
    COVE_BUSY,         /* the server is full; trying again later helps */
    COVE_GONE,         /* the sandbox, the process or the peer ended meanwhile */
    COVE_METHOD,       /* right path, wrong HTTP method; msg holds the Allow list */
    COVE_UNSUPPORTED,  /* this kernel or this build cannot do it */
    COVE_INTERNAL,     /* our fault */
    COVE_QUOTA,        /* a tenant or key has used up its share: 429 in every dialect */
    COVE_NOT_READY,    /* a template's start or ready command failed: 422 in every dialect */
    COVE_CODE_COUNT
};

struct cove_err {        /* flat on purpose: it also travels between processes */
    enum cove_code code; /* what went wrong, in our words: COVE_NOT_FOUND, not 404 */
    int errnum;          /* 0 when no system call was involved */
    char msg[240];       /* a sentence for people, valid UTF-8, without a trailing period */
};

/* Raise: fill *e and return -1, so that raising and returning are one statement. e may be NULL. */
int cove_fail(struct cove_err *e, enum cove_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with errno's text appended and kept in e->errnum. */
int cove_fail_errno(struct cove_err *e, enum cove_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts the caller's words in front of the message: "box 'x': mounting /proc: ...". Returns -1. */
int cove_context(struct cove_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An error that came from another process may hold any bytes: brings it into a valid shape before use. */
void cove_err_sanitize(struct cove_err *e);

/* The code's name in lower case ("not_found"), for logs. */
const char *cove_code_name(enum cove_code code);

#endif
