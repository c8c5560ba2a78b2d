/* Whole files and unix sockets. */
#ifndef COVE_FILE_H
#define COVE_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "cove/err.h"

/* Reads a whole file. *ret is malloc()ed, with a NUL behind its *ret_len bytes. */
int file_read(const char *path, size_t max, char **ret, size_t *ret_len, struct cove_err *e);

/* Writes all bytes, however many calls that takes: 0, or -1 and errno. */
int write_all(int fd, const void *bytes, size_t len);

/* For the kernel's small files in /proc, /sys and cgroups: writes the text in one call. `dir` may be AT_FDCWD. */
int write_file_at(int dir, const char *name, const char *text, struct cove_err *e);
/* Reads up to size-1 bytes and adds a NUL; returns the length, or -1 and errno. */
ssize_t read_file_at(int dir, const char *name, char *out, size_t size);

/*
 * Makes a listening unix socket at this path, in place of what was there. It belongs to group `gid` and has
 * mode 0660: nobody else can connect. type: SOCK_STREAM or SOCK_SEQPACKET, with SOCK_* flags.
 */
int unix_listen(const char *path, int type, int backlog, gid_t gid, int *ret_sock,
                struct cove_err *e);
/* A connected unix socket, or -1 and errno. SOCK_NONBLOCK: EAGAIN when the listener's queue is full. */
int unix_connect(const char *path, int type);

/*
 * Takes another user's id for one call, with all capabilities kept: what the kernel counts per user is then
 * charged to that user. Only for a process with one thread. uid_give_back() aborts when it fails, because
 * the process must not go on as the wrong user.
 */
struct uid_loan {
    int securebits;
};
int uid_borrow(uid_t uid, struct uid_loan *ret); /* 0, or -1 and errno */
void uid_give_back(const struct uid_loan *loan); /* errno survives */

#endif
