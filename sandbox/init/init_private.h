/* What the files of init share. Reading order: init.c, conn.c, spawn.c, exec.c, start.c, proc.c,
   then any. */
#ifndef SANDBOX_INIT_PRIVATE_H
#define SANDBOX_INIT_PRIVATE_H

#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cove/err.h"
#include "cove/init_fds.h"
#include "cove/loop.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/msg_box.h"
#include "cove/ring.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

/*
 * For large variables. They stand together behind all others (the linker sorts sections by name), which then have room in one page.
 * While the sandbox is idle the pages of LARGE variables are given back and some of their bytes become zero (idle.c), so each of them
 * is either filled and used by one event, or forgotten by a *_rest() function.
 */
#define LARGE __attribute__((section(".bss.zzzz_large")))

/* Everything a client can make many of has a number here. */
enum {
    MAX_CONNS = 1024,
    FIRST_CONNS = 4,     /* of these, the first ones need no malloc() */
    MAX_WANTS = 256,     /* of one connection: exits and ticks it waits for */
    MAX_PROCS = 8192,    /* running and finished */
    MAX_FINISHED = 1024, /* records of finished processes; the oldest goes first */
    MAX_FINISHED_RING_BYTES = 64 << 20,
    MAX_REMOVERS = 16,    /* recursive removes at a time */
    MAX_CONNECTS = 64,    /* connects that wait for an answer */
    MAX_DRAINS = 1024,    /* pipes whose bytes are thrown away (drain.c) */
    MAX_ASKS = 4096,      /* execve calls that wait for a verdict */
    MAX_WATCHERS = 64,    /* watches that are kept under a name */
    MAX_KEPT_DIRS = 8192, /* directories of one such watch */
    MAX_MARKS = 64,       /* extended attributes of one file that a client may set */
    MAX_GROUPS = 64,
    IDLE_CGROUPS = 4, /* cgroups that are kept for the next commands */
    OPEN_CGROUPS = 8, /* cgroups whose files stay open */
    MAX_ARGS = 8192,
    MAX_ENV = 2048,
    MAX_LABEL = 256,
    COMMAND_SHOWN = 512, /* bytes of a command that BOX_PROCS tells */
    PAGE_BYTES = 64 * 1024,
};

/* A handler returns 0, -1 (a cove_err for the client), or this: the message breaks the protocol, and the
 * connection is cut off. */
enum { CUT_OFF = -2 };

struct init;

/* --- loop (init.c over base/loop.c) --- */
int init_watch(struct init *in, struct watch *w, int fd, uint32_t events, watch_fn ready,
               struct cove_err *e);

/* --- connections (conn.c) --- */
enum want_kind { WANT_EXIT, WANT_TICK };

struct want { /* a connection waits for something of a process */
    TAILQ_ENTRY(want) by_conn, by_proc;
    struct conn *conn;
    struct proc *proc;
    enum want_kind kind;
    uint32_t tag;
    uint64_t pos; /* WANT_TICK: told when the ring has more than this */
    bool spawner; /* this connection started the process, so it is told of refused execves too */
};
TAILQ_HEAD(want_list, want);

struct conn {
    LIST_ENTRY(conn) link;
    struct watch watch;
    struct want_list wants;
    unsigned want_count;
    bool holds; /* some log must not overwrite what this connection has not read */
    bool cut;   /* nothing more is read from it; its next event closes it */
};

void conn_accept(struct watch *w, uint32_t events);
void conn_cut(struct conn *c);
/* False when it could not be sent; the connection is then cut off. */
bool conn_send(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len);
bool conn_send_tail(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len,
                    const void *tail, size_t tail_len);
bool conn_send_fd(struct conn *c, uint32_t type, uint32_t tag, const void *body, size_t body_len,
                  int fd);
extern char init_page[PAGE_BYTES]; /* a page of an answer, while it is put together */
bool conn_send_page(struct conn *c, uint32_t type, uint32_t tag, const struct box_page *head,
                    const void *tail, size_t tail_len, int fd);
void conn_send_error(struct conn *c, uint32_t tag, const struct cove_err *e);
struct want *want_new(struct conn *c, struct proc *p, enum want_kind kind, uint32_t tag,
                      struct cove_err *e);
