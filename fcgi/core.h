/*
 * The core does what all dialects have in common. A dialect decodes a request, calls one of these functions, and
 * encodes the result. The core knows no dialect, no HTTP and no JSON.
 */
#ifndef COVE_FCGI_CORE_H
#define COVE_FCGI_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/client.h"
#include "cove/config.h"
#include "cove/end.h"
#include "cove/err.h"
#include "cove/limits.h"
#include "cove/manifest.h"
#include "cove/policy.h"
#include "cove/state.h"
#include "process/live.h"
#include "process/policy_live.h"

struct caller;
struct kept_conns;
struct meters;
struct shares;
struct stream;
struct which;

struct core { /* one per thread */
    const struct cove_config *config;
    struct state *state;
    uint32_t worker;
    struct state_task *task; /* what this thread is doing, for `cove top` and for the keeper */
    struct live *policy;
    struct live *manifests;            /* the manifests of all templates; NULL in tests */
    struct meters *meters;             /* NULL in tests: nothing is measured, no pace is kept */
    const struct caller *caller;       /* of the request at hand; NULL: no scopes */
    const unsigned char *token_secret; /* of sandboxes' tokens (cove/keys.h); NULL in tests */
    struct shares *tenant_shares, *box_shares; /* the worker's (shares.h); NULL = no limit */
    struct kept_conns *kept; /* the worker's connections to inits (kept.h); NULL: none is kept */
    /* what all requests of this worker may keep in memory; NULL = any */
    struct budget *worker_bytes;
    /* memory of the request at hand: the tenant's budget, which is part of the worker's */
    struct budget *bytes;
    const char *share_of; /* the tenant whose share the request holds; NULL = none */
    bool share_counts;
    struct keeper_link keeper;
    /* enum cove_dialect of the request at hand: a sandbox that is made for it is marked with it */
    uint32_t dialect;
    /* the template that the request at hand names, for a sandbox that has to be made; NULL = none */
    const char *template;
    /* The template whose rules let this request's commands pass; "" = no command was judged. */
    char judged_template[COVE_TEMPLATE_MAX];
    /* true: the worker stops, and streams that another worker can continue end now; NULL in tests */
    const atomic_bool *leaving;
    int client_fd;  /* of the request at hand; 0: nobody waits for it */
    int closing;    /* socket of a conversation that is over, see core_session_close(); 0: none */
    char *messages; /* the buffer of that conversation, kept for the next one */
};

void core_count(struct core *c, enum state_counter counter,
                uint64_t n); /* c may be NULL: not counted */

/* Between these two calls the thread serves a request. */
void core_task_begin(struct core *c, const char *request_id, const char *what);
void core_task_end(struct core *c);
/* Closes the descriptor when the reply has left; one that was put here before is closed now. */
void core_task_close_later(struct core *c, int fd);
/* Has the client closed its connection? nginx closes the connection to us then. False for -1 and 0, which mean that
 * no client waits. */
bool core_client_has_left(int client_fd);
/* The budget had no room for what a request would have to keep. Returns -1. */
int core_fail_memory(struct cove_err *e);
/* Releases the tenant's share of threads and memory. The reply's memory must have been given back before. */
void core_request_end(struct core *c);
void core_done(struct core *c); /* the thread ends */

/* ------------------------------------------------------------------ policy */

/*
 * Asks the policy about all commands of a request, before the first one runs. Without a policy nothing may run:
 * COVE_BUSY. A refusal is no failure: it is counted, audited, and told in the permit. COVE_GONE: the client left
 * while its commands were judged.
 */
struct core_ask {
    uint32_t dialect;             /* enum cove_dialect */
    const char *tenant, *project; /* project: any name of the sandbox (cove/which.h) */
    const char *const *commands;
    size_t count;
};

struct core_permit {
    struct live_ref *policy;      /* holds the filter's policy in memory */
    struct policy_filter filter;  /* for commands that may run */
    const char *forbidden;        /* the first command that may not, NULL if all may */
    struct policy_result verdict; /* on that one */
};

int core_permit_get(struct core *c, const struct core_ask *ask, struct core_permit *ret,
                    struct cove_err *e);
/* The same for one command in the sandbox of this name. */
int core_permit_one(struct core *c, uint32_t dialect, const char *tenant, const char *name,
                    const char *command, struct core_permit *ret, struct cove_err *e);
void core_permit_put(struct core_permit *p);

/* Sends a line to the audit log. A failure is logged, and the request is answered all the same. */
void core_audit(struct core *c, const struct keeper_audit_entry *entry);

/* ------------------------------------------------------------------ sandboxes */

