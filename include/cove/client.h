/*
 * What workers (and the CLI) see of keeper and sandboxes: calls that look local. Each call is one
 * message and its answer, with a deadline; whatever comes from a sandbox is checked before it is
 * handed up.
 */
#ifndef COVE_CLIENT_H
#define COVE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/end.h"
#include "cove/err.h"
#include "cove/msg.h"
#include "cove/msg_box.h"
#include "cove/msg_gate.h"
#include "cove/msg_keeper.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ the keeper */

/* Each thread has one. It connects when it is first used, and again after the keeper was restarted. */
struct keeper_link {
    const char *run_dir;
    int sock; /* -1 */
    uint32_t tag;
};

#define KEEPER_LINK(dir) ((struct keeper_link){ .run_dir = (dir), .sock = -1 })
void keeper_link_done(struct keeper_link *k);

/* The attributes are kept with a sandbox that is made for this claim; one that exists already keeps its own.
 * NULL: none. */
int keeper_claim(struct keeper_link *k, const struct keeper_claim *args, const void *attributes,
                 size_t attributes_len, struct keeper_box *ret, struct cove_err *e);
/* Replaces all attributes of a sandbox. */
int keeper_attributes(struct keeper_link *k, const struct keeper_which *args, const void *bytes,
                      size_t len, struct cove_err *e);
int keeper_retire(struct keeper_link *k, const struct keeper_retire *args, struct cove_err *e);
int keeper_extend(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e);
int keeper_freeze(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e);
/* Sets what this sandbox may reach from now on; replaces what was set before. */
int keeper_network(struct keeper_link *k, const struct keeper_network *args, struct cove_err *e);
int keeper_thaw(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e);
/* Saves a sandbox to the store. Returns when its archive was verified and the sandbox has ended, or at once if
 * it was saved before. COVE_CONFLICT: somebody used it meanwhile, and it goes on. May take minutes. */
int keeper_save(struct keeper_link *k, const struct keeper_which *args, struct cove_err *e);
/* A saved or frozen sandbox runs again, under its id. May take minutes. */
int keeper_wake(struct keeper_link *k, const struct keeper_extend *args, struct keeper_box *ret,
                struct cove_err *e);

/* Snapshots (cove/msg_keeper.h). Capturing waits until the snapshot is whole; the sandbox stands still
 * meanwhile. Each call makes a new snapshot. */
int keeper_capture(struct keeper_link *k, const struct keeper_capture *args,
                   struct keeper_snapshot *ret, struct cove_err *e);
/* The same, with a manifest's lines. */
int keeper_capture_as(struct keeper_link *k, const struct keeper_capture *args,
                      const char *manifest, struct keeper_snapshot *ret, struct cove_err *e);
int keeper_snapshot_tag(struct keeper_link *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e);
/* Non-zero ends the walk. */
typedef int (*keeper_snapshot_fn)(void *arg, const struct keeper_snapshot *s);
bool keeper_snapshot_has_tag(const struct keeper_snapshot *s, const char *tag);
int keeper_snapshots(struct keeper_link *k, const char *tenant, keeper_snapshot_fn each, void *arg,
                     struct cove_err *e);
/* Finds the snapshot that `word` means. 1: found; 0: there is none; -1: the keeper could not be asked. */
int keeper_snapshot_find(struct keeper_link *k, const char *tenant, const char *word,
                         struct keeper_snapshot *ret, struct cove_err *e);
int keeper_snapshot_remove(struct keeper_link *k, const struct keeper_snapshot_name *args,
                           struct cove_err *e);

/* A nonce for an operator's request, and the request itself (cove/operators.h): *ret_fd is a file of
 * ret->bytes bytes with what the command has printed. */
int keeper_operator_nonce(struct keeper_link *k, struct keeper_nonce *ret, struct cove_err *e);
int keeper_operator(struct keeper_link *k, const struct keeper_operator *ask, const char *text,
                    struct keeper_output *ret, int *ret_fd, struct cove_err *e);

/* The archive of a saved sandbox; COVE_CONFLICT: it is in the bucket. The file is the caller's. */
int keeper_saved_archive(struct keeper_link *k, const struct keeper_which *args,
                         struct keeper_archive *ret, int *ret_fd, struct cove_err *e);
/* The commands that were refused in a sandbox lately. An empty list is no failure. */
int keeper_refusals(struct keeper_link *k, const struct keeper_which *args,
                    struct keeper_refusal_list *ret, struct cove_err *e);

struct keeper_audit_entry { /* NULL = "" */
    const char *event;      /* "refused", "exec-denied", "ran" */
    const char *dialect, *tenant, *key, *project, *sandbox, *rule, *form;
    const char *command;  /* its beginning, without secrets: see process/audit_send.h */
    size_t command_bytes; /* of the whole command */
};
int keeper_audit(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e);

