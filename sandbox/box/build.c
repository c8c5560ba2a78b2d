/*
 * Building a sandbox: the keeper's half (directories, cgroup, control socket, clone, id maps,
 * detached mounts) and the child's half, which runs inside the new namespaces and ends by becoming
 * init. The two meet twice: the child waits until its ids are mapped, and gets the mounts with that
 * word; then it puts its file systems together while the keeper connects its network, and waits for
 * that. After it the keeper only waits for the ready pipe.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/init_fds.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/weak.h"
#include "sandbox/box/build.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/tools.h"

struct parts { /* what the child finds open, beside what the keeper has anyway */
    struct cgroup_box cgroup;
    struct cgroup_doors doors;
    struct disk_files files;
    int listen;
    int ready_read, ready_write;
    int go_keeper, go_child; /* socket pair: "your ids are mapped, here are your mounts" */
};

#define NO_PARTS                                                                                   \
    {                                                                                              \
        { -1, -1, -1 }, { { -1, -1, -1 } }, { .dir = -1 }, -1, -1, -1, -1, -1                      \
    }

static void parts_close(struct parts *p)
{
    cgroup_box_close(&p->cgroup);
    cgroup_close_v1(&p->doors);
    p->files.dir = cove_close(p->files.dir);
    p->listen = cove_close(p->listen);
    p->ready_read = cove_close(p->ready_read);
    p->ready_write = cove_close(p->ready_write);
    p->go_keeper = cove_close(p->go_keeper);
    p->go_child = cove_close(p->go_child);
}

/* ------------------------------------------------------------------ the child's half: a recipe */

struct go { /* beside it in the message: files, dev, the layers of root, the layers of usr */
    uint32_t root_count, usr_count;
};

static_assert(2 + LAYERS_OPEN_MAX + 1 <= MSG_MAX_FDS, "a template's mounts fit into one message");

static int wait_for_go(int sock, struct box_mounts *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { MSG_DONE, sizeof(struct go), 0, 3, MSG_MAX_FDS },
        { 0 },
    };
    char buf[64];
    struct go go;
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "the keeper went away");
    memcpy(&go, m.body, sizeof(go));
    ret->files = m.fds[0];
    ret->dev = m.fds[1];
    ret->root.count = go.root_count;
    ret->usr.count = go.usr_count;
    assert(2 + go.root_count + go.usr_count == m.fd_count);
    memcpy(ret->root.fd, m.fds + 2, go.root_count * sizeof(int));
    memcpy(ret->usr.fd, m.fds + 2 + go.root_count, go.usr_count * sizeof(int));
    return 0;
}

/* The keeper has put the sandbox's end of its link into our network namespace. */
static int wait_for_link(int sock, struct cove_err *e)
{
    static const struct msg_rule rules[] = { { MSG_DONE, 0, 0, 0, 0 }, { 0 } };
    char buf[64];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "the keeper went away");
    return 0;
}

/* From here on we are root of the namespace and nobody on the host. */
static int setup_identity(struct cove_err *e)
{
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "becoming the sandbox's root");
    return 0;
}

enum { BOOT_EARLIER_S = 10 };

/*
 * A time namespace whose boot was just now, so that /proc/uptime, sysinfo(2) and ages in ps are the
 * sandbox's. It takes effect with our execve. Its offsets are written through /proc, where a
 * process that has changed its user id belongs to the host's root unless it lets itself be dumped;
 * nobody else is in here yet who could make use of that. Where the kernel has no such namespaces
 * the machine's uptime is seen.
 */
static int setup_clock(void)
{
    struct timespec now;
    char text[64];

    if (clock_gettime(CLOCK_BOOTTIME, &now) < 0 || unshare(CLONE_NEWTIME) < 0)
        return 0;
    /* A little before our own beginning, which must not be before the boot. */
    snprintf(text, sizeof(text), "boottime -%lld 0", (long long)now.tv_sec - BOOT_EARLIER_S);
    prctl(PR_SET_DUMPABLE, 1);
    write_file_at(AT_FDCWD, "/proc/self/timens_offsets", text, NULL);
    prctl(PR_SET_DUMPABLE, 0);
    return 0;
}

