/* The process service between its two files: e2b_process.c and e2b_start.c. */
#ifndef COVE_FCGI_E2B_PROCESS_H
#define COVE_FCGI_E2B_PROCESS_H

#include "fcgi/dialects/e2b.h"
#include "fcgi/proto/process.pb-c.h"

struct e2b_process { /* a process that init knows */
    uint32_t proc, pid;
    bool running, pty;
};

/* Finds a process by pid or by tag, a running one if there is one. COVE_NOT_FOUND names the selector. */
int e2b_process_find(struct rpc *r, const Process__ProcessSelector *which, struct e2b_process *ret,
                     struct cove_err *e);

/* Finds a process that runs. */
int e2b_process_running(struct rpc *r, const Process__ProcessSelector *which,
                        struct e2b_process *ret, struct cove_err *e);
int e2b_process_input(struct rpc *r, const struct e2b_process *p,
                      const Process__ProcessInput *input, struct cove_err *e);

rpc_handler e2b_process_start, e2b_process_connect; /* e2b_start.c */

#endif