/* ------------------------------------------------------------------ the gate */

/* COVE_CONFLICT: the project has a port already; the error's message is that port's number and nothing else. */
int gate_bind(const char *run_dir, const struct gate_bind *args, uint16_t *ret_proxy_port,
              struct cove_err *e);
int gate_access(const char *run_dir, const struct gate_access *args, struct cove_err *e);
/* Traffic to and from each sandbox; sandboxes without any are left out. */
typedef void (*gate_count_fn)(void *arg, const struct gate_count *c);
int gate_counts(const char *run_dir, gate_count_fn each, void *arg, struct cove_err *e);
int gate_unbind(const char *run_dir, const struct gate_unbind *args, struct cove_err *e);

/* ------------------------------------------------------------------ a sandbox */

/*
 * One deadline per call, from connecting or sending to the answer; a listing has one over all its
 * pages. A sandbox that lets it pass is taken for dead: the call fails with COVE_GONE, and
 * box_is_unanswered() tells that from a sandbox that has ended. A caller that sees it should ask that
 * sandbox nothing more, because every further question can cost as much time again.
 */
enum { BOX_ANSWER_MS = 10000 };

struct box_conn { /* one conversation with one init */
    int sock;
    uint32_t tag;
    char *buf;         /* MSG_MAX_BYTES, made when first needed */
    uint64_t until_ms; /* in CLOCK_BOOTTIME: the deadline of a call of several questions; 0: none */
    bool unanswered;   /* one of the calls so far met an init that does not answer */
    uint32_t
        settled; /* after the request of this tag init owed nothing any more, see box_is_settled() */
    uint32_t file_flags; /* FILE_* that every request for a file has besides its own */
};

/* Did the call fail because the init does not answer, or does not read its messages? */
bool box_is_unanswered(const struct cove_err *e);

int box_open(const char *run_dir, const char *id, struct box_conn *ret, struct cove_err *e);
void box_close(struct box_conn *c);
bool box_has_ended(const struct box_conn *c); /* the init has ended */
/* All requests so far are over: init has answered each of them and will send nothing more on account of them. */
bool box_is_settled(const struct box_conn *c);

struct spawn_args {
    const char *user;  /* NULL = root */
    const char *cwd;   /* NULL = the user's home */
    const char *label; /* NULL = none */
    const char *const *argv;
    const char *const *env;      /* NULL-terminated "K=V", or NULL */
    const char *const *base_env; /* the template's, for names that env does not set; NULL = none */
    const char *common_env;      /* "K=V K=V", for names that neither sets; NULL = none */
    const char *note;            /* kept while the process runs, for box_note(); NULL = none */
    uint32_t flags; /* SPAWN_PTY, SPAWN_LOG, SPAWN_TIED, ...; SPAWN_FD_* follow from the fds */
    int stdin_fd, stdout_fd, stderr_fd, filter_fd; /* -1 = none; they stay the caller's */
    uint16_t rows, cols;
    uint32_t context;    /* enum cove_dialect */
    uint32_t timeout_ms; /* after this time init kills it, even if nobody waits; 0 = never */
    uint64_t log_bytes, max_open_files, max_file_bytes;
};

/* *ret_pty gets the master with SPAWN_PTY and no SPAWN_LOG (checked to be a tty), else -1. May be
 * NULL. */
int box_spawn(struct box_conn *c, const struct spawn_args *args, struct box_spawned *ret,
              int *ret_pty, struct cove_err *e);
int box_signal(struct box_conn *c, const struct box_signal *args, const char *label,
               struct cove_err *e);

/*
 * Waits for an event: a message that init sends without being asked. 1: *ret holds it; 0: nothing came within
 * timeout_ms; -1: COVE_GONE when the sandbox is gone. Poll c->sock to wait for an event together with
 * other things.
 */
enum box_event_kind { BOX_EVENT_EXITED = 1, BOX_EVENT_TICK, BOX_EVENT_DENIED };
struct box_event {
    enum box_event_kind kind;
    struct box_exited exited;
    struct box_log_tick tick;
    char text[512]; /* of a denial: valid UTF-8 */
};
int box_next_event(struct box_conn *c, int timeout_ms, struct box_event *ret, struct cove_err *e);

/*
 * Gives init our ends of a command's pipes when background processes of the command still write to them: init
 * reads on, so that they do not die of SIGPIPE when we close. The fds stay the caller's.
 */
int box_drain(struct box_conn *c, const int *fds, size_t fd_count, struct cove_err *e);

