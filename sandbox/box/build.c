/*
 * Building a sandbox, the keeper's half: cgroup, control socket, clone, directories, id maps,
 * detached mounts. The child (build_child.c) becomes cove-init at once, which begins with the set-up inside
 * the new namespaces (sandbox/setup/). The two work side by side and meet four times: the set-up makes its network
 * namespace, and says when it has; it waits until its ids are mapped, gets its /dev with that word, and arranges /proc and
 * /dev while the keeper makes its files; with these it puts its root together while the keeper connects its network, and
 * waits for that. After it the keeper only waits for the ready pipe. A sandbox whose files are still being unpacked is
 * built ahead up to its mounts, and its network is connected first.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/weak.h"
#include "sandbox/box/build.h"
#include "sandbox/box/build_private.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/tools.h"

static void parts_close(struct build_parts *p)
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

static int fail_dir(struct cove_err *e)
{
    return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL, "sandbox directory");
}

/* The list of the layers that a sandbox is based on is kept with it: these layers are not removed before it ends. */
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

static int make_channels(struct build_parts *p, struct cove_err *e)
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

/*
 * What the kernel counts per user (inotify, pending signals, message queues, locked memory) it also
 * charges to the user who made the user namespace. If that were root, one sandbox could use up what all
 * others and the host's own root have. So for the length of one call the keeper has the sandbox's own id,
 * with all capabilities kept; the child keeps that id. The real id has to be the same: execve, in the child, takes
 * a process whose ids differ for a set-uid one, and clears its ambient capabilities.
 */
static long clone_owned_by(uid_t owner, struct build_child *child, struct clone_args *clone)
{
    struct uid_loan loan;
    long pid = -1;

    if (uid_borrow(owner, &loan) < 0)
        return -1;
    if (syscall(SYS_setresuid, owner, -1, -1) == 0) {
        pid = build_child_start(child, clone);
        if (syscall(SYS_setresuid, 0, -1, -1) < 0)
            abort();
    }
    uid_give_back(&loan);
    return pid;
}

/* The child's mount namespace is a copy of the one that the keeper is in. Neither the child until its execve nor the keeper
 * looks up a path meanwhile. */
static long clone_in_empty_ns(const struct build_args *args, struct build_child *child,
                              struct clone_args *clone)
{
    long pid;

    if (empty_ns_enter(args->birthplace) < 0)
        return -1;
    pid = clone_owned_by(args->ids.base, child, clone);
    empty_ns_leave(args->birthplace);
    return pid;
}

/* The network namespace, which takes longer than all others, is made by the set-up. */
static uint64_t namespaces(void)
{
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;

    flags |= weak("ipc") ? 0 : CLONE_NEWIPC;
    flags |= weak("uts") ? 0 : CLONE_NEWUTS;
    return flags;
}

static int start_child(const struct build_args *args, struct build_child *child, int cgroup,
                       struct box_build *b, struct cove_err *e)
{
    struct clone_args clone = {
        .flags = namespaces() | CLONE_FILES | CLONE_PIDFD | CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&b->pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)cgroup,
    };
    long pid = clone_in_empty_ns(args, child, &clone);

    if (pid < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces");
    if (child->err.code != COVE_OK) {
        waitpid((pid_t)pid, NULL, 0);
        close(b->pidfd);
        *e = child->err;
        return -1;
    }
    b->pid = (pid_t)pid;
    b->pidfd = fd_raise(b->pidfd, BUILD_HIGH_FD);
    return 0;
}

static int clone_child(const struct build_parts *p, const struct build_args *args,
                       struct box_build *b, struct cove_err *e)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char title[64];
    char *const argv[] = { title, NULL };
    char *const env[] = { SETUP_ENV "=yes", weak_environment(), NULL };
    struct build_child child = {
        .fds = { null, null, null, p->listen, p->ready_write, p->cgroup.v2, p->cgroup.memory,
                 p->cgroup.pids, p->go_child },
        .doors = &p->doors,
        .exe = args->init_exe,
        .argv = argv,
        .env = env,
    };

    if (null < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "/dev/null");
    snprintf(title, sizeof(title), "cove: init %s", args->id);
    return start_child(args, &child, p->cgroup.v2, b, e);
}

