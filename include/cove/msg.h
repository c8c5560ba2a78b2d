/*
 * Messages between processes: one SEQPACKET packet is one message, file descriptors ride along.
 *
 * Two protocols share this framing:
 *   BOX_*     worker (or keeper) -> init of one sandbox, on the sandbox's control socket
 *   KEEPER_*  worker -> keeper
 * A peer that sends what the receiver's table does not allow (type, size, number of fds) is cut
 * off. Integers are in host order: both ends are on one machine. Strings travel in the tail, each
 * with its terminating NUL, in the order the comment of the message gives.
 *
 * A connection to init is one conversation: the worker sends a request with a tag of its choosing
 * and gets one answer with the same tag: the type named after the arrow, or MSG_ERROR with a
 * cove_err. What init sends of its own accord (BOX_EXITED, BOX_LOG_TICK, ...) carries the tag of
 * the request that asked for it. When the connection closes, what was SPAWN_TIED to it is killed,
 * all else goes on.
 */
#ifndef COVE_MSG_H
#define COVE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/end.h"
#include "cove/err.h"
#include "cove/netlist.h"

#define MSG_MAGIC 0x31564f43u /* "COV1": raise the digit when a layout below changes */

enum {
    MSG_MAX_BYTES = 256 * 1024, /* head + body + tail; a socket's send buffer must hold it */
    MSG_MAX_FDS = 32,           /* the layers of a sandbox are handed over in one message */
    MSG_PATH_MAX = 4096,
};

struct msg_head {
    uint32_t magic;
    uint32_t type; /* enum msg_type */
    uint32_t size; /* of the whole packet */
    uint32_t tag;  /* chosen by whoever asks, repeated in the answer */
};

enum msg_type {
    MSG_ERROR = 1, /* struct cove_err */
    MSG_DONE,      /* no body: it is done */

    /* --- to init --- */
    BOX_PING = 100, /*                          -> MSG_DONE */
    BOX_SPAWN,  /* struct box_spawn         -> BOX_SPAWNED (+ pty master fd), later BOX_EXITED */
    BOX_SIGNAL, /* struct box_signal, tail: label          -> MSG_DONE */
    BOX_WAIT,   /* struct box_proc_ref, tail: label        -> BOX_EXITED, at once or later */
    BOX_PROCS,  /* struct box_procs         -> BOX_PROC_LIST, a page of it */
    BOX_FORGET, /* struct box_proc_ref, tail: label        -> MSG_DONE; a finished process only */
    BOX_STDIN, /* struct box_stdin, tail: label           -> MSG_DONE (+ write end, unless close) */
    BOX_RESIZE,  /* struct box_resize, tail: label          -> MSG_DONE; pty only */
    BOX_LOG,     /* struct box_proc_ref, tail: label        -> BOX_LOG_OPENED + ring fd */
    BOX_LOG_ARM, /* struct box_log_arm       -> one BOX_LOG_TICK once there is more than `pos` */
    BOX_OPEN,    /* struct box_file, tail: user, path       -> BOX_STATED + fd */
    BOX_STAT,    /* struct box_file, tail: user, path       -> BOX_STATED */
    BOX_LIST,    /* struct box_list, tail: user, path       -> BOX_ENTRIES, a page of it */
    BOX_MKDIR,   /* struct box_file, tail: user, path       -> MSG_DONE */
    BOX_RENAME,  /* struct box_file, tail: user, from, to   -> MSG_DONE */
    BOX_REMOVE,  /* struct box_file, tail: user, path       -> MSG_DONE */
    BOX_CHMOD,   /* struct box_file, tail: user, path       -> MSG_DONE */
    BOX_WATCH,   /* struct box_watch, tail: user, path      -> BOX_WATCHED (+ inotify fd, if new) */
    BOX_CONNECT, /* struct box_connect       -> MSG_DONE + connected socket */
    BOX_DRAIN,   /* no body + 1-2 pipe ends: read them to their end and throw it away -> MSG_DONE */
    BOX_JUDGE,   /* no body: ask me about every execve      -> MSG_DONE, then BOX_EXEC_ASK */
    BOX_EXEC_ANSWER, /* struct box_exec_answer, tail: reason    -> no answer */
    BOX_WATCH_KEEP,  /* struct box_kept_dir, tail: name, path (+ inotify fd) -> MSG_DONE */
    BOX_WATCH_KEPT,  /* struct box_list, tail: name            -> BOX_KEPT_DIRS + inotify fd */
    BOX_WATCH_DROP,  /* no body, tail: name                    -> MSG_DONE */
    BOX_NOTE,        /* struct box_proc_ref, tail: label        -> BOX_NOTED */
    /* Extended attributes "user.PREFIX.KEY" of a file. MARK: `mode` pairs replace all that it has. */
    BOX_MARK,  /* struct box_file, tail: user, path, prefix, key, value... -> MSG_DONE */
    BOX_MARKS, /* struct box_file, tail: user, path, prefix -> BOX_MARKED */
    BOX_INPUT, /* struct box_input, tail: bytes           -> BOX_TAKEN; pipe or pty */

