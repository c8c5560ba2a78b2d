/*
 * What is open in init after execve: the contract between sandbox/box/build.c and init.c.
 *
 * argv[0] is "cove: init ID"; there are no arguments. The three directories may be /dev/null (where a
 * controller is missing, and in tests): init then does without. Init closes all other descriptors.
 */
#ifndef COVE_INIT_FDS_H
#define COVE_INIT_FDS_H

enum init_fd {
    INIT_FD_LISTEN = 3, /* listening SEQPACKET socket; its path does not exist inside */
    INIT_FD_READY,      /* pipe: a struct cove_err, COVE_OK when ready, else why it failed */
    INIT_FD_CGROUP,     /* the sandbox's cgroup v2 directory, delegated: children are made in it */
    INIT_FD_MEMORY,     /* where the memory limit and the oom counter are: cgroup v2 or v1 */
    INIT_FD_PIDS,       /* where the pids limit and its counter are */
    INIT_FD_END,
};

#endif