struct core_box {
    char id[24];
    uint32_t index, generation; /* its slot in shared memory */
    bool known;                 /* found in shared memory, the keeper was not asked */
    uint64_t created_unix_ms;
    uint64_t expires_unix_ms; /* when the sandbox stops being found by the name that was used */
    char template[COVE_TEMPLATE_MAX];
    char snapshot[24]; /* that it was made of, above the template; "" = none */
};

/* A template, and the names by which the policy judges commands in its sandboxes (core_template.c). */
struct core_template {
    char name[COVE_TEMPLATE_MAX];
    char policy[COVE_TEMPLATE_MAX]; /* the template's name in sections of the policy */
    char seccomp[64];               /* a profile instead of the policy's choice; "" = none */
    uint64_t made_unix_ms;
};
/* Finds the template that this tenant means by a name. False: this worker does not know the name. *ret then has it
 * unchanged, and the keeper decides. */
bool core_template_resolve(struct core *c, const char *tenant, const char *name,
                           struct core_template *ret);
/* Finds the template of the sandbox that a request for this name would use. */
void core_template_of(struct core *c, const char *tenant, const struct which *w,
                      struct core_template *ret);
/* Sets which addresses a sandbox of the caller may reach from now on. The rules can only narrow what the server
 * allows. */
int core_network(struct core *c, const char *tenant, const char *id, const struct net_rules *rules,
                 struct cove_err *e);
/* Lets the sandbox of this name, which must exist, live at least lifetime_ms from now on. */
int core_extend(struct core *c, const char *tenant, const char *name, uint64_t lifetime_ms,
                struct core_box *ret, struct cove_err *e);
/* Ends the project's sandboxes, or the one of that id. It is no failure if there is none. */
int core_retire(struct core *c, const char *tenant, const char *name, struct cove_err *e);

/* A conversation with the project's sandbox, for one or several commands in a row. */
struct core_session {
    struct core *core;
    const char *tenant;
    struct core_box box;
    struct box_conn conn;
    struct limits limits; /* limits of what runs in the sandbox */
    struct live_ref *manifests;
    /* the manifest of the snapshot that the sandbox was made of; NULL: it was not made of one */
    struct manifest *own_manifest;
    /* the snapshot's manifest or else the template's; NULL: neither is known */
    const struct manifest *manifest;
    bool retired; /* the sandbox misbehaved, and the keeper was told to end it */
};

/* Reads the manifests of a session's template and snapshot (core_template.c). */
void core_template_begin(struct core_session *s);
void core_template_end(struct core_session *s);
int core_template_check(const struct core_session *s,
                        struct cove_err *e); /* is it the one asked for? */
const char *core_user(const struct core_session *s, const char *otherwise);
/* The user for commands of clients that name none: the template's user, else `user` of the configuration. */
const char *core_default_user(const struct core_session *s);
const char *core_workdir(const struct core_session *s); /* NULL = the user's home */
const char *const *core_base_env(const struct core_session *s);
/* Returns what runs in place of argv in a sandbox that has no bash. The caller frees *ret, which may be NULL. */
const char *const *core_argv(struct core_session *s, const char *const *argv, const char ***ret);

/* Does the template have a service that starts on first use of this port? No sandbox is asked. */
bool core_has_service(struct core *c, const char *template, unsigned port);
/* Starts the template's service of this port, if it has one that starts on first use, and waits until it listens. */
int core_service_start(struct core_session *s, unsigned port, struct cove_err *e);

/* Opens a session with the sandbox of this name (cove/which.h). A project that has no sandbox gets one. */
int core_session_open(struct core *c, const char *tenant, const char *name,
                      struct core_session *ret, struct cove_err *e);
/* Opens a session with the sandbox of this id. A sandbox of another tenant is not found. */
int core_session_open_id(struct core *c, const char *tenant, const char *id,
                         struct core_session *ret, struct cove_err *e);
/* Opens a session with the sandbox that which_sandbox() has found, so that it is not looked up twice. *w may be
 * changed: it then has the sandbox's newest record. */
int core_session_open_found(struct core *c, const char *tenant, struct which *w,
                            struct core_session *ret, struct cove_err *e);
/* Wakes a sandbox that is paused in memory or in the store. lifetime_ms 0: it lives as long as when it was made. */
int core_set_going(struct core *c, struct which *w, uint64_t lifetime_ms, struct cove_err *e);
/*
 * An init that breaks the protocol, or leaves a message unanswered, is not our init any more. Its
 * sandbox ends, and with it the waiting of all who talk to it; others go on.
 */
void core_session_distrust(struct core_session *s);
/* Init takes the end of a conversation as its moment to get ready for the next command. That moment
 * is after the reply, so the socket stays open until core_task_end(). */
void core_session_close(struct core_session *s);

/* ------------------------------------------------------------------ running a command (run.c) */