    /* --- from init --- */
    BOX_SPAWNED = 200, /* struct box_spawned */
    BOX_EXITED,        /* struct box_exited */
    BOX_PROC_LIST,     /* struct box_page, tail: struct box_proc + label + command, repeated */
    BOX_LOG_OPENED,    /* struct box_log_opened + ring fd */
    BOX_LOG_TICK,      /* struct box_log_tick */
    BOX_STATED,        /* struct box_stat, tail: symlink target ("" if it is none) */
    BOX_ENTRIES,     /* struct box_page, tail: struct box_stat + name + symlink target, repeated */
    BOX_WATCHED,     /* struct box_watched (+ inotify fd) */
    BOX_EXEC_ASK,    /* struct box_exec_ask, tail: argv strings; or a file with them */
    BOX_EXEC_DENIED, /* struct box_proc_ref, tail: what was refused and why; to the spawner */
    BOX_KEPT_DIRS,   /* struct box_page, tail: struct box_kept_dir + path + "", repeated */
    BOX_MARKED,      /* no body, tail: key, value, ... */
    BOX_NOTED,       /* no body, tail: the note of a process, "" if it has none or has ended */
    BOX_TAKEN,       /* struct box_taken */

    /* --- worker to keeper --- */
    KEEPER_CLAIM = 300, /* struct keeper_claim (+ attributes) -> KEEPER_BOX */
    KEEPER_RETIRE,      /* struct keeper_retire -> MSG_DONE once it is dead; idempotent */
    KEEPER_EXTEND,      /* struct keeper_extend -> MSG_DONE */
    KEEPER_FREEZE,      /* struct keeper_extend -> MSG_DONE */
    KEEPER_THAW,        /* struct keeper_extend -> MSG_DONE */
    KEEPER_BOX,         /* struct keeper_box */
    KEEPER_NETWORK,     /* struct keeper_network -> MSG_DONE once it holds */
    /* struct keeper_audit, tail: event, dialect, tenant, key, project, sandbox, rule, form, command
     * -> MSG_DONE */
    KEEPER_AUDIT,
    KEEPER_ATTRIBUTES, /* struct keeper_which + new attributes -> MSG_DONE */
    /* struct keeper_capture (+ a manifest) -> KEEPER_SNAPSHOT, once it is whole */
    KEEPER_CAPTURE,
    KEEPER_SNAPSHOT,        /* struct keeper_snapshot */
    KEEPER_SNAPSHOTS,       /* struct keeper_snapshots -> KEEPER_SNAPSHOT_LIST, a page of it */
    KEEPER_SNAPSHOT_LIST,   /* struct keeper_snapshot_list */
    KEEPER_SNAPSHOT_REMOVE, /* struct keeper_snapshot_name -> MSG_DONE, or COVE_NOT_FOUND */
    KEEPER_SNAPSHOT_TAG,    /* struct keeper_snapshot_tag -> KEEPER_SNAPSHOT, or COVE_NOT_FOUND */
    KEEPER_SAVE,            /* struct keeper_which -> MSG_DONE once it is saved and has ended */
    KEEPER_WAKE,            /* struct keeper_extend -> KEEPER_BOX once a saved one runs again */
    KEEPER_OPERATOR_NONCE,  /* no body -> KEEPER_NONCE, for an operator's next request */
    KEEPER_NONCE,           /* struct keeper_nonce */
    KEEPER_OPERATOR,        /* struct keeper_operator, tail: text -> KEEPER_OUTPUT */
    KEEPER_OUTPUT,          /* struct keeper_output + a sealed file with what `cove` printed */
    KEEPER_REFUSALS,        /* struct keeper_which -> KEEPER_REFUSAL_LIST */
    KEEPER_REFUSAL_LIST,    /* struct keeper_refusal_list */
    KEEPER_SAVED_ARCHIVE,   /* struct keeper_which -> KEEPER_ARCHIVE of a saved sandbox */
    KEEPER_ARCHIVE,         /* struct keeper_archive + the file, for reading */

