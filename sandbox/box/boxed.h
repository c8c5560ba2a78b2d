/* A program of ours that works on the files of one sandbox, with that sandbox's ids. */
#ifndef COVE_BOX_BOXED_H
#define COVE_BOX_BOXED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/userns.h"

struct boxed_program {
    int exe;
    const char *title;
};

struct boxed {
    pid_t pid;
    int pidfd;
    int sock; /* the other end is the process's descriptor BOXED_SOCK_FD */
};
enum { BOXED_SOCK_FD = 3 };

/* Never waits. The process has namespaces of its own (user, mount, pid, network, ipc, uts), and is nobody in them and on
 * the host. `owner` is an id that no process has outside of sandboxes. */
int boxed_start(const struct boxed_program *program, uid_t owner, struct boxed *ret,
                struct cove_err *e);

struct
    boxed_order { /* the first message to it; it may become root of its namespaces from then on */
    struct id_range ids;
    int in, out; /* the first two descriptors beside the message; -1: /dev/null */
    const struct disk_files *files; /* the third; NULL: none */
    bool read_only;
    uint32_t type;
    const void *body;
    size_t size;
    uint32_t *ret_attach; /* in the body: set to 1 when the files are a mount to attach */
};
/* A process that got its order takes no other. After a failure it is of no use any more. */
int boxed_order(pid_t pid, int sock, const struct boxed_order *order, struct cove_err *e);

#endif