void want_free(struct want *w);
/* The tail of a message as exactly `count` strings: 0, or CUT_OFF. */
int tail_strings(const struct msg *m, size_t body_size, const char **ret, size_t count);

typedef int (*verb_fn)(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
const struct msg_rule *init_rules(void);                                          /* init.c */
int dispatch(struct init *in, struct conn *c, struct msg *m, struct cove_err *e); /* init.c */

/* --- users (users.c) --- */
struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[MAX_GROUPS];
    size_t group_count;
    char name[64], home[256], shell[128];
    bool privileged; /* user_enter() keeps root's access to files */
};

int user_find(const char *name_or_number, struct user *ret, struct cove_err *e);
int group_find(const char *name_or_number, gid_t *ret); /* for cove-sudo */
/* An absolute path as it is, a relative one below the user's home. */
int user_path(const struct user *u, const char *path, char out[MSG_PATH_MAX], struct cove_err *e);
void user_rest(void); /* see idle.c */
/* Between these two calls file access is checked with that user's rights; for root, with root's. */
int user_enter(const struct user *u, struct cove_err *e);
void user_leave(void);

/* --- processes (proc.c, proc_cause.c, proc_verbs.c) --- */
struct listener;
struct log;
struct start;

struct command_cgroup {
    uint32_t name;          /* the directory cNAME; 0: none */
    uint64_t cpu_before_us; /* cpu time of commands that had this cgroup before */
    bool killed; /* cgroup.kill was written: Linux 6.18 kills what is cloned into it afterwards */
};

/* Files of a command's cgroup that stay open, because every command that has this cgroup in turn needs them. */
struct cgroup_files {
    uint32_t name; /* of the cgroup; 0: the row is free */
    int dir_fd, events_fd, cpu_fd;
};

struct proc {
    TAILQ_ENTRY(proc) link; /* in init.running or init.finished */
    uint32_t number;
    pid_t pid; /* 0 for a moment: made by the launcher, and not told yet */
    uint32_t flags;
    uint32_t context; /* as it came with the spawn, for the judge */
    bool running;
    struct command_cgroup cgroup;
    struct cove_end end;
    char *label, *command;
    char *note; /* with SPAWN_NOTE, while it runs */
    struct want_list wants;
    struct log *log; /* NULL: no ring */
    int stdin_fd;    /* write end with SPAWN_STDIN, else -1 */
    int pty;         /* master with SPAWN_PTY, else -1 */
    uint32_t kill_cause;
    int kill_signo;
    uint64_t kill_limit;
    struct timer deadline;
    uint32_t timeout_ms;              /* the time-out that set the deadline */
    uint64_t oom_before, pids_before; /* the counters when it started */
    uint64_t cpu_us;                  /* cpu time of its tree, once it has ended */
    uint64_t kept_bytes;              /* of its ring, as counted in finished_ring_bytes */
    struct start *start;              /* until execve is through */
    struct listener
        *hung_up; /* its seccomp listener, closed when its end has been told (judge.c) */
};
TAILQ_HEAD(proc_list, proc);

/* Where the process `number` is in the table, or would be. */
size_t proc_position(const struct init *in, uint32_t number);
struct proc *proc_by_number(struct init *in, uint32_t number);
/* By number or, when that is 0, the newest with this label. */
int proc_find(struct init *in, uint32_t number, const char *label, struct proc **ret,
              struct cove_err *e);