    /* --- keeper to judge --- */
    JUDGE_BOX = 400, /* struct judge_box: this sandbox runs now, attach to it */

    /* --- worker to gate --- */
    GATE_BIND = 500, /* struct gate_bind -> GATE_BOUND, or COVE_CONFLICT with the bound port as its
                        message */
    GATE_UNBIND,     /* struct gate_unbind -> MSG_DONE; having none is fine */
    GATE_BOUND,      /* struct gate_bound */
    /* keeper to gate, at its start: the socket that nginx connects to, then a connection to the gate
       before it, if there is one */
    GATE_BEFORE,
    GATE_HOSTS,
    GATE_ACCESS,  /* struct gate_access -> MSG_DONE; from a worker */
    GATE_COUNTS,  /* struct gate_counts_ask -> GATE_COUNTED; from a worker, or `cove` */
    GATE_COUNTED, /* struct gate_counted, tail: struct gate_count, repeated */
    /* gate to the one before it, whose keeper is gone: take over. -> MSG_DONE */
    GATE_SUCCEED,
    GATE_LISTENER, /* struct gate_listener -> MSG_DONE with the socket, which is the asker's now */

    /* --- worker to cove-auth, one question a connection --- */
    AUTH_ASK = 600, /* tail: user, password, address of the client -> AUTH_VERDICT */
    AUTH_VERDICT,   /* struct auth_verdict */

    /* --- worker to cove-fetch, one fetch a connection --- */
    FETCH_ASK = 650, /* struct fetch_ask + the file; tail: the URL -> FETCH_DONE */
    FETCH_DONE,      /* struct fetch_done */

    /* --- keeper to resolver --- */
    RESOLVER_RULES = 700, /* struct resolver_rules: these hold now */
    RESOLVER_BOX,         /* struct resolver_box + UDP socket, listening TCP socket */
    RESOLVER_GONE,        /* struct resolver_box */

    /* --- keeper to a job of the saver (cove/saved.h) --- */
    SAVER_ORDER =
        800,      /* struct saver_order (+ files of the sandbox) -> SAVER_REPORT or MSG_ERROR */
    SAVER_REPORT, /* struct saver_report */

    /* --- keeper, or `cove store`, to cove-bucket (cove/bucket.h) --- */
    BUCKET_ORDER =
        850,       /* struct bucket_order + credentials (+ notes) -> BUCKET_REPORT or MSG_ERROR */
    BUCKET_REPORT, /* struct bucket_report */

    /* --- resolver to keeper: all that it can make root do --- */
    RESOLVER_PIN = 802, /* struct resolver_pin -> MSG_DONE, or MSG_ERROR */

    /* --- worker to cove-builder (cove/build.h) --- */
    BUILD_NEW = 900, /* struct build_new -> BUILD_TOLD */
    BUILD_START,     /* struct build_which + the order -> MSG_DONE */
    BUILD_ASK,       /* struct build_ask -> BUILD_TOLD */
    BUILD_TOLD,      /* struct build_told, tail: log entries */
    BUILD_LIST,      /* struct build_which, `id` is a name or "" -> BUILD_LISTED */
    BUILD_LISTED,    /* struct build_listed */
    BUILD_FILE,      /* struct build_file -> MSG_DONE: it is there; or COVE_NOT_FOUND */
    BUILD_UPLOAD,    /* struct build_file -> MSG_DONE + a file to write; then BUILD_UPLOADED */
    BUILD_UPLOADED,  /* no body: all of it is written -> MSG_DONE */
    BUILD_FORGET,    /* struct build_which, `id` is a name: its builds end and go -> MSG_DONE */

    /* --- keeper to starter --- */
    STARTER_BOX = 800, /* struct starter_box: run what its template says, then STARTER_DONE */

