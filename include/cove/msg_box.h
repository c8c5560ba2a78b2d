/*
 * Messages to the init of a sandbox, on the sandbox's control socket, and its answers.
 *
 * A connection to init is one conversation: the worker sends a request with a tag of its choosing
 * and gets one answer with the same tag: the type named after the arrow, or MSG_ERROR with a
 * cove_err. What init sends of its own accord (BOX_EXITED, BOX_LOG_TICK, ...) carries the tag of
 * the request that asked for it. When the connection closes, processes that were SPAWN_TIED to it are
 * killed; all others go on.
 */
#ifndef COVE_MSG_BOX_H
#define COVE_MSG_BOX_H

#include "cove/end.h"
#include "cove/msg.h"

enum box_msg {
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
    BOX_JUDGE,   /* no body: the judge wants BOX_EXEC_ASK for every execve -> MSG_DONE */
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
};

/* ------------------------------------------------------------------ processes */

enum box_spawn_flags {
    SPAWN_FD_STDIN = 1 << 0,  /* fds follow in this order: stdin, stdout, stderr, filter; */
    SPAWN_FD_STDOUT = 1 << 1, /* a stream without an fd is /dev/null, or the log ring (SPAWN_LOG) */
    SPAWN_FD_STDERR = 1 << 2,
    SPAWN_FD_FILTER = 1 << 3, /* a file of struct sock_filter to install before execve */
    SPAWN_PTY = 1 << 4,    /* stdin, stdout and stderr are a new pty; its master is in the answer */
    SPAWN_LOG = 1 << 5,    /* init keeps the output in a ring that outlives every worker */
    SPAWN_TIED = 1 << 6,   /* the process tree is killed when the connection closes */
    SPAWN_STDIN = 1 << 7,  /* init keeps a stdin pipe; BOX_STDIN hands out its write end */
    SPAWN_NOTIFY = 1 << 8, /* the filter notifies execve: ask the judge */
    SPAWN_RECORD = 1 << 9, /* keep a record after the end, for BOX_PROCS and BOX_WAIT */
    SPAWN_NOTE = 1 << 10,  /* the last string of the tail is a note, for BOX_NOTE */
    SPAWN_HOLD = 1 << 11,  /* keep all output until the starter reads it (LOG_ARM_HOLD) */
};

struct box_spawn { /* tail: user, cwd ("" = home), label, argv..., env ("K=V")..., note */
    uint32_t flags;
    uint32_t argc, envc;
    uint16_t rows, cols;     /* of the pty */
    uint32_t context;        /* the dialect (cove/dialect.h), repeated in BOX_EXEC_ASK */
    uint32_t timeout_ms;     /* after this init kills its tree (END_DEADLINE); 0 = none */
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
    SIGNAL_TREE /* the process and all its descendants; SIGKILL only */
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
 * Input that init writes itself, as much as there is room for. It is for the gate, which must never wait: a
 * process in the sandbox that holds a copy of a terminal's descriptor could make a write to it block.
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
    /* This connection reads everything: until it closes, output at `held` and after it is not overwritten;
     * the process waits instead. One connection can hold at a time: the last one that asked. */
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
    FILE_NOFOLLOW = 1 << 0,   /* STAT: tell about a link itself */
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
    uint32_t refusals_max; /* a command ends after this many refusals; 0 = never */
};

#endif
