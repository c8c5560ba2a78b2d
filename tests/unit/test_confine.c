/* process/confine.c: what each kind of process can still do in its cage, and what it cannot. Each try is
 * a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "process/confine.h"

static void *nothing(void *arg)
{
    return arg;
}

/* Each returns 0 or an errno. */
static int start_a_thread(void)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, nothing, NULL);

    return rc ? rc : pthread_join(thread, NULL);
}

static int use_memory(void)
{
    char *large = malloc(64 << 20);

    if (!large)
        return ENOMEM;
    memset(large, 1, 64 << 20);
    free(large);
    return 0;
}

static int make_pipes_and_poll(void)
{
    int ends[2];
    struct pollfd p;

    if (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
        return errno;
    p = (struct pollfd){ .fd = ends[0], .events = POLLIN };
    return poll(&p, 1, 1) < 0 ? errno : 0;
}

static int open_unix_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET, 0) < 0 ? errno : 0;
}

static int read_etc(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int read_own_dir(void)
{
    return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 ? errno : 0;
}

static int get_memory_for_the_jit(void)
{
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? errno : 0;
}

static int open_inet_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int open_netlink_socket(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0) < 0 ? errno : 0;
}

static int listen_on_a_port(void)
{
    struct sockaddr_in addr = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1) < 0)
        return errno;
    return 0;
}

static int write_a_file(void)
{
    return open("/dev/zero", O_WRONLY) < 0 ? errno : 0;
}

static int make_a_file(void)
{
    char path[64];
    int made;

    snprintf(path, sizeof(path), "/tmp/cove-confine-%d", getpid()); /* one that is not there yet */
    made = open(path, O_RDONLY | O_CREAT | O_EXCL, 0600) < 0 ? errno : 0;
    unlink(path);
    return made;
}

static int read_outside(void)
{
    return open("/", O_RDONLY | O_DIRECTORY) < 0 ? errno : 0;
}

static int run_a_program(void)
{
    char *const argv[] = { "true", NULL };

    execv("/bin/true", argv);
    return errno;
}

static int fork_a_process(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    return pid < 0 ? errno : 0;
}

/* clone3's flags lie in memory, where seccomp cannot look. */
static int clone3_a_process(void)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return pid < 0 ? errno : 0;
}

static int make_a_user_namespace(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    return pid < 0 ? errno : 0;
}

static int make_memory_executable(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0 ? errno : 0;
}

static int signal_another_process(void)
{
    return kill(getppid(), 0) < 0 ? errno : 0;
}

/* All processes of ours have one user id: but for the filter the kernel would allow these two. */
static pid_t another;

static int signal_a_thread_of_another_process(void)
{
    return syscall(SYS_tgkill, another, another, 0) < 0 ? errno : 0;
}

static int read_the_limits_of_another_process(void)
{
    struct rlimit limit;

    return prlimit(another, RLIMIT_CPU, NULL, &limit) < 0 ? errno : 0;
}

static int signal_a_thread_of_its_own(void)
{
    return syscall(SYS_tgkill, getpid(), gettid(), 0) < 0 ? errno : 0;
}

static int trace(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? errno : 0;
}

#define NOT_TRIED (-1)

/* What each kind gets: 0, or an errno. */
static const struct {
    int (*try)(void);
    const char *what;
    int want
        [CONFINE_KINDS]; /* worker, judge, gate, resolver, auth, the saver that reads, unpacks, starter, fetch, bucket, builder */
} tries[] = {
    { use_memory, "memory", { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
    { start_a_thread, "a thread", { 0, EPERM, EPERM, EPERM, 0, 0, EPERM, 0, 0, 0, 0 } },
    { make_pipes_and_poll, "pipes", { 0, EPERM, EPERM, EPERM, 0, EPERM, EPERM, EPERM, 0, 0, 0 } },
    { open_unix_socket, "a unix socket", { 0, 0, 0, EPERM, 0, EPERM, EPERM, 0, EPERM, EPERM, 0 } },
    { open_inet_socket,
      "an internet socket",
      { EPERM, EPERM, 0, 0, 0, EPERM, EPERM, EPERM, 0, 0, EPERM } },
    { open_netlink_socket,
      "a netlink socket",
      { EPERM, EPERM, EPERM, EPERM, 0, EPERM, EPERM, EPERM, 0, 0, EPERM } },
    { listen_on_a_port,
      "a listening port",
      { EPERM, EPERM, 0, EPERM, NOT_TRIED, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { read_own_dir,
      "reading the directory it was told",
      { 0, 0, EPERM, EPERM, 0, 0, 0, 0, EACCES, EACCES, 0 } },
    { read_etc, "reading /etc", { 0, EACCES, EPERM, EPERM, 0, 0, 0, EACCES, 0, 0, EACCES } },
    { read_outside,
      "reading a file elsewhere",
      { EACCES, EACCES, EPERM, EPERM, EACCES, 0, 0, EACCES, EACCES, EACCES, EACCES } },
    { write_a_file,
      "writing a file",
      { EPERM, EPERM, EPERM, EPERM, EACCES, EPERM, 0, EPERM, EPERM, EPERM, EACCES } },
    { make_a_file,
      "making a file",
      { EPERM, EPERM, EPERM, EPERM, EACCES, EPERM, 0, EPERM, EPERM, EPERM, EACCES } },
    { get_memory_for_the_jit,
      "memory to compile patterns into",
      { 0, 0, EPERM, EPERM, 0, EPERM, EPERM, 0, EPERM, EPERM, 0 } },
    { make_memory_executable,
      "data made code",
      { EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { run_a_program,
      "execve",
      { EPERM, EPERM, EPERM, EPERM, NOT_TRIED, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { fork_a_process,
      "fork",
      { EPERM, EPERM, EPERM, EPERM, 0, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { clone3_a_process,
      "clone3",
      { ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS, ENOSYS } },
    { make_a_user_namespace,
      "a namespace",
      { EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { signal_another_process,
      "a signal to another",
      { EPERM, EPERM, EPERM, EPERM, NOT_TRIED, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { signal_a_thread_of_another_process,
      "a signal to a thread of another",
      { EPERM, EPERM, EPERM, EPERM, NOT_TRIED, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { read_the_limits_of_another_process,
      "limits of another",
      { EPERM, EPERM, EPERM, EPERM, NOT_TRIED, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
    { signal_a_thread_of_its_own,
      "a signal to a thread of its own",
      { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
    { trace,
      "ptrace",
      { EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM } },
};

static int in_a_cage(enum confine_kind kind, int (*try)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(confine(kind, "/tmp", NULL) < 0 ? 255 : try());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void each_cage_holds_and_leaves_room_to_work(void **state)
{
    (void)state;
    another = getpid();
    assert_int_equal(signal_a_thread_of_another_process(),
                     0); /* the control: without a cage both are allowed */
    assert_int_equal(read_the_limits_of_another_process(), 0);
    for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
        for (int kind = 0; kind < CONFINE_KINDS; kind++) {
            int want = tries[i].want[kind], got;

            if (want == NOT_TRIED)
                continue;
            got = in_a_cage((enum confine_kind)kind, tries[i].try);
            if (got != want)
                fail_msg("kind %d, %s: %d instead of %d", kind, tries[i].what, got, want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_cage_holds_and_leaves_room_to_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