    /* --- starter to keeper: all that it can make root do --- */
    STARTER_DONE, /* struct starter_done -> MSG_DONE */
};

/* ------------------------------------------------------------------ processes */

enum box_spawn_flags {
    SPAWN_FD_STDIN = 1 << 0,  /* fds follow in this order: stdin, stdout, stderr, filter; */
    SPAWN_FD_STDOUT = 1 << 1, /* what has no fd is /dev/null, or the log ring (SPAWN_LOG) */
    SPAWN_FD_STDERR = 1 << 2,
    SPAWN_FD_FILTER = 1 << 3, /* a file of struct sock_filter to install before execve */
    SPAWN_PTY = 1 << 4,    /* stdin, stdout and stderr are a new pty; its master is in the answer */
    SPAWN_LOG = 1 << 5,    /* init keeps the output in a ring that outlives every worker */
    SPAWN_TIED = 1 << 6,   /* the connection's end is the process tree's end */
    SPAWN_STDIN = 1 << 7,  /* init keeps a stdin pipe; BOX_STDIN hands out its write end */
    SPAWN_NOTIFY = 1 << 8, /* the filter notifies execve: ask the judge */
    SPAWN_RECORD = 1 << 9, /* keep a record after the end, for BOX_PROCS and BOX_WAIT */
    SPAWN_NOTE = 1 << 10,  /* the last string of the tail is a note: BOX_NOTE tells it again */
};

struct box_spawn { /* tail: user, cwd ("" = home), label, argv..., env ("K=V")..., note */
    uint32_t flags;
    uint32_t argc, envc;
    uint16_t rows, cols;     /* of the pty */
    uint32_t context;        /* the dialect (cove/dialect.h), repeated in BOX_EXEC_ASK */
    uint32_t timeout_ms;     /* then init kills its tree (END_DEADLINE), whoever waits; 0 = none */
    uint64_t log_bytes;      /* capacity of the ring, with SPAWN_LOG */
    uint64_t max_open_files; /* rlimits, 0 = as init has them */
    uint64_t max_file_bytes;
};

struct box_proc_ref {
    uint32_t proc; /* init's number for it, never reused; 0: the one with the label in the tail */
    uint32_t reserved;
};

enum box_signal_scope {
    SIGNAL_PROCESS,
    SIGNAL_GROUP,
    SIGNAL_TREE /* all it ever started; SIGKILL only */
};

struct box_signal {
    uint32_t proc;
    uint32_t scope;
    int32_t signo;
    uint32_t cause; /* enum end_cause to report when this ends it: deadline, output, killed... */
    uint64_t limit; /* the figure that goes with the cause */
};

struct box_spawned {
    uint32_t proc;
    uint32_t pid; /* as seen inside */
};

struct box_exited {
    uint32_t proc;
    uint32_t pid;
    struct cove_end end;
};

struct box_procs {
    uint32_t after; /* processes with a number above this one */
    uint32_t reserved;
};

struct box_page {
    uint32_t count; /* entries in the tail */
    uint32_t more;  /* 1: ask again, with `next` */
    uint64_t next;
};

struct box_proc {
    uint32_t size; /* of this entry with its strings, rounded up to 8 */
    uint32_t proc;
    uint32_t pid;
    uint32_t running;
    uint32_t flags; /* enum box_spawn_flags it was started with */
    uint32_t reserved;
    uint64_t cpu_us;       /* of its whole tree, while it can be known */
    uint64_t memory_bytes; /* resident, of the process itself */
    struct cove_end end;   /* started_unix_ms is always set, the rest when it is not running */
};

struct box_stdin {
    uint32_t proc;
    uint32_t close; /* 1: no more input; the process reads end of file */
};

/*
 * Input that init writes itself, as much as there is room for. For the gate, which must never wait: a
 * descriptor of a terminal can be made to block whoever touches it, by those who hold its other copies.
 */
enum { BOX_INPUT_MAX = 32 * 1024 };

struct box_input {
    uint32_t proc;
    uint32_t reserved;
};

struct box_taken {
    uint32_t proc;
    uint32_t bytes; /* 0: there is no room now, try again */
};

struct box_resize {
    uint32_t proc;
    uint16_t rows, cols;
};

