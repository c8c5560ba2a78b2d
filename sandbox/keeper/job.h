/* Child processes of the keeper that carry out one order and end. See job.c. */
#ifndef COVE_KEEPER_JOB_H
#define COVE_KEEPER_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"
#include "cove/loop.h"
#include "sandbox/box/boxed.h"

struct keeper;
struct job;

/* The process has ended, with this status of waitpid(). The job is freed after the call. */
typedef void (*job_ended)(struct keeper *k, struct job *j, int status);
/* There is a message at `sock`. False: there was none, and none will come. */
typedef bool (*job_said)(struct keeper *k, struct job *j);

struct job {           /* the first member of the struct of its kind, which is on the heap */
    struct watch exit; /* its pidfd */
    struct watch news; /* its socket, if there is a said() */
    int sock;          /* messages of the process can be read here; -1: it sends none */
    pid_t pid;
    job_said said;   /* NULL: its messages are read when it has ended */
    job_ended ended; /* NULL: nobody is told */
};

/* Watches a process that was started. The descriptors in `b` are taken over, also after a failure. After a success
 * the job frees itself when the process has ended; after a failure it is still the caller's. */
int job_watch(struct keeper *k, struct job *j, const struct boxed *b, struct cove_err *e);
/* The process is killed, and nobody is told of its end. NULL is fine. */
void job_abandon(struct job *j);

/* ------------------------------------------------------------------ a function in a forked child */

/* `index` is the caller's, `status` that of waitpid(). */
typedef void (*job_done)(struct keeper *k, uint32_t index, int status);

struct job_child {
    const char *name;                                     /* for the error text */
    void (*run)(const struct keeper *k, const void *arg); /* in the child; must not return */
    const void *arg;
    uint32_t index; /* handed to done() */
    job_done done;
};

int job_fork(struct keeper *k, const struct job_child *c, struct job **ret, struct cove_err *e);

#endif
