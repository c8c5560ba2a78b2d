/* A program of ours that works on the files of one sandbox, with that sandbox's ids. */
#ifndef COVE_BOX_BOXED_H
#define COVE_BOX_BOXED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/userns.h"

struct boxed_args {
    int exe;
    const char *title;
    struct id_range ids;
    int in, out;                    /* the process's descriptors 0 and 1; -1: none */
    const struct disk_files *files; /* NULL: it gets none */
    bool read_only;
    uint32_t order_type; /* the first message to it, with the files beside it */
    const void *order;
    size_t order_size;
    uint32_t *ret_attach; /* in the order: set to 1 when the files are a mount to attach */
};

struct boxed {
    pid_t pid;
    int pidfd;
    int sock; /* the other end is the process's descriptor 3 */
};

/* Never waits. The process is root of namespaces of its own (user, mount, pid, network, ipc, uts)
 * and nobody on the host. */
int boxed_start(const struct boxed_args *args, struct boxed *ret, struct cove_err *e);

enum { BOXED_SOCK_FD = 3 };

#endif