/* ------------------------------------------------------------------ log rings: see cove/ring.h */

struct box_log_opened {
    uint32_t proc;
    uint32_t running;
};

enum box_log_arm_flags {
    /* This connection reads everything: until it closes, what lies at `held` and after it is not
     * overwritten, and the process waits instead. One connection at a time; the last one counts. */
    LOG_ARM_HOLD = 1 << 0,
};

struct box_log_arm {
    uint32_t proc;
    uint32_t flags; /* enum box_log_arm_flags */
    uint64_t pos;   /* the tick comes when there is more than this */
    uint64_t held;  /* with LOG_ARM_HOLD */
};

struct box_log_tick {
    uint32_t proc;
    uint32_t running; /* 0: nothing more will come after `end` */
    uint64_t end;
};

/* ------------------------------------------------------------------ files */

enum box_file_flags {
    FILE_NOFOLLOW = 1 << 0,   /* STAT: the link itself */
    FILE_PARENTS = 1 << 1,    /* MKDIR, and OPEN with O_CREAT: make missing parents, 0755 */
    FILE_RECURSIVE = 1 << 2,  /* REMOVE: a directory with all in it */
    FILE_DIR = 1 << 3,        /* REMOVE: must be a directory; without it, must not be one */
    FILE_SAME_AS = 1 << 4,    /* RENAME: take over mode and owner of what is replaced */
    FILE_NOREPLACE = 1 << 5,  /* RENAME: fail with COVE_CONFLICT if the target is there */
    FILE_PRIVILEGED = 1 << 6, /* OPEN, STAT, MKDIR, RENAME, CHMOD: no permission of the user's is
                                 checked; what is made belongs to the user all the same */
};

struct box_file {
    uint32_t flags;
    uint32_t open_flags; /* O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
                            O_DIRECTORY */
    uint32_t mode;
    uint32_t reserved;
};

struct box_list {
    uint64_t from; /* 0, or box_page.next of the page before */
};

struct box_stat {
    uint32_t size_of_entry; /* in a list: of this entry with its strings, rounded up to 8 */
    uint32_t mode;
    uint32_t uid, gid; /* as seen inside */
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t inode;
};

struct box_watch { /* an inotify fd that comes along gets the watch, else a new one is made */
    uint32_t mask;
    uint32_t reserved;
};

struct box_watched {
    int32_t wd;
    uint32_t reserved;
};

/*
 * A watch that outlives the worker that made it: init keeps the inotify descriptor under a name, and
 * with it the directory that each of its watches is for. An inotify fd comes with the first one.
 */
struct box_kept_dir {
    uint32_t size; /* in BOX_KEPT_DIRS: of this entry with its strings, rounded up to 8 */
    int32_t wd;
};

struct box_connect {
    uint16_t port;
    uint16_t reserved[3];
};

/* ------------------------------------------------------------------ exec-time policy */

struct box_exec_ask {
    uint64_t ask;
    uint32_t proc; /* whose tree it is in, 0 if unknown */
    uint32_t pid;
    uint32_t argc;
    uint32_t truncated; /* 1: argv was longer than what is here */
    uint32_t context;   /* of the spawn */
    uint32_t reserved;
};

struct box_exec_answer {
    uint64_t ask;
    uint32_t allow;
    uint32_t refusals_max; /* so many refusals end the command that they are of; 0 = never */
};

/* ------------------------------------------------------------------ keeper */

enum {
    COVE_TENANT_MAX = 64,
    COVE_PROJECT_MAX = 132,
    COVE_TEMPLATE_MAX = 128 /* TENANT/NAME */
};                          /* sizes, with the NUL */

/*
 * Attributes: bytes that a dialect keeps with a sandbox, in a sealed memfd beside the message. The
 * keeper copies them, unread, to <run_dir>/attributes/ID, where workers can read them.
 */
enum { COVE_ATTRIBUTES_MAX = 64 * 1024, COVE_KEY_ID_MAX = 24 };

struct keeper_audit {
    uint64_t
        command_bytes; /* of the whole command; its beginning, without secrets, is in the tail */
};

enum keeper_claim_flags {
    CLAIM_OWN_PROJECT = 1 << 0, /* always a new sandbox; its id is its project, `project` is "" */
    CLAIM_END_FREEZES = 1 << 1, /* at the end of its lifetime it is frozen instead of killed */
};