/* The cgroup namespace's root is where we are now: it must come after the keeper has put us there. */
static int setup_cgroup_view(struct cove_err *e)
{
    if (unshare(CLONE_NEWCGROUP) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup namespace");
    return 0;
}

static int setup_network(const struct build_args *args, struct cove_err *e)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    AUTO_CLOSE int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (weak("net"))
        return 0;
    if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "bringing up the loopback interface");
    if (!args->network.enter)
        return 0;
    return args->network.enter(args->network.arg, args->slot, e);
}

static int setup_hostname(struct cove_err *e)
{
    if (weak("uts"))
        return 0;
    if (sethostname("cove", 4) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "hostname");
    return 0;
}

/* As many cpus as the quota is worth, the next sandbox on the next ones: nproc and thread pools
 * then fit it. */
static void setup_cpus(const struct build_args *args)
{
    cpu_set_t all, own;
    int count, nth = 0;

    if (args->cpus == 0 || sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    count = CPU_COUNT(&all);
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) &&
            (uint32_t)((nth++ + count - (int)(args->slot * args->cpus % (uint32_t)count)) % count) <
                args->cpus)
            CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof(own), &own);
}

/* Handlers go with execve; what is ignored stays, and nobody ignores real-time signals for us. */
static void setup_signals(void)
{
    sigset_t none;

    for (int sig = 1; sig < SIGRTMIN; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Put the descriptors where init looks for them: first out of the way, then down, so that none is
 * overwritten. */
static int setup_fds(const struct parts *p, int init_exe, int *ret_exe, struct cove_err *e)
{
    const int from[] = { p->listen,        p->ready_write, p->cgroup.v2,
                         p->cgroup.memory, p->cgroup.pids, init_exe };
    int high[ARRAY_SIZE(from)];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if ((high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 100)) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptors for init");
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "/dev/null");
    for (int i = 0; i < INIT_FD_END - INIT_FD_LISTEN; i++)
        if (dup2(high[i], INIT_FD_LISTEN + i) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptors for init");
    *ret_exe = high[ARRAY_SIZE(from) - 1];
    return 0;
}

static int become_init(const struct parts *p, const struct build_args *args, struct cove_err *e)
{
    char title[64];
    char *const argv[] = { title, NULL };
    char limit[48];
    char *const env[] = { limit, weak_environment(), NULL };
    int exe = -1;

    snprintf(title, sizeof(title), "cove: init %s", args->id);
    snprintf(limit, sizeof(limit), INIT_DISK_ENV "=%llu", (unsigned long long)p->files.told_bytes);
    if (setup_fds(p, args->init_exe, &exe, e) < 0)
        return -1;
    execveat(exe, "", argv, env, AT_EMPTY_PATH);
    return cove_fail_errno(e, COVE_INTERNAL, "executing cove-init");
}

/*
 * The child begins with the keeper's own table of descriptors. It takes a copy of the table's lower
 * part, where everything for the child is, and tells the keeper, which waits for that before it
 * closes anything of it. The upper part has a pidfd for each sandbox: copying these and closing them
 * at execve cost 3 ms with 5,000 sandboxes.
 */
static int setup_own_table(const struct parts *p, int init_exe)
{
    const int own[] = { p->cgroup.v2,   p->cgroup.memory, p->cgroup.pids, p->doors.fd[0],
                        p->doors.fd[1], p->doors.fd[2],   p->listen,      p->ready_write,
                        p->go_keeper,   p->go_child,      init_exe };
    int from = BUILD_HIGH_FD;

    for (size_t i = 0; i < ARRAY_SIZE(own); i++) /* should the lower part have been full */
        from = own[i] < from ? from : own[i] + 1;
    if (close_range((unsigned)from, ~0U, CLOSE_RANGE_UNSHARE) < 0 && unshare(CLONE_FILES) < 0)
        return -1;
    return msg_send(p->go_child, MSG_DONE, 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL);
}

static void child(const struct parts *p, const struct build_args *args)
{
    struct box_mounts mounts = NO_MOUNTS;
    struct cove_err e = { 0 };
    ssize_t n;

    if (setup_own_table(p, args->init_exe) < 0)
        _exit(1);        /* nothing is closed here: the table is the keeper's */
    close(p->go_keeper); /* so that a dead keeper reads as one */
    setsid();
    umask(022);
    setup_signals();
    setup_cpus(args);
    if (cgroup_enter_v1(&p->doors, &e) == 0 && wait_for_go(p->go_child, &mounts, &e) == 0 &&
        setup_cgroup_view(&e) == 0 && setup_identity(&e) == 0 && setup_clock() == 0 &&
        mounts_enter(&mounts, &e) == 0 && wait_for_link(p->go_child, &e) == 0 &&
        setup_network(args, &e) == 0 && setup_hostname(&e) == 0)
        become_init(p, args, &e); /* returns only when it failed */
    n = write(p->ready_write, &e, sizeof(e));
    (void)n;
    _exit(1);
}

/* ------------------------------------------------------------------ the keeper's half */

static int fail_dir(struct cove_err *e)
{
    return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL, "sandbox directory");
}

/* What layers a sandbox stands on is known as long as it lives: they are not removed before. */
static int remember_layers(const struct template *t, int dir)
{
    return t->list < 0 ? 0 : linkat(t->list, "", dir, "layers", AT_EMPTY_PATH);
}

/* The sandbox's directory. With a disk limit: the disk in that directory. */
int build_make_files(const struct build_args *args, struct disk_files *ret, struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;

    if (mkdirat(args->boxes_dir, args->id, 0755) < 0)
        return fail_dir(e);
    dir = openat(args->boxes_dir, args->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || remember_layers(args->template, dir) < 0)
        return fail_dir(e);
    return disk_make(args->disk, &args->disk_size, args->id, dir, ret, e);
}

static int take_files(const struct build_args *args, struct disk_files *ret, struct cove_err *e)
{
    int dir;

    if (args->filled.dir < 0)
        return build_make_files(args, ret, e);
    dir = fcntl(args->filled.dir, F_DUPFD_CLOEXEC, 0);
    if (dir < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "files of the sandbox");
    *ret = args->filled;
    ret->dir = dir;
    return 0;
}

/* Workers connect to this socket by path. Inside the sandbox the path does not exist. */
static int make_control_socket(const struct build_args *args, int *ret_fd, struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/boxes/%s", args->run_dir, args->id);
    return unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 1024, args->worker_gid, ret_fd, e);
}