enum run_stream { RUN_STDOUT, RUN_STDERR };

/* Called with output as it comes. `offset` counts the bytes of this stream since the command's start. A return value
 * other than 0 says that no more output is wanted. */
typedef int (*run_sink)(void *arg, enum run_stream stream, uint64_t offset, const char *bytes,
                        size_t len);

struct run_args {
    const char *const *argv;
    const char *const *env;      /* NULL-terminated "K=V", or NULL */
    const char *const *base_env; /* the template's; core_run() fills it in, */
    const char *common_env;      /* and the instance's */
    const char *user;            /* NULL = the template's, or as configured */
    const char *cwd;             /* NULL = the template's, or the user's home */
    uint64_t timeout_ms;         /* 0 = none */
    uint64_t output_max_bytes;   /* of both streams together */
    /* bytes of output_max_bytes that earlier commands of the same request have taken */
    uint64_t output_used;
    uint64_t max_open_files, max_file_bytes; /* 0 = init's own limits */
    int filter_fd;                           /* seccomp program, -1 = none */
    /* the filter notifies every execve, and the judge is asked about it */
    bool exec_time;
    uint32_t dialect; /* enum cove_dialect: whose rules the judge applies */
    /* the command is the server's own, not a client's: its end is not remembered */
    bool own_purpose;
    const atomic_bool *leaving; /* true: the worker stops soon, and ends the command */
    int client_fd;              /* when it hangs up, the command is killed; -1 = nobody waits */
    /* The sink writes into this stream: a client that reads slowly makes the command wait (its deadline
     * does not), and whether the command outlives its client is the stream's to say. NULL: the sink
     * keeps what it gets. */
    struct stream *stream;
    run_sink sink;
    size_t sink_bytes; /* at most this much at a time; 0 = any */
    void *sink_arg;
};

struct run_result {
    struct cove_end end;
    uint64_t output_bytes; /* handed to the sink */
    bool distrust;         /* its init broke the protocol or does not obey: the sandbox must go */
};

/* A poll() that SIGUSR1 ends. By that signal threads stop waiting when the worker stops (threads.c). */
struct pollfd;
int run_poll(struct pollfd *fds, size_t count, int timeout_ms);

/*
 * Starts a command and waits for its end. 0: it ran, and ret->end says how it ended (END_GONE: the sandbox ended
 * under it); -1: it was never started. run_command() is the mechanism, core_run() adds counters and gets rid of a
 * sandbox that misbehaves.
 */
int run_command(struct box_conn *conn, const struct run_args *args, struct run_result *ret,
                struct cove_err *e);
int core_run(struct core_session *s, const struct run_args *args, struct run_result *ret,
             struct cove_err *e);

/* ------------------------------------------------------------------ files (core_files.c) */

/* Opens a regular file for reading. */
int core_file_open(struct core_session *s, const char *user, const char *path, int *ret_fd,
                   struct box_stat *ret, struct cove_err *e);
/* Reads a whole file. COVE_TOO_LARGE: it does not fit into the buffer. */
int core_file_read(struct core_session *s, const char *user, const char *path, struct buf *out,
                   struct cove_err *e);

/* A file in the making: create, write any number of times, commit; done() takes away what was not
 * committed. */
struct core_file {
    struct core_session *session;
    const char *user, *given;
    char path[MSG_PATH_MAX]; /* the path of the finished file, links followed */
    char part[MSG_PATH_MAX]; /* the path of the file while it is being written */
    int fd;
    uint64_t written;
};

int core_file_create(struct core_session *s, const char *user, const char *path, bool parents,
                     struct core_file *ret, struct cove_err *e);
int core_file_write(struct core_file *f, const char *bytes, size_t len, struct cove_err *e);
int core_file_commit(struct core_file *f, struct cove_err *e);
void core_file_done(struct core_file *f);
/* Creates, writes and commits a whole file. On failure the file is as it was. */
int core_file_put(struct core_session *s, const char *user, const char *path, bool parents,
                  const char *bytes, size_t len, struct cove_err *e);

int core_make_dir(struct core_session *s, const char *user, const char *path, struct cove_err *e);
/* flags: FILE_DIR, FILE_RECURSIVE. COVE_TIMEOUT: removing takes longer than a command may, and goes on without us. */
int core_remove(struct core_session *s, const char *user, const char *path, uint32_t flags,
                struct cove_err *e);

/* ------------------------------------------------------------------ background processes
 * (core_procs.c) */

/* Makes a port of the sandbox reachable from outside through the gate, on port `wanted` of this machine (0: on any
 * free port). COVE_CONFLICT: the error's message is the port that is bound already. */
int core_port_bind(struct core_session *s, const char *project, uint16_t port, uint16_t wanted,
                   uint16_t *ret_proxy_port, struct cove_err *e);