struct keeper_claim {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char template[COVE_TEMPLATE_MAX]; /* or a snapshot's name or id; "" = the configured default */
    char key[COVE_KEY_ID_MAX];        /* public name of the caller's key; "" = none */
    uint32_t flags;                   /* enum keeper_claim_flags */
    uint32_t dialect;                 /* enum cove_dialect of the caller */
    uint32_t key_sandboxes;           /* how many sandboxes the key may have; 0 = as the tenant */
    uint32_t keep_ended_s; /* a record of the sandbox is kept so long after its end; 0 = none */
    uint32_t reserved;
    uint64_t reuse_ms;    /* 0 = as configured */
    uint64_t lifetime_ms; /* 0 = as configured */
};

struct keeper_which {
    char tenant[COVE_TENANT_MAX];
    char id[24]; /* the sandbox's id */
};

struct keeper_retire { /* id "" : the project's current one and those of it that age */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    char project[COVE_PROJECT_MAX];
};

enum keeper_extend_flags {
    EXTEND_ONLY_LONGER = 1 << 0, /* a later end than this one stays */
    EXTEND_END_FREEZES = 1 << 1, /* what happens at the end, from now on. Neither: as it was */
    EXTEND_END_KILLS = 1 << 2,
    EXTEND_REUSE = 1 << 3, /* its project goes on using it until then, too */
};

/*
 * A new end for a sandbox, earlier or later than the one it has. With KEEPER_FREEZE the end of the
 * frozen sandbox, with KEEPER_THAW the end of the one that runs again.
 */
struct keeper_extend {
    char tenant[COVE_TENANT_MAX];
    char id[24];
    uint64_t lifetime_ms; /* from now; 0 = FREEZE and THAW: as it is */
    uint32_t flags;       /* enum keeper_extend_flags */
    uint32_t reserved;
};

struct keeper_network { /* can only take away from what the server allows */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    struct net_rules rules;
};

struct auth_verdict {
    uint32_t yes;
    uint32_t wait_ms; /* of a no: PAM was not asked, there were too many failures; try after this */
};

enum fetch_verb { FETCH_DOWNLOAD, FETCH_UPLOAD, FETCH_UPLOAD_TEXT };
enum { FETCH_URL_MAX = 8192 };

struct fetch_ask {
    char tenant[COVE_TENANT_MAX];
    uint32_t verb; /* enum fetch_verb */
    uint32_t reserved;
    uint64_t most; /* bytes of a download; what the helper is configured with holds too */
    uint64_t size; /* of the file that is uploaded */
};

struct fetch_done {
    uint64_t bytes;
    uint32_t http_status;
    uint32_t reserved;
};

struct judge_box {
    char id[24];
    uint32_t index; /* its slot in shared memory */
    uint32_t reserved;
};

/*
 * Snapshots: the files of a sandbox at one moment, which new sandboxes can be made of. A snapshot
 * belongs to a tenant, who finds it by its id or its name. Without a name it is found by its id.
 *
 * Several snapshots may share a name, each with tags of its own: NAME:TAG is one of them, and NAME alone
 * is NAME:default. A snapshot that has lost its last tag goes. Names that begin with a dot are cove's own:
 * COVE_BUILD_CACHE has the results of build steps, the oldest of which go by themselves.
 *
 * A snapshot may have a manifest (cove/manifest.h), which then tells how commands run in its sandboxes
 * and what starts in them. What the template below says of limits, policy and network holds all the same.
 */
#define COVE_TAG_DEFAULT "default"
#define COVE_BUILD_CACHE ".build-cache"
enum { COVE_TAG_MAX = 64, COVE_TAGS_MAX = 512 };

enum keeper_capture_flags {
    /* For a fork: it goes by itself once no sandbox stands on it, a minute after it was made at the
     * earliest. It is not listed and cannot have a name. */
    CAPTURE_PASSING = 1 << 0,
    /* An image: the files below COVE_IMAGE_DIR are the whole root of sandboxes that are made of this
     * snapshot, and nothing of the template's files lies below them. The captured sandbox must be one
     * of a template, not of a snapshot. */
    CAPTURE_IMAGE = 1 << 1,
};

