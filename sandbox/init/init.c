/*
 * cove-init: PID 1 of one sandbox.
 *
 *   privilege  root of the sandbox's user namespace, nobody outside; capabilities that the commands
 *              it starts do not have (so they cannot ptrace it), and fewer than a user namespace's
 *              root could have; a seccomp filter and a Landlock domain of its own
 *   does       spawn, signal, reap, log rings, open/list/stat/..., inotify, connect to a port
 *   never      does anything outside its namespaces; waits for something that a client or a
 *              sandboxed process controls
 *
 * Theory of operation. The keeper leaves a few descriptors (init_fds.h) and starts us in new namespaces,
 * where we put the sandbox together (sandbox/setup/) before all else. Workers
 * connect to the listening socket and speak the protocol of cove/msg_box.h: one packet, one request,
 * one answer, with the result as a descriptor. One thread runs base/loop.c; each thing it waits for
 * is a struct watch. All sends are MSG_DONTWAIT: a client that does not read is cut off. Jobs that
 * take long (removing a tree) run in a forked helper.
 *
 * Why obeying is safe: whoever is connected may do all that this sandbox may do, and no handler
 * reaches further than the sandbox's own namespaces. What handlers check is that one client's
 * nonsense does not end the others.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/libc.h"
#include "cove/setup_plan.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/init/init_private.h"
#include "sandbox/setup/setup.h"

/* --------------------------------------------------------------- all that a client can ask for */

enum {
    PATH_TAIL = 64 + 1 + MSG_PATH_MAX,
    TWO_PATHS_TAIL = PATH_TAIL + MSG_PATH_MAX,
    MARKS_TAIL = PATH_TAIL + 64 * 1024
};

