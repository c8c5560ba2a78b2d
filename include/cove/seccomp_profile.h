/*
 * seccomp profiles: files that list syscalls, compiled by libseccomp into the BPF program that init
 * installs. Compiled once per policy load; what crosses to the sandbox is plain bytes.
 */
#ifndef COVE_SECCOMP_PROFILE_H
#define COVE_SECCOMP_PROFILE_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

#include "cove/err.h"

/*
 * notify_exec: execve and execveat ask a supervisor (SECCOMP_RET_USER_NOTIF) instead of being
 * allowed. *ret is malloc()ed. Errors have the shape "FILE:LINE:COLUMN: what".
 */
int seccomp_profile_compile(const char *path, bool notify_exec, struct sock_filter **ret,
                            size_t *ret_count, struct cove_err *e);

/*
 * Finds the file of a profile: the operator's own /etc/cove/profiles/NAME.conf, or the one that was installed.
 * `dir` is a folder to look in first, for tests and for `cove`; NULL: none.
 */
int seccomp_profile_find(const char *name, const char *dir, char *ret, size_t ret_size,
                         struct cove_err *e);

/* The rules of a profile, one per syscall, sorted by name: for people and for diff. */
struct seccomp_line {
    const char *syscall;
    const char *action;    /* "allow", "refuse", "enosys" */
    const char *condition; /* "" or as written: "arg0 == AF_UNIX" */
};
typedef void (*seccomp_line_fn)(void *ctx, const struct seccomp_line *line);
int seccomp_profile_list(const char *path, seccomp_line_fn fn, void *ctx, struct cove_err *e);

#endif