/* Asks for the end of a process, which box_next_event() then tells. */
int box_wait(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e);
int box_forget(struct box_conn *c, uint32_t proc, const char *label, struct cove_err *e);
int box_stdin(struct box_conn *c, uint32_t proc, const char *label, bool close_it, int *ret_fd,
              struct cove_err *e);
int box_resize(struct box_conn *c, uint32_t proc, const char *label, uint16_t rows, uint16_t cols,
               struct cove_err *e);
/* The note of a running process, "" if it has none. It is valid until the next call. */
int box_note(struct box_conn *c, uint32_t proc, const char **ret, struct cove_err *e);

/* Listings: `each` is called per entry until it returns non-zero. Pages are fetched as needed. */
typedef int (*box_proc_fn)(void *arg, const struct box_proc *p, const char *label,
                           const char *command);
int box_procs(struct box_conn *c, box_proc_fn each, void *arg, struct cove_err *e);
typedef int (*box_entry_fn)(void *arg, const char *name, const struct box_stat *st,
                            const char *target);
int box_list(struct box_conn *c, const char *user, const char *path, box_entry_fn each, void *arg,
             struct cove_err *e);

int box_log(struct box_conn *c, uint32_t proc, const char *label, struct box_log_opened *ret,
            int *ret_ring_fd, struct cove_err *e);
/* Asks for one BOX_EVENT_TICK when there is more than `pos`, which box_next_event() then tells. */
int box_log_arm(struct box_conn *c, uint32_t proc, uint64_t pos, uint32_t flags,
                struct cove_err *e);

/* Files. An opened one is checked to be a regular file (or a directory, if O_DIRECTORY was asked
 * for). */
int box_file_open(struct box_conn *c, const char *user, const char *path, uint32_t open_flags,
                  uint32_t mode, uint32_t flags, struct box_stat *ret_stat, int *ret_fd,
                  struct cove_err *e);
int box_file_stat(struct box_conn *c, const char *user, const char *path, uint32_t flags,
                  struct box_stat *ret, struct cove_err *e);
/* Does not follow a link: tells about the link itself, with its target ("" if the path is no link). */
int box_file_stat_link(struct box_conn *c, const char *user, const char *path, struct box_stat *ret,
                       char ret_target[MSG_PATH_MAX], struct cove_err *e);
/* BOX_MKDIR, BOX_REMOVE of a single file, BOX_CHMOD, BOX_RENAME (with `to`). */
int box_file_change(struct box_conn *c, uint32_t verb, const char *user, const char *path,
                    const char *to, const struct box_file *args, struct cove_err *e);

/*
 * How long a caller waits for work that a helper of init does. Init itself goes on answering meanwhile, and is asked
 * for a sign of life again and again: only an init that gives none is taken for dead.
 */
struct box_patience {
    uint64_t until_ms;         /* in CLOCK_BOOTTIME: then COVE_TIMEOUT; the work goes on */
    uint64_t answer_ms;        /* the time that init has for a sign of life; 0 = BOX_ANSWER_MS */
    bool (*wanted)(void *arg); /* false: COVE_GONE, and the work goes on; NULL = it is wanted */
    void *arg;
};
/* BOX_REMOVE with its flags. A tree may be large. */
int box_remove(struct box_conn *c, const char *user, const char *path, uint32_t flags,
               const struct box_patience *patience, struct cove_err *e);
/* Marks: pairs that are kept with a file, as extended attributes "user.PREFIX.KEY". box_mark() replaces all of
 * them; where the file system has no extended attributes nothing is kept, and that is no error. */
enum { BOX_MARKS_MAX = 64 };
int box_mark(struct box_conn *c, const char *path, const char *prefix, const struct pair *pairs,
             size_t count, struct cove_err *e);
/* Names and values are valid until the next call. */
int box_marks(struct box_conn *c, const char *path, const char *prefix,
              struct pair ret[BOX_MARKS_MAX], size_t *ret_count, struct cove_err *e);
int box_watch(struct box_conn *c, const char *user, const char *path, uint32_t mask, int inotify_fd,
              int32_t *ret_wd, int *ret_inotify_fd, struct cove_err *e);
/* Watches that init keeps under a name, so that any worker can go on with them (cove/msg_box.h). The first
 * call for a name passes the inotify descriptor; further calls pass -1. */
int box_watch_keep(struct box_conn *c, const char *name, int inotify_fd, int32_t wd,
                   const char *path, struct cove_err *e);
typedef int (*box_kept_fn)(void *arg, int32_t wd, const char *path);
int box_watch_kept(struct box_conn *c, const char *name, box_kept_fn each, void *arg,
                   int *ret_inotify_fd, struct cove_err *e);
int box_watch_drop(struct box_conn *c, const char *name, struct cove_err *e);
int box_port(struct box_conn *c, uint16_t port, int *ret_sock, struct cove_err *e);

#endif