static int on_ping(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    (void)in;
    (void)e;
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* clang-format off */
#define VERBS(V) /* type, body, tail, fewest and most descriptors, handler */ \
    V(BOX_PING,        0,                              0,              0, 0, on_ping) \
    V(BOX_SPAWN,       sizeof(struct box_spawn),       MSG_MAX_BYTES,  0, 4, on_spawn) \
    V(BOX_SIGNAL,      sizeof(struct box_signal),      MAX_LABEL,      0, 0, on_signal) \
    V(BOX_WAIT,        sizeof(struct box_proc_ref),    MAX_LABEL,      0, 0, on_wait) \
    V(BOX_PROCS,       sizeof(struct box_procs),       0,              0, 0, on_procs) \
    V(BOX_FORGET,      sizeof(struct box_proc_ref),    MAX_LABEL,      0, 0, on_forget) \
    V(BOX_STDIN,       sizeof(struct box_stdin),       MAX_LABEL,      0, 0, on_stdin) \
    V(BOX_RESIZE,      sizeof(struct box_resize),      MAX_LABEL,      0, 0, on_resize) \
    V(BOX_LOG,         sizeof(struct box_proc_ref),    MAX_LABEL,      0, 0, on_log) \
    V(BOX_LOG_ARM,     sizeof(struct box_log_arm),     0,              0, 0, on_log_arm) \
    V(BOX_OPEN,        sizeof(struct box_file),        PATH_TAIL,      0, 0, on_open) \
    V(BOX_STAT,        sizeof(struct box_file),        PATH_TAIL,      0, 0, on_stat) \
    V(BOX_LIST,        sizeof(struct box_list),        PATH_TAIL,      0, 0, on_list) \
    V(BOX_MKDIR,       sizeof(struct box_file),        PATH_TAIL,      0, 0, on_mkdir) \
    V(BOX_RENAME,      sizeof(struct box_file),        TWO_PATHS_TAIL, 0, 0, on_rename) \
    V(BOX_REMOVE,      sizeof(struct box_file),        PATH_TAIL,      0, 0, on_remove) \
    V(BOX_CHMOD,       sizeof(struct box_file),        PATH_TAIL,      0, 0, on_chmod) \
    V(BOX_WATCH,       sizeof(struct box_watch),       PATH_TAIL,      0, 1, on_watch) \
    V(BOX_CONNECT,     sizeof(struct box_connect),     0,              0, 0, on_connect) \
    V(BOX_DRAIN,       0,                              0,              1, 2, on_drain) \
    V(BOX_JUDGE,       0,                              0,              0, 0, on_judge) \
    V(BOX_EXEC_ANSWER, sizeof(struct box_exec_answer), 1024,           0, 0, on_exec_answer) \
    V(BOX_WATCH_KEEP,  sizeof(struct box_kept_dir),    PATH_TAIL,      0, 1, on_watch_keep) \
    V(BOX_WATCH_KEPT,  sizeof(struct box_list),        MAX_LABEL,      0, 0, on_watch_kept) \
    V(BOX_WATCH_DROP,  0,                              MAX_LABEL,      0, 0, on_watch_drop) \
    V(BOX_MARK,        sizeof(struct box_file),        MARKS_TAIL,     0, 0, on_mark) \
    V(BOX_MARKS,       sizeof(struct box_file),        TWO_PATHS_TAIL, 0, 0, on_marks) \
    V(BOX_NOTE,        sizeof(struct box_proc_ref),    MAX_LABEL,      0, 0, on_note) \
    V(BOX_INPUT,       sizeof(struct box_input),       BOX_INPUT_MAX,  0, 0, on_input)
/* clang-format on */

#define RULE(type, body, tail, min_fds, max_fds, handler)    { type, body, tail, min_fds, max_fds },
#define HANDLER(type, body, tail, min_fds, max_fds, handler) handler,
static const struct msg_rule rules[] = { VERBS(RULE){ 0 } };
static const verb_fn handlers[] = { VERBS(HANDLER) };

const struct msg_rule *init_rules(void)
{
    return rules;
}

int dispatch(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    size_t i = 0;

    while (rules[i].type != m->head.type) /* msg_recv() took the message, so its type is there */
        i++;
    return handlers[i](in, c, m, e);
}

/* --------------------------------------------------------------- the loop */

int init_watch(struct init *in, struct watch *w, int fd, uint32_t events, watch_fn ready,
               struct cove_err *e)
{
    if (watch_start(&in->loop, w, fd, events, ready) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "waiting for a descriptor");
    return 0;
}

/* A coarse clock, which ticks only while something has a deadline; -1: nothing has. */
static int next_tick_ms(const struct init *in)
{
    if (in->held_logs)
        return 5;
    return in->ask_count || in->connect_count || !LIST_EMPTY(&in->starts) ? 50 : -1;
}

static void expire(struct init *in)
{
    uint64_t now_ms = clock_boot_ms();

    logs_expire(in, now_ms);
    judge_expire(in, now_ms);
    starts_expire(in, now_ms);
    ports_expire(in, now_ms);
}

static void run(struct init *in)
{
    for (;;) {
        int tick_ms = next_tick_ms(in);

        loop_turn(&in->loop, tick_ms);
        if (tick_ms >= 0)
            expire(in);
    }
}

/* --------------------------------------------------------------- set-up */

static int setup_descriptors(struct init *in, struct cove_err *e)
{
    struct rlimit files;
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null_fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "opening /dev/null");
    for (int fd = 0; fd < 3; fd++)
        dup2(null_fd, fd);
    for (int fd = INIT_FD_LISTEN; fd < INIT_FD_END; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptor %d of init_fds.h", fd);
    close_range(INIT_FD_END, ~0U, 0);
    in->spare_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    exec_setup();
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(
            RLIMIT_NOFILE,
            &files); /* children get the old limit back, or the one that their spawn asks for */
    }
    return 0;
}

