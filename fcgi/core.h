/*
 * The core: what all dialects do, said once. A dialect decodes, calls one of these verbs, encodes.
 * The core knows no dialect, no HTTP and no JSON.
 */
#ifndef COVE_FCGI_CORE_H
#define COVE_FCGI_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/client.h"
#include "cove/config.h"
#include "cove/end.h"
#include "cove/err.h"
#include "cove/policy.h"
#include "cove/state.h"
#include "fcgi/live.h"

struct policy_set;

struct core { /* one per thread */
    const struct cove_config *config;
    struct state *state;
    uint32_t worker;
    struct state_task *task; /* what this thread is at, for `cove top` and for the keeper */
    struct live *policy;
    struct keeper_link keeper;
};

void core_count(struct core *c, enum state_counter counter,
                uint64_t n); /* c may be NULL: not counted */

/* This thread serves a request from here to there. */
void core_task_begin(struct core *c, const char *request_id, const char *what);
void core_task_end(struct core *c);

/* ------------------------------------------------------------------ policy */

/* The policy that holds, for one request; without one nothing may run: COVE_BUSY. */
int core_policy_get(struct core *c, struct live_ref **ret, struct cove_err *e);

/* A line for the audit log. That it could not be written is logged; the request is answered all the
 * same. */
void core_audit(struct core *c, const struct keeper_audit_entry *entry);

/* ------------------------------------------------------------------ sandboxes */

struct core_box {
    char id[24];
    uint32_t index, generation; /* its slot in shared memory */
    bool known;                 /* found in shared memory, the keeper was not asked */
};

/* The project's sandbox: the live one if it may still be reused, else one from the keeper. */
int core_box_for_project(struct core *c, const char *tenant, const char *project,
                         struct core_box *ret, struct cove_err *e);
/* Kill the project's sandboxes; having none is fine. */
int core_retire_project(struct core *c, const char *tenant, const char *project,
                        struct cove_err *e);

/* A conversation with the project's sandbox, for one or several commands in a row. */
struct core_session {
    struct core *core;
    const char *tenant;
    struct core_box box;
    struct box_conn conn;
};

int core_session_open(struct core *c, const char *tenant, const char *project,
                      struct core_session *ret, struct cove_err *e);
void core_session_close(struct core_session *s);

/* ------------------------------------------------------------------ running a command (run.c) */

enum run_stream { RUN_STDOUT, RUN_STDERR };

/* Output as it comes; offset counts from the command's start, per stream. Non-zero: nobody wants
 * more of it. */
typedef int (*run_sink)(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                        size_t len);

struct run_args {
    const char *const *argv;
    const char *const *env; /* NULL-terminated "K=V", or NULL */
    const char *user;
    const char *cwd;           /* NULL = the user's home */
    uint64_t timeout_ms;       /* 0 = none */
    uint64_t output_max_bytes; /* of both streams together */
    uint64_t output_used;      /* of those, what earlier commands of the same request have taken */
    uint64_t max_open_files, max_file_bytes; /* 0 = as init has them */
    int filter_fd;                           /* seccomp program, -1 = none */
    bool exec_time;                          /* it notifies execve, and the judge is asked */
    uint32_t dialect;                        /* enum cove_dialect: whose rules the judge applies */
    int client_fd; /* when it hangs up, the command is killed; -1 = nobody waits */
    run_sink sink;
    void *sink_arg;
};

struct run_result {
    struct cove_end end;
    uint64_t output_bytes; /* handed to the sink */
    bool distrust;         /* its init broke the protocol or does not obey: the sandbox must go */
};

/*
 * Spawn and wait. 0: it ran, and ret->end says how it ended (END_GONE: the sandbox ended under it);
 * -1: it was never started. run_command() is the mechanism, core_run() adds counters and gets rid
 * of a sandbox that misbehaves.
 */
int run_command(struct box_conn *conn, const struct run_args *args, struct run_result *ret,
                struct cove_err *e);
int core_run(struct core_session *s, const struct run_args *args, struct run_result *ret,
             struct cove_err *e);

#endif
