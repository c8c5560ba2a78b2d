/* A mount namespace with nothing of the host in it. Every sandbox begins there. */
#ifndef COVE_BOX_EMPTY_NS_H
#define COVE_BOX_EMPTY_NS_H

#include "cove/err.h"

struct empty_ns {
    int empty;    /* the empty mount namespace */
    int own, cwd; /* the caller's own mount namespace and working directory */
};

#define NO_EMPTY_NS ((struct empty_ns){ -1, -1, -1 })

/* Makes the namespace, which lives as long as its descriptor is open or a process is in it. Fails also if this process
 * could not enter it. */
int empty_ns_make(struct empty_ns *ret, struct cove_err *e);
/* Between these two calls no path means what it means elsewhere: open nothing by its path. -1: errno, nothing has changed. */
int empty_ns_enter(const struct empty_ns *ns);
void empty_ns_leave(const struct empty_ns *ns);

#endif