/* No signal has a handler and all are blocked. Commands are started with default actions and an empty mask. */
static int setup_signals(struct init *in, struct cove_err *e)
{
    static const unsigned long as_default[8]; /* the kernel's own structure; zero is SIG_DFL */
    sigset_t all, child;
    int fd;

    /* libc's sigaction() refuses two of them, which may come to us ignored. */
    for (int s = 1; s <= SIGRTMAX; s++)
        syscall(SYS_rt_sigaction, s, as_default, NULL, 8);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "signalfd");
    return init_watch(in, &in->signals, fd, EPOLLIN, proc_reap, e);
}

#define CAP(c) (1ULL << CAP_##c)
/* What commands of the sandbox's root may have: the bounding set. */
static const uint64_t command_caps = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) |
                                     CAP(KILL) | CAP(SETGID) | CAP(SETUID) | CAP(SETPCAP) |
                                     CAP(SETFCAP) | CAP(NET_BIND_SERVICE) | CAP(SYS_CHROOT);
/* What init itself uses: files and processes of every user, becoming that user, and reading argv
   for a verdict. */
static const uint64_t own_caps = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) |
                                 CAP(KILL) | CAP(SETGID) | CAP(SETUID) | CAP(SYS_PTRACE);
/* Permitted, but not in force: a child raises it to install a filter without no_new_privs. */
static const uint64_t childrens_caps = CAP(SYS_ADMIN);

static int setup_privileges(struct cove_err *e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2];

    if (weak("caps"))
        return 0;
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || syscall(SYS_capget, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading capabilities");
    /* The bounding set takes effect at execve, which init never does: set here, it applies to every command. */
    for (int cap = 0; cap < 64; cap++)
        if (!(command_caps & (1ULL << cap)) && prctl(PR_CAPBSET_READ, cap) == 1 &&
            prctl(PR_CAPBSET_DROP, cap) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "dropping capability %d", cap);
    for (int i = 0; i < 2; i++) {
        caps[i].permitted &= (uint32_t)((own_caps | childrens_caps) >> (32 * i));
        caps[i].effective = caps[i].permitted & (uint32_t)(own_caps >> (32 * i));
        caps[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, caps) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "giving up capabilities");
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* for tests, which run us as an ordinary process */
    prctl(PR_SET_NAME, "cove-init");
    umask(0); /* modes in messages are taken as they are */
    return 0;
}

static int setup(struct init *in, struct cove_err *e)
{
    if (setup_descriptors(in, e) < 0)
        return -1;
    if (loop_init(&in->loop, e) < 0 || spare_setup(in, e) < 0 || setup_signals(in, e) < 0 ||
        landlock_setup(e) < 0 || filter_setup(e) < 0 || setup_privileges(e) < 0)
        return -1;
    cgroup_setup(in);
    meminfo_setup(in);
    fcntl(INIT_FD_LISTEN, F_SETFL, O_NONBLOCK);
    return init_watch(in, &in->listen, INIT_FD_LISTEN, EPOLLIN, conn_accept, e);
}

int main(void)
{
    static struct init in;
    const struct cove_err ready = { .code = COVE_OK };
    struct cove_err e = { 0 };

    LIST_INIT(&in.conns);
    TAILQ_INIT(&in.running);
    TAILQ_INIT(&in.finished);
    TAILQ_INIT(&in.asks);
    in.spare.listener = in.spare.launcher_fd = -1;
    clock_leave_vdso();
    if ((getenv(SETUP_ENV) && setup_enter(&in.disk_bytes, &e) < 0) || setup(&in, &e) < 0) {
        ssize_t n = write(INIT_FD_READY, &e, sizeof(e));

        return n == (ssize_t)sizeof(e) ? 1 : 2;
    }
    if (write(INIT_FD_READY, &ready, sizeof(ready)) < 0)
        return 2; /* the keeper has died; the next one ends what is not ready */
    close(INIT_FD_READY);
    /* While the keeper and a worker get ready for the first command: */
    meminfo_refresh(&in);
    cgroup_prepare(&in);
    run(&in);
}