static int make_channels(struct parts *p, struct cove_err *e)
{
    int ready[2], go[2];

    if (pipe2(ready, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    p->ready_read = ready[0];
    p->ready_write = ready[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, go) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socketpair");
    p->go_keeper = go[0];
    p->go_child = go[1];
    return 0;
}

/* Whole pages only: what shares a page with the memory is copied. */
static void set_copied(const struct build_args *args, bool copied)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)args->not_copied.start;
    uintptr_t from = (start + page - 1) & ~(page - 1);
    uintptr_t to = (start + args->not_copied.len) & ~(page - 1);

    if (from < to) /* if it fails, copying takes longer */
        madvise((void *)from, to - from, copied ? MADV_DOFORK : MADV_DONTFORK);
}

/*
 * What the kernel counts per user (inotify, pending signals, message queues, locked memory) it also
 * charges to whoever made the user namespace. Made by root, one sandbox could use up what all the
 * others and the host's own root have. So for the length of one call we are the sandbox's own id,
 * with all capabilities kept.
 */
static long clone_owned_by(uid_t owner, struct clone_args *clone)
{
    struct uid_loan loan;
    long pid;

    if (uid_borrow(owner, &loan) < 0)
        return -1;
    pid = syscall(SYS_clone3, clone, sizeof(*clone));
    if (pid != 0)
        uid_give_back(&loan); /* the child stays who it is */
    return pid;
}

static uint64_t namespaces(void)
{
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;

    flags |= weak("net") ? 0 : CLONE_NEWNET;
    flags |= weak("ipc") ? 0 : CLONE_NEWIPC;
    flags |= weak("uts") ? 0 : CLONE_NEWUTS;
    return flags;
}

static int clone_child(const struct parts *p, const struct build_args *args, struct build *b,
                       struct cove_err *e)
{
    struct clone_args clone = {
        .flags = namespaces() | CLONE_FILES | CLONE_PIDFD | CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&b->pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)p->cgroup.v2,
    };
    long pid;

    set_copied(args, false);
    pid = clone_owned_by(args->ids.base, &clone);
    if (pid != 0)
        set_copied(args, true);
    if (pid < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces");
    if (pid == 0)
        child(p, args);
    b->pid = (pid_t)pid;
    b->pidfd = fd_raise(b->pidfd, BUILD_HIGH_FD);
    return 0;
}

static int open_userns(pid_t pid, int *ret, struct cove_err *e)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "user namespace") : 0;
}

