/*
 * Building a sandbox, the child's half: a recipe that begins as a copy of the keeper in new namespaces
 * and ends by becoming init. Where it meets the keeper is told in build.c.
 */
#include <assert.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/init_fds.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/weak.h"
#include "sandbox/box/build.h"
#include "sandbox/box/build_private.h"
#include "sandbox/box/mounts.h"
#include "sandbox/box/tools.h"

static int wait_for_go(int sock, struct box_mounts *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { MSG_DONE, sizeof(struct build_go), 0, 3, MSG_MAX_FDS },
        { 0 },
    };
    char buf[64];
    struct build_go go;
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
static int setup_fds(const struct build_parts *p, int init_exe, int *ret_exe, struct cove_err *e)
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

static int become_init(const struct build_parts *p, const struct build_args *args,
                       struct cove_err *e)
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
static int setup_own_table(const struct build_parts *p, int init_exe)
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

void build_child(const struct build_parts *p, const struct build_args *args)
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