static int open_userns(pid_t pid, int *ret, struct cove_err *e)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "user namespace") : 0;
}

static int give_plan(int sock, const struct build_args *args, struct cove_err *e)
{
    struct setup_plan plan = { args->slot, args->cpus };
    AUTO_CLOSE int dev = -1;

    if (mounts_make_dev(&args->ids, &dev, e) < 0)
        return -1;
    return msg_send(sock, &(struct msg_out){ MSG_DONE, MSG_BODY(plan), .fds = &dev, .fd_count = 1 },
                    0, e);
}

static int send_layers(int sock, const struct disk_files *files, const struct box_mounts *m,
                       struct cove_err *e)
{
    struct setup_layers layers = { m->root.count, m->usr.count, files->told_bytes };
    int fds[1 + 2 * LAYERS_OPEN_MAX] = { m->files };

    memcpy(fds + 1, m->root.fd, m->root.count * sizeof(int));
    memcpy(fds + 1 + m->root.count, m->usr.fd, m->usr.count * sizeof(int));
    return msg_send(sock,
                    &(struct msg_out){ MSG_DONE, MSG_BODY(layers), .fds = fds,
                                       .fd_count = 1 + m->root.count + m->usr.count },
                    0, e);
}

/* When the host runs out of memory the service may be spared (OOMScoreAdjust=), but a sandbox must not be. Root
 * sets the value, so nothing inside can lower it. */
static void reset_oom_score(pid_t pid)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    write_file_at(AT_FDCWD, path, "0", NULL);
}

/*
 * Waits until the set-up has its network namespace. As a rule it has it by now, and nothing of a tenant has a part in
 * that. If it dies instead, its end of the socket closes.
 */
static int wait_for_namespace(int sock, struct cove_err *e)
{
    static const struct msg_rule rules[] = { { MSG_DONE, 0, 0, 0, 0 }, { 0 } };
    char buf[sizeof(struct msg_head)];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "the sandbox's set-up ended early");
    return 0;
}

static int attach_network(int sock, const struct build_args *args, pid_t pid,
                          struct buf *ret_inside, struct cove_err *e)
{
    if (weak("net") || !args->network.attach)
        return 0;
    if (wait_for_namespace(sock, e) < 0)
        return -1;
    return args->network.attach(args->network.arg, args->slot, pid, ret_inside, e);
}

static int send_link(int sock, const struct buf *inside, struct cove_err *e)
{
    return msg_send(
        sock, &(struct msg_out){ MSG_DONE, .body = inside->data, .body_len = inside->len }, 0, e);
}

static int map_ids(const struct build_args *args, pid_t pid, struct cove_err *e)
{
    reset_oom_score(pid);
    return userns_write_maps(pid, &args->ids, e);
}

static int give_layers(int sock, const struct build_args *args, const struct disk_files *files,
                       pid_t pid, struct cove_err *e)
{
    struct box_mounts mounts = NO_MOUNTS;
    AUTO_CLOSE int userns = -1;
    int rc = -1;

    if (open_userns(pid, &userns, e) == 0 &&
        mounts_prepare(args->template, files->dir, files->is_mount, userns, &args->ids, &mounts,
                       e) == 0)
        rc = send_layers(sock, files, &mounts, e);
    mounts_close(&mounts);
    return rc;
}

/* The set-up gets each part as soon as it is there: it works on it meanwhile, on another cpu. */
static int equip_child(struct build_parts *p, const struct build_args *args, pid_t pid,
                       struct cove_err *e)
{
    AUTO_BUF struct buf inside = BUF(SETUP_REQUESTS_MAX);

    if (map_ids(args, pid, e) < 0 || give_plan(p->go_keeper, args, e) < 0 ||
        take_files(args, &p->files, e) < 0 ||
        give_layers(p->go_keeper, args, &p->files, pid, e) < 0 ||
        attach_network(p->go_keeper, args, pid, &inside, e) < 0)
        return -1;
    return send_link(p->go_keeper, &inside, e);
}