/* Sets who may reach the port by its host name from now on. */
int core_port_access(struct core_session *s, uint16_t port, enum gate_access_word word,
                     struct cove_err *e);
int core_port_unbind(struct core *c, const char *tenant, const char *project, struct cove_err *e);

struct core_spawn {
    const char *const *argv;
    const char *const *env; /* NULL-terminated "K=V", or NULL */
    const char *user, *cwd; /* NULL = as with run_args */
    const char *label;      /* its name from now on */
    const char *note;       /* kept while it runs, for box_note(); NULL = none */
    const struct policy_filter *filter;
    uint32_t dialect;
    /* init kills the process after this time, even if no client is connected; 0 = never */
    uint32_t timeout_ms;
    bool pty; /* stdin, stdout and stderr are a terminal of this size */
    uint16_t rows, cols;
    bool keep_stdin; /* core_proc_stdin() may write to it; else it reads end of file */
    bool whole;      /* this session follows it (core_follow()) and must miss nothing */
};

int core_spawn(struct core_session *s, const struct core_spawn *args, struct box_spawned *ret,
               struct cove_err *e);

struct core_proc {
    uint32_t proc;
    bool running;
    struct cove_end end; /* when it is not */
};

int core_proc_find(struct core_session *s, const char *label, struct core_proc *ret,
                   struct cove_err *e);
/* Kills the process and all its descendants. Returns when the end was reported, which p->end then has. */
int core_proc_kill(struct core_session *s, struct core_proc *p, struct cove_err *e);
int core_proc_signal(struct core_session *s, const struct core_proc *p, int signo,
                     struct cove_err *e); /* its process group */
int core_proc_forget(struct core_session *s, const struct core_proc *p, struct cove_err *e);
int core_proc_stdin(struct core_session *s, const struct core_proc *p, const char *bytes,
                    size_t len, bool close_it, size_t *ret_written, struct cove_err *e);

/* ------------------------------------------------------------------ logs (core_logs.c) */

struct log_place { /* bytes of each stream that were told, indexed by enum run_stream */
    uint64_t offset[2];
};
enum { LOG_PLACE_TEXT = 48 };
void log_place_format(const struct log_place *p, char out[LOG_PLACE_TEXT]); /* "120-0" */
int log_place_parse(const char *text, struct log_place *ret, struct cove_err *e);

struct log_line {
    enum run_stream stream;
    uint64_t unix_ms; /* when its first byte was captured */
    const char *text;
    size_t len;
    bool goes_on;           /* a piece of a very long line, more of it follows */
    struct log_place place; /* the place behind this line, to continue from */
};

struct log_bytes {
    enum run_stream stream;
    uint64_t offset; /* of the first byte, in its stream */
    uint64_t unix_ms;
    const char *bytes;
    size_t len;
};

struct log_follow {
    const char *label;
    const struct log_place *since; /* NULL: begin with the last lines_max lines */
    uint64_t lines_max;
    int client_fd;
    /* the stream that the callbacks write into; it is sent after each of them */
    struct stream *stream;
    void (*line)(void *arg, const struct log_line *line);
    /* Called with records as they were written, instead of lines. NULL = the other callbacks get lines. */
    void (*bytes)(void *arg, const struct log_bytes *bytes);
    void (*gap)(void *arg, enum run_stream stream, uint64_t lost_bytes,
                const struct log_place *place);
    void *arg;
};

/* 0: the process has ended and all was told. 1: the client is gone. -1: COVE_NOT_FOUND, COVE_GONE. */
int core_log_follow(struct core_session *s, const struct log_follow *args, struct cove_err *e);

/* A piece of a log, read without waiting for more (core_log_read.c). */
struct core_log_piece {
    /* both streams, in the order in which they were written; made by the caller */
    struct buf *text;
    /* where the next piece begins; only core_log_read() knows what the number means */
    uint64_t next;
    bool lost; /* something that was written before this piece is no longer kept */
    bool more; /* the buffer was full */
};
/* COVE_INVALID: `from` is neither 0 nor an earlier piece's `next`. COVE_NOT_FOUND: no such process. */
int core_log_read(struct core_session *s, const char *label, uint64_t from,
                  struct core_log_piece *p, struct cove_err *e);

/* The same by a place that names bytes of both streams, and not records. */
struct core_log_part {
    struct log_place place; /* where to begin; afterwards: where the next part begins */
    size_t most;            /* bytes of `text` */
    struct buf text; /* made by core_log_read_part(); freed by the caller, also after a failure */
    uint64_t lost;   /* bytes behind the place that are no longer kept */
};
int core_log_read_part(struct core_session *s, uint32_t proc, struct core_log_part *p,
                       struct cove_err *e);

#endif
