/* Files from and to URLs: cove-fetch moves the bytes, a worker only waits (helpers/fetch/). */
#ifndef COVE_FCGI_CORE_FETCH_H
#define COVE_FCGI_CORE_FETCH_H

#include "cove/msg_helpers.h"
#include "fcgi/core.h"

struct core_fetch {
    enum fetch_verb verb;
    const char *tenant, *url;
    int fd;        /* the file; stays the caller's */
    uint64_t most; /* bytes of a download */
    uint64_t size; /* of the file that is uploaded */
    int client_fd; /* when it hangs up, the fetch ends; -1 = nobody waits */
};

/*
 * COVE_INVALID: not a URL. COVE_FORBIDDEN: it leads where fetches may not go. COVE_TOO_LARGE,
 * COVE_TIMEOUT: a bound was reached. COVE_GONE: the other side failed. COVE_BUSY: too many at a time, or no
 * cove-fetch at the moment.
 */
int core_fetch(struct core *c, const struct core_fetch *args, struct fetch_done *ret,
               struct cove_err *e);

#endif