#define COVE_IMAGE_DIR ".image" /* in the root of a sandbox that fetches an image */

struct keeper_capture {
    char tenant[COVE_TENANT_MAX];
    char id[24]; /* of the sandbox */
    char name
        [COVE_TEMPLATE_MAX]; /* "" = none. A snapshot that has this name and tag loses the tag */
    char tag[COVE_TAG_MAX];  /* "" = default */
    uint32_t flags;          /* enum keeper_capture_flags */
    uint32_t reserved;
};

struct keeper_snapshot {
    char id[24];
    char tenant[COVE_TENANT_MAX];
    char name[COVE_TEMPLATE_MAX];     /* "" = none */
    char sandbox[24];                 /* that it was taken of; it may be gone */
    char template[COVE_TEMPLATE_MAX]; /* that this sandbox was made of, at the bottom of all */
    uint64_t created_unix_ms;
    uint64_t bytes; /* that count as the tenant's */
    uint32_t flags; /* enum keeper_capture_flags */
    uint32_t reserved;
    char tags[COVE_TAGS_MAX]; /* separated by spaces; "" if it has no name */
    char build[40];           /* that made it; "" = none did */
};

enum { KEEPER_SNAPSHOT_PAGE = 32 };

struct keeper_snapshots {
    char tenant[COVE_TENANT_MAX]; /* "" = of all */
    uint64_t from;                /* 0, or box_page.next of the page before */
};

struct keeper_snapshot_list {
    struct box_page head;
    struct keeper_snapshot items[KEEPER_SNAPSHOT_PAGE]; /* head.count of them */
};

struct keeper_snapshot_name {
    char tenant[COVE_TENANT_MAX];
    char name[COVE_TEMPLATE_MAX]; /* or id */
};

/* The last commands that were refused in one sandbox, the newest first. */
enum { KEEPER_REFUSALS_MAX = 8 };

struct keeper_refusal {
    uint64_t unix_ms;
    char event[16]; /* "refused", "exec-denied" */
    char rule[64], form[24];
    char command[144]; /* its beginning, without secrets */
};

struct keeper_refusal_list {
    uint32_t count, reserved;
    struct keeper_refusal items[KEEPER_REFUSALS_MAX];
};

/* A request that an operator has signed (cove/operators.h); the tail is the text that was signed. */
enum { KEEPER_NONCE_MAX = 128 };

struct keeper_nonce {
    char nonce[KEEPER_NONCE_MAX];
};

struct keeper_operator {
    char name[64];
    unsigned char signature[64];
};

struct keeper_archive {
    uint64_t bytes;
    uint32_t encrypted; /* 1: by age */
    uint32_t reserved;
};

struct keeper_output {
    uint32_t exit; /* 0, or 1: the answer is no (a broken chain, a failed check) */
    uint32_t reserved;
    uint64_t bytes;
};

/* A name and a tag for a snapshot, which keeps its other tags; whichever had that tag loses it. A
 * snapshot that would have gone by itself (CAPTURE_PASSING) stays from now on. With `remove`, the one
 * that has this tag loses it. */
struct keeper_snapshot_tag {
    char tenant[COVE_TENANT_MAX];
    char which[COVE_TEMPLATE_MAX]; /* id, NAME or NAME:TAG; with `remove`: not used */
    char name[COVE_TEMPLATE_MAX];
    char tag[COVE_TAG_MAX];
    char build[40]; /* that made it; "" = as it was */
    uint32_t remove;
    uint32_t reserved;
};

struct keeper_box {
    char id[24];
    uint32_t index, generation; /* its slot in shared memory */
    uint32_t created;           /* 1: made (or taken from the pool) for this claim */
    uint32_t reserved;
};

/* ------------------------------------------------------------------ resolver */

#define RESOLVER_ALL UINT32_MAX

struct resolver_rules {
    uint32_t slot; /* whose: RESOLVER_ALL = the server's */
    uint32_t generation;
    uint32_t stage; /* enum net_stage, of a sandbox's */
    uint32_t reserved;
    struct net_rules rules;
    char upstreams[256]; /* RESOLVER_ALL: addresses of whom to ask, separated by spaces */
};

struct resolver_box {
    uint32_t slot, generation;
};