/* Has the set-up written its result? End of file is none: a set-up that was killed has written nothing. */
static bool has_words(int ready)
{
    struct pollfd said = { .fd = ready, .events = POLLIN };

    return poll(&said, 1, 0) == 1 && (said.revents & POLLIN);
}

bool build_has_spoken(const struct box_build *b)
{
    return has_words(b->ready);
}

/* If the child has sent an error, that is the cause: a failure here (say, of connecting the network of a dead
 * child) only follows from it. */
static void prefer_the_childs_words(const struct build_parts *p, struct cove_err *e)
{
    struct cove_err remote;

    if (!has_words(p->ready_read) || read(p->ready_read, &remote, sizeof(remote)) != sizeof(remote))
        return;
    cove_err_sanitize(&remote);
    *e = remote;
}

static int make_child(const struct build_args *args, struct build_parts *p, struct box_build *b,
                      struct cove_err *e)
{
    if (cgroup_create_box(args->cgroups, args->id, args->limits, args->ids.base, &p->cgroup, e) ==
            0 &&
        cgroup_open_v1(args->cgroups, args->id, &p->doors, e) == 0 &&
        make_control_socket(args, &p->listen, e) == 0 && make_channels(p, e) == 0 &&
        clone_child(p, args, b, e) == 0) {
        p->go_child = cove_close(p->go_child); /* the child's copy closes when it dies */
        return 0;
    }
    parts_close(p);
    return -1;
}

static int end_child(struct build_parts *p, const struct box_build *b, struct cove_err *e)
{
    kill(b->pid, SIGKILL);
    waitpid(b->pid, NULL, 0);
    prefer_the_childs_words(p, e);
    close(b->pidfd);
    parts_close(p);
    return -1;
}

static void hand_out(struct build_parts *p, struct box_build *b, struct box_build *ret)
{
    b->ready = take_fd(&p->ready_read);
    if (p->files.is_lost)
        b->files = take_fd(&p->files.dir);
    parts_close(p);
    *ret = *b;
}

/* On failure whatever was made so far stays for the caller's sweep, which knows the id. */
int build_start(const struct build_args *args, struct box_build *ret, struct cove_err *e)
{
    struct build_parts p = NO_BUILD_PARTS;
    struct box_build b = NO_BUILD;

    if (make_child(args, &p, &b, e) < 0)
        return -1;
    if (equip_child(&p, args, b.pid, e) < 0)
        return end_child(&p, &b, e);
    hand_out(&p, &b, ret);
    return 0;
}

int build_start_ahead(const struct build_args *args, struct box_build *ret,
                      struct build_ahead *ret_ahead, struct cove_err *e)
{
    struct build_parts p = NO_BUILD_PARTS;
    struct box_build b = NO_BUILD;

    ret_ahead->inside = BUF(SETUP_REQUESTS_MAX);
    if (make_child(args, &p, &b, e) < 0)
        return -1;
    if (map_ids(args, b.pid, e) < 0 || give_plan(p.go_keeper, args, e) < 0 ||
        take_files(args, &p.files, e) < 0 ||
        attach_network(p.go_keeper, args, b.pid, &ret_ahead->inside, e) < 0)
        return end_child(&p, &b, e);
    ret_ahead->go = take_fd(&p.go_keeper);
    hand_out(&p, &b, ret);
    return 0;
}

int build_go_on(const struct build_args *args, const struct box_build *b,
                const struct build_ahead *ahead, struct cove_err *e)
{
    if (give_layers(ahead->go, args, &args->filled, b->pid, e) < 0)
        return -1;
    return send_link(ahead->go, &ahead->inside, e);
}

void build_ahead_done(struct build_ahead *ahead)
{
    ahead->go = cove_close(ahead->go);
    buf_done(&ahead->inside);
}

int build_finish(struct box_build *b, struct cove_err *e)
{
    struct cove_err remote;
    ssize_t n = read(b->ready, &remote, sizeof(remote));

    b->ready = cove_close(b->ready);
    if (n != (ssize_t)sizeof(remote))
        return cove_fail(e, COVE_INTERNAL, "the sandbox's set-up ended without saying why");
    if (remote.code == COVE_OK)
        return 0;
    cove_err_sanitize(&remote);
    *e = remote;
    return -1;
}
