/* The confinement of every unprivileged process, in case somebody finds a hole in its parsers. */
#ifndef COVE_PROCESS_CONFINE_H
#define COVE_PROCESS_CONFINE_H

#include "cove/err.h"

/* The rows of the table in confine.c. */
enum confine_kind {
    CONFINE_WORKER,
    CONFINE_JUDGE,
    CONFINE_GATE,
    CONFINE_RESOLVER,
    CONFINE_AUTH,
    CONFINE_PACK,
    CONFINE_UNPACK,
    CONFINE_STARTER,
    CONFINE_FETCH,
    CONFINE_BUCKET,
    CONFINE_BUILDER,
    CONFINE_KINDS,
};

/*
 * Confines the process: no new privileges, no core dumps, Landlock, seccomp. Call this when all is set up and
 * before the first thread starts: threads inherit the confinement, and nothing lifts it again. own_dir is
 * the further directory that the row reads: run_dir, or pam_dir for cove-auth; NULL if it reads none.
 */
int confine(enum confine_kind kind, const char *own_dir, struct cove_err *e);
/* The same for a row that has a directory to write in. */
int confine_writing(enum confine_kind kind, const char *own_dir, const char *work_dir,
                    struct cove_err *e);

/* The Landlock part alone. Paths that do not exist are left out; NULL ends a list. */
enum { CONFINE_PATHS_MAX = 64 };
struct confine_paths {
    const char *readable[CONFINE_PATHS_MAX];
    const char *writable[CONFINE_PATHS_MAX];
    const char *runnable[CONFINE_PATHS_MAX]; /* by execve() */
};
int confine_files(const struct confine_paths *paths, struct cove_err *e);

#endif