static int send_go(int sock, const struct box_mounts *m, struct cove_err *e)
{
    struct go go = { m->root.count, m->usr.count };
    int fds[2 + 2 * LAYERS_OPEN_MAX] = { m->files, m->dev };

    memcpy(fds + 2, m->root.fd, go.root_count * sizeof(int));
    memcpy(fds + 2 + go.root_count, m->usr.fd, go.usr_count * sizeof(int));
    return msg_send(sock, MSG_DONE, 0, &go, sizeof(go), NULL, 0, fds,
                    2 + go.root_count + go.usr_count, 0, e);
}

/* The service may be spared when the host runs out of memory (OOMScoreAdjust=); a sandbox is not,
 * and since root sets it, nothing inside can go below. */
static void reset_oom_score(pid_t pid)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    write_file_at(AT_FDCWD, path, "0", NULL);
}

static int attach_network(const struct build_args *args, pid_t pid, struct cove_err *e)
{
    if (weak("net") || !args->network.attach)
        return 0;
    return args->network.attach(args->network.arg, args->slot, pid, e);
}

/* The child has its own table of descriptors (setup_own_table()), or is dead. */
static int wait_for_own_table(const struct parts *p, int pidfd, struct cove_err *e)
{
    struct pollfd either[] = { { .fd = p->go_keeper, .events = POLLIN },
                               { .fd = pidfd, .events = POLLIN } };
    char word[64];

    while (poll(either, ARRAY_SIZE(either), -1) < 0)
        if (errno != EINTR)
            return cove_fail_errno(e, COVE_INTERNAL, "waiting for the sandbox's set-up");
    if (!either[0].revents || recv(p->go_keeper, word, sizeof(word), MSG_DONTWAIT) <= 0)
        return cove_fail(e, COVE_INTERNAL, "the sandbox's set-up ended without a word");
    return 0;
}

static int equip_child(const struct parts *p, const struct build_args *args, const struct build *b,
                       struct cove_err *e)
{
    struct box_mounts mounts = NO_MOUNTS;
    AUTO_CLOSE int userns = -1;
    pid_t pid = b->pid;
    int rc = -1;

    reset_oom_score(pid);
    if (userns_write_maps(pid, &args->ids, e) == 0 && open_userns(pid, &userns, e) == 0 &&
        mounts_prepare(args->template, p->files.dir, p->files.is_mount, userns, &args->ids, &mounts,
                       e) == 0)
        rc = send_go(p->go_keeper, &mounts, e);
    mounts_close(&mounts);
    if (rc == 0) /* half of the kernel's work for a sandbox each, on two cpus */
        rc = attach_network(args, pid, e);
    if (rc == 0) /* by now it has long happened */
        rc = wait_for_own_table(p, b->pidfd, e);
    return rc < 0 ? -1 : msg_send(p->go_keeper, MSG_DONE, 0, NULL, 0, NULL, 0, NULL, 0, 0, e);
}

/* On failure whatever was made so far stays for the caller's sweep, which knows the id. */
int build_start(const struct build_args *args, struct build *ret, struct cove_err *e)
{
    struct parts p = NO_PARTS;
    struct build b = NO_BUILD;

    if (take_files(args, &p.files, e) < 0 ||
        cgroup_create_box(args->cgroups, args->id, args->limits, args->ids.base, &p.cgroup, e) <
            0 ||
        cgroup_open_v1(args->cgroups, args->id, &p.doors, e) < 0 ||
        make_control_socket(args, &p.listen, e) < 0 || make_channels(&p, e) < 0 ||
        clone_child(&p, args, &b, e) < 0) {
        parts_close(&p);
        return -1;
    }
    if (equip_child(&p, args, &b, e) < 0) {
        kill(b.pid, SIGKILL);
        waitpid(b.pid, NULL, 0);
        close(b.pidfd);
        parts_close(&p);
        return -1;
    }
    b.ready = take_fd(&p.ready_read);
    if (p.files.is_lost)
        b.files = take_fd(&p.files.dir);
    parts_close(&p);
    *ret = b;
    return 0;
}

int build_finish(struct build *b, struct cove_err *e)
{
    struct cove_err remote;
    ssize_t n = read(b->ready, &remote, sizeof(remote));

    b->ready = cove_close(b->ready);
    if (n == 0)
        return 0;
    if (n != (ssize_t)sizeof(remote))
        return cove_fail(e, COVE_INTERNAL, "the sandbox's set-up ended without a word");
    cove_err_sanitize(&remote);
    *e = remote;
    return -1;
}