int proc_add(struct init *in, struct proc *p, struct cove_err *e);
void proc_free(struct init *in, struct proc *p);
void proc_drop_if_done(struct init *in, struct proc *p);
void proc_kill_tree(struct init *in, struct proc *p);
void proc_rest(struct init *in); /* see idle.c */
void proc_reap(struct watch *w, uint32_t events);
void proc_ended(struct init *in, struct proc *p, int wait_status);
void proc_tell_cause(struct init *in, struct proc *p); /* fills in p->end.cause and its limit */
void proc_set_deadline(struct init *in, struct proc *p, uint32_t timeout_ms);
int on_signal(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_wait(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_procs(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_forget(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_stdin(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_resize(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_note(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_input(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);

/* --- spawning (spawn.c), and what the child does (init_exec.c) --- */
struct exec_job { /* all that the child needs, made ready by init: the child allocates nothing */
    const char *cwd;
    bool cwd_is_home; /* the home may be missing: then the command starts in / */
    char **argv, **env;
    struct user user;
    int stdio[3];
    bool pty; /* stdio[0] becomes the controlling terminal */
    uint64_t max_open_files, max_file_bytes;
    struct sock_fprog filter; /* len 0: none */
    bool notify;              /* the filter notifies: its listener goes to init */
    int sock;                 /* to init: the listener, then an error; execve closes it */
};

int on_spawn(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
/* Starts the child in that cgroup (-1: ours) and returns its pid. Whether its execve succeeds is told over
   job->sock. */
pid_t exec_start(const struct exec_job *job, int cgroup_fd, struct cove_err *e);
void exec_setup(void); /* before init raises its own limits */
enum { EXIT_NOT_STARTED = 127 };
int exec_fail_clone(int errnum, struct cove_err *e);
/* Steps of a child, for the launcher. exec_become() returns only if it has failed. */
void exec_begin(void);
int exec_keep_only(int sock);
int exec_raise_all_caps(void);
/* The program with a prefix that lets these calls pass if `number` stands in their sixth argument, in a buffer
   of its own; len 0: it would be too long. */
struct sock_fprog exec_let_pass(const struct sock_fprog *profile, const int *calls, size_t count,
                                uint64_t number);
int exec_become(struct exec_job *job, uint64_t our_pass, struct cove_err *e);

/* --- from clone to execve (start.c) --- */
/* Answer the client when the execve is through or has failed. Takes the socket. */
int start_watch(struct init *in, struct conn *c, uint32_t tag, struct proc *p, int sock,
                struct cove_err *e);
void start_proc_ended(struct init *in, struct proc *p, int wait_status);
void start_conn_closed(struct init *in, struct conn *c);
void starts_expire(struct init *in, uint64_t now_ms);
void starts_learn_pids(struct init *in);

/* --- a process made ahead (spare.c), by the launcher (launcher.c) --- */
/* Messages between init and its own children. */
enum {
    SPARE_JOB = 900, /* to a spare: struct spare_job, tail: cwd, argv..., env...; fds: stdio */
    SPARE_READY,     /* from it: struct spare_ready, with notify the listener */
    SPARE_ORDER, /* to the launcher: uint32_t notify; fds: the spare's end of its socket, its cgroup */
};

struct spare_ready {
    uint32_t pid;
};

struct spare_job {
    uint32_t uid, gid, group_count;
    uint32_t argc, envc;
    uint32_t stdio; /* bit n: a descriptor n comes along */
    uint32_t cwd_is_home, pty;
    uint64_t max_open_files, max_file_bytes;
    gid_t groups[MAX_GROUPS];
    char user[64];
};

struct spare {
    struct watch watch; /* our end of its socket; without a loop: there is no spare */
    pid_t pid;          /* 0: it has not told it yet */
    struct command_cgroup cgroup;
    int listener; /* with notify, once the spare has sent it; -1: none */
    bool notify;
    struct watch timer;
    enum { DUE_NOTHING, DUE_MAKE, DUE_END, DUE_REST } due; /* what the timer is set for */
    pid_t launcher;                                        /* 0: there is none */
    int launcher_fd;
    struct sock_fprog
        filter; /* the filter that was used last; len 0: none yet. `file` is where it came from */
    struct stat file;
};

/* Starts a process that installs the profile and then makes a process for each SPARE_ORDER on the socket. */
pid_t launcher_start(const struct sock_fprog *profile, int sock);
void spare_remember(struct init *in, const struct stat *file, const struct sock_fprog *filter,
                    bool notify);
int spare_setup(struct init *in, struct cove_err *e);
void spare_soon(struct init *in);      /* a command has started: another may come beside it */
void spare_after_end(struct init *in); /* a command has ended, and its client was told */
void spare_client_gone(struct init *in);
void spare_rest(struct init *in); /* see idle.c */
bool spare_reaped(struct init *in, pid_t pid);
void spare_continue(struct init *in); /* the launcher goes on, if somebody has stopped it */
void spare_distrust(struct init *in); /* the launcher does not do its work: end it */
/* 0: the spare, or one made at once, has become p, and what it says on *ret_sock decides over the answer to the
 * client. p->pid may be 0 until SPARE_READY comes there. -1: p must be started in the ordinary way. */
int spare_take(struct init *in, const struct exec_job *job, const struct stat *filter_file,
               struct proc *p, int *ret_sock);

/* --- log rings (log.c) --- */
int log_new(struct init *in, struct proc *p, uint64_t bytes, struct cove_err *e);
int log_add_pipe(struct init *in, struct proc *p, enum ring_stream stream, int *ret_write_end,
                 struct cove_err *e);
int log_add_pty(struct init *in, struct proc *p, struct cove_err *e);
void log_drain(struct proc *p);           /* read all that was written up to now */
bool log_is_open(const struct proc *p);   /* somebody may still write */
uint64_t log_bytes(const struct proc *p); /* memory it takes */
/* Output after `pos` is not overwritten before c has said that it has read it, or has disconnected. */
void log_hold(struct proc *p, struct conn *c, uint64_t pos);
void log_settle(struct proc *p);                /* no process writes to it any more */
void log_tick(struct init *in, struct proc *p); /* tell those who wait */
void log_free(struct init *in, struct proc *p);
void logs_expire(struct init *in, uint64_t now_ms);
void logs_conn_closed(struct init *in, struct conn *c);
int on_log(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_log_arm(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);

/* --- cgroups (cgroup.c) --- */
void cgroup_setup(struct init *in);
void cgroup_prepare(struct init *in);
/* *ret_fd is its directory, -1: there are no cgroups. It stays ours, and is open until the next call here. */
int cgroup_make(struct init *in, struct command_cgroup *ret, int *ret_fd, struct cove_err *e);
int cgroup_kill(struct init *in, uint32_t number); /* 0, or -1 and errno */
void cgroup_leave(struct init *in, uint32_t number, struct command_cgroup *g);
void cgroup_sweep(struct init *in);
void cgroup_tidy(struct init *in); /* no command came for a while: remove those that are kept */
void cgroup_rest(struct init *in); /* see idle.c */
uint64_t cgroup_cpu_us(const struct init *in, const struct command_cgroup *g);
/* The sandbox's counters and limits; 0 where there is no such file. */
enum counter { COUNTER_OOM, COUNTER_PIDS, COUNTER_LIMIT, COUNTER_USED, COUNTER_STAT, COUNTERS };
uint64_t cgroup_oom_kills(struct init *in);
uint64_t cgroup_pids_refused(struct init *in);
uint64_t cgroup_memory_limit(struct init *in);
uint64_t cgroup_memory_used(struct init *in);
struct memory_now {
    uint64_t limit, used, cache, shmem; /* bytes */
};
bool cgroup_memory_now(struct init *in, struct memory_now *ret); /* false: no limit, or no cgroup */
uint64_t cgroup_pids_limit(void);

/* --- paths (paths.c): no magic links, nothing of a process in /proc; errno EACCES or ELOOP --- */
enum { PATH_OF_FD = 32 };
void path_of_fd(
    int fd,
    char out[PATH_OF_FD]); /* a path of this descriptor, for system calls that take a path only */
int path_open_at(int dir_fd, const char *path, uint64_t flags, uint32_t mode);
int path_open(const char *path, uint64_t flags);
/* The directory that `path` is in, and its last component. With `make` missing directories on the
   way are made, 0755. */
int path_parent(const char *path, bool make, char ret_name[NAME_MAX + 1]);
int path_chmod(int path_fd, uint32_t mode);

/* --- files (files.c, files_look.c, remove.c) and ports (ports.c) --- */
struct file_target { /* of a request: who, and which path */
    struct user user;
    const char *given; /* as errors name it */
    char path[MSG_PATH_MAX];
};

int file_fail(struct cove_err *e, const char *path); /* errno as the client's error */
/* The strings of the message are user, path and, where ret_second is not NULL, a second path. */
int file_target(const struct msg *m, size_t body_size, struct file_target *t,
                const char **ret_second, struct cove_err *e);
/* The same for one path, and what follows is done as that user, until user_leave(). */
int file_enter(const struct msg *m, size_t body_size, struct file_target *t, struct cove_err *e);
struct box_stat file_stat(const struct stat *st);
int on_open(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_stat(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_list(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_mkdir(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_rename(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_remove(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_chmod(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_watch(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_watch_keep(struct init *in, struct conn *c, struct msg *m,
                  struct cove_err *e);                                           /* watchers.c */
int on_mark(struct init *in, struct conn *c, struct msg *m, struct cove_err *e); /* marks.c */
int on_marks(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_watch_kept(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_watch_drop(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_connect(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_drain(struct init *in, struct conn *c, struct msg *m, struct cove_err *e); /* drain.c */
void removers_conn_closed(struct init *in, struct conn *c);
void ports_conn_closed(struct init *in, struct conn *c);
void ports_expire(struct init *in, uint64_t now_ms);

/* --- the words of an execve (exec_words.c) --- */
struct exec_words { /* all zero: none; strings one after the other, as they go into a message */
    char *bytes;    /* freed by the caller */
    size_t len, cap;
    uint32_t count;
    bool truncated; /* not all of them could be read, or they are too many */
};

/* From addresses in that process: the file first, then argv, since argv[0] is whatever the caller likes to call it. */
void exec_words_read(struct exec_words *w, pid_t pid, uint64_t file, uint64_t argv);

/* --- exec-time policy (judge.c) --- */
int judge_listen(struct init *in, const struct proc *p, int *listener,
                 struct cove_err *e);                   /* takes the listener */
void judge_proc_ended(struct init *in, struct proc *p); /* and its clients have been told */
void judge_conn_closed(struct init *in, struct conn *c);
void judge_expire(struct init *in, uint64_t now_ms);
int on_judge(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);
int on_exec_answer(struct init *in, struct conn *c, struct msg *m, struct cove_err *e);

/* --- all of it --- */
struct lingering { /* a cgroup whose command has ended, and what it started has not */
    uint32_t proc;
    struct command_cgroup cgroup;
};

struct init {
    struct loop loop;
    int spare_fd; /* closed for a moment when descriptors run out, so that a client can be accepted and turned away */
    struct watch listen, signals;
    LIST_HEAD(conn_list, conn) conns;
    unsigned conn_count;
    struct conn first_conns[FIRST_CONNS]; /* those that do not watch are free */

    struct proc **procs; /* all, by number: numbers only grow, so adding keeps the order */
    size_t proc_count, proc_room;
    struct proc_list running, finished; /* finished: the oldest end first */
    unsigned finished_count;
    uint64_t finished_ring_bytes;
    uint32_t last_number;

    bool has_cgroup;
    uint32_t last_cgroup;
    struct command_cgroup idle[IDLE_CGROUPS]; /* empty, for the next commands */
    size_t idle_count;
    struct cgroup_files open_cgroups[OPEN_CGROUPS];
    size_t next_open;               /* the row that is used for another cgroup next */
    int counter_fds[COUNTERS];      /* -1: not open */
    struct memory_now meminfo_told; /* what meminfo_fd says; limit 0: nothing yet */
    uint64_t meminfo_told_ms;
    int meminfo_fd; /* the file that is mounted over /proc/meminfo, -1 if there is none */
    struct lingering *lingering; /* cgroups that were not empty yet */
    size_t lingering_count, lingering_room, sweep_at;

    unsigned held_logs; /* rings that hold back their ticks for a moment */
    LIST_HEAD(remover_list, remover) removers;
    LIST_HEAD(connecting_list, connecting) connects;
    unsigned remover_count, connect_count, drain_count;
    LIST_HEAD(watcher_list, watcher) watchers;
    unsigned watcher_count;

    struct spare spare;
    uint64_t disk_bytes; /* the disk's limit where statfs() does not show it, else 0 */

    struct conn *judge;
    uint32_t judge_tag;
    TAILQ_HEAD(ask_list, ask) asks;
    LIST_HEAD(listener_list, listener) listeners;
    LIST_HEAD(start_list, start) starts;
    uint64_t last_ask;
    unsigned ask_count, asks_sent;
};

static inline struct init *init_of(const struct watch *w)
{
    return container_of(w->loop, struct init, loop);
}

/* --- giving memory back (idle.c); called by the loop only, since large buffers lose what is in them --- */
void idle_rest(struct init *in);

/* --- the clock without the vdso (clock.c) --- */
void clock_leave_vdso(void); /* before the first malloc() */

/* --- /proc/meminfo (meminfo.c) --- */
void meminfo_setup(struct init *in);
void meminfo_refresh(struct init *in);

/* --- what init refuses to itself (filter.c, landlock.c) --- */
int filter_setup(struct cove_err *e);
int landlock_setup(struct cove_err *e);

#endif