struct starter_box {
    char id[24];
    char template[COVE_TEMPLATE_MAX];
    char snapshot[24]; /* whose manifest holds instead of the template's, if it has one */
    char tenant[COVE_TENANT_MAX]; /* "" = it is for the pool */
    uint32_t index, generation;
    uint64_t log_max_bytes, open_files_max, file_max_bytes; /* of what is started */
};

struct starter_done {
    char id[24];
    uint32_t index, generation;
    struct cove_err err; /* COVE_OK: the sandbox may be handed out */
};

struct resolver_pin { /* let this sandbox reach that address, for so long */
    uint32_t slot, generation;
    uint32_t family; /* AF_INET, AF_INET6 */
    uint32_t seconds;
    uint8_t addr[16];
};

/* ------------------------------------------------------------------ gate */

struct gate_bind {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char id[24]; /* the sandbox's */
    uint16_t port;
    uint16_t proxy_port; /* listen on this one; 0 = the next free one of the range */
};

struct gate_unbind {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
};

enum gate_access_word { GATE_ACCESS_DEFAULT, GATE_ACCESS_PUBLIC, GATE_ACCESS_PRIVATE };

struct gate_access { /* who may reach this port by host name, from now on */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    uint16_t port;
    uint16_t word; /* enum gate_access_word */
};

/* Traffic of sandboxes since the gate knows them, a page of it: asks for slots of the shared table from
 * `first` on. */
enum { GATE_COUNTS_PAGE = 512 };

struct gate_counts_ask {
    uint32_t first, reserved;
};

struct gate_counted {
    uint32_t count; /* entries in the tail */
    uint32_t next;  /* ask again from here; 0: that was all */
};

struct gate_count {
    char id[24];
    uint32_t open, reserved; /* connections now */
    uint64_t connections, bytes_in, bytes_out;
    uint64_t rate_in, rate_out; /* bytes per second, lately */
};

struct gate_listener {
    uint32_t slot, serial; /* of the binding, in the file that both know */
};

struct gate_bound {
    uint16_t proxy_port; /* on this machine */
    uint16_t reserved;
};

/* ------------------------------------------------------------------ framing (base/msg.c) */

struct msg {
    struct msg_head head;
    const void *body; /* in the caller's buffer; NULL if the packet ended with the head */
    size_t body_len;  /* body and tail together */
    int fds[MSG_MAX_FDS];
    size_t fd_count;
};

/* What a receiver takes: the first row whose type fits decides. Rows end with type 0. */
struct msg_rule {
    uint32_t type;
    size_t min_body; /* the fixed struct */
    size_t max_tail; /* 0: exactly the struct */
    unsigned min_fds, max_fds;
};

/* Make room in a socket for the longest message; once per socket, by both sides. */
void msg_prepare_socket(int sock);

/*
 * The process that connected to a unix socket; 0 if the kernel does not say. Whoever listens for workers
 * gives one process no more than half of its places, so that a worker that was taken over, which cannot
 * fork, leaves room for the others.
 */
pid_t msg_peer(int sock);

/* Send one message. body may be NULL; fds stay the caller's. COVE_GONE when the peer has closed,
   COVE_BUSY when flags has MSG_DONTWAIT and the peer's queue is full. */
int msg_send(int sock, uint32_t type, uint32_t tag, const void *body, size_t body_len,
             const void *tail, size_t tail_len, const int *fds, size_t fd_count, int flags,
             struct cove_err *e);

/*
 * Receive one message into buf and check it against rules. 1: a message; 0: the peer has closed;
 * -1: error (COVE_BUSY: nothing there and MSG_DONTWAIT; COVE_INVALID: not a message we take: cut
 * the peer off). On success msg->fds are the caller's to close (msg_close_fds); they are CLOEXEC.
 */
int msg_recv(int sock, void *buf, size_t buf_size, const struct msg_rule *rules, int flags,
             struct msg *ret, struct cove_err *e);
void msg_close_fds(struct msg *m);
/* Raises the error that a MSG_ERROR carries, with its text made safe to print. Returns -1; e may be NULL. */
int msg_raise(const struct msg *m, struct cove_err *e);

/* Walk the strings of a tail: returns the string at *at and moves on, or NULL when there is none
   left or the NUL is missing. */
const char *msg_next_str(const char **at, const char *end);

#endif
