/* The executor dialect between its files: executor.c has the routes, the others a chapter of the
 * document each. */
#ifndef COVE_FCGI_EXECUTOR_H
#define COVE_FCGI_EXECUTOR_H

#include "cove/json.h"
#include "fcgi/core.h"
#include "fcgi/reply.h"

struct executor_command { /* /run, /run_streaming, /start_process */
    const char *cmd;
    const char *cwd; /* NULL = the user's home */
    struct json_map env;
    int64_t timeout_s; /* 0 = as configured */
    bool keep_stdin;
    const char *const *env_strings; /* "K=V", made from env */
};

/* Does something with a command that may run: /run, /run_streaming, /start_process. */
typedef int executor_verb(struct request *req, struct reply *rep, const struct executor_command *c,
                          const struct policy_filter *filter, struct cove_err *e);
/* Reads and checks the body and asks the policy; if the policy allows the command, calls the verb. */
int executor_with_command(struct request *req, struct reply *rep, executor_verb *verb,
                          struct cove_err *e);

/* Opens a session with the sandbox that a request means: by host name 8080-ID.DOMAIN, by X-Project-Id, or else the
 * project `default`. */
int executor_open(struct request *req, struct core_session *ret, struct cove_err *e);

/* The name of the sandbox that a request means: a project, or the sandbox's id if the host name has one. */
const char *executor_project(struct request *req);

/* A path or a process that is not there is a wrong parameter: the document knows no 404. Returns
 * -1. */
int executor_fail(struct cove_err *e);

/* The form of most replies: whether it worked, and a text about it. */
struct executor_result {
    bool success;
    const char *error;
    int64_t code;
    const char *rule, *reason; /* of the policy, when it refused */
    const char *message;
    const char *current_port, *port;
    int64_t proxy_port;
    const char *url;
    int64_t bytes;
    bool has_bytes;
    const char *sandbox;
    uint64_t created_unix_ms, expires_unix_ms; /* of the sandbox */
};

/* Returns 0, so that it can be a handler's last statement. */
int executor_reply(struct reply *rep, const struct executor_result *r);

typedef int executor_handler(struct request *req, struct reply *rep, struct cove_err *e);

executor_handler executor_run, executor_run_streaming; /* executor_run.c */
executor_handler executor_write_file, executor_read_file,
    executor_delete_file; /* executor_files.c */
executor_handler executor_make_dir, executor_delete_dir, executor_list_dir;
executor_handler executor_bind_port, executor_unbind_port; /* executor_ports.c */
executor_handler executor_port_access, executor_port_link;
executor_handler executor_put_raw, executor_get_raw;           /* executor_raw.c */
executor_handler executor_start, executor_list, executor_kill; /* executor_procs.c */
executor_handler executor_signal, executor_stdin, executor_remove;
executor_handler executor_logs;                     /* executor_logs.c */
executor_handler executor_terminal, executor_lines; /* executor_sockets.c */

/* The policy has refused a command. */
void executor_forbidden(struct request *req, struct reply *rep, const struct core_permit *p);

#endif
