/* process/confine.c: what a worker can still do in its cage, and what it cannot. Each try is a process
 * of its own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
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

static int read_a_file(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
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

static int write_a_file(void)
{
    return open("/dev/null", O_WRONLY) < 0 ? errno : 0;
}

static int make_a_file(void)
{
    return open("/tmp/cove-confine", O_RDONLY | O_CREAT, 0600) < 0 ? errno : 0;
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

static int make_memory_executable(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0 ? errno : 0;
}

static int signal_another_process(void)
{
    return kill(getppid(), 0) < 0 ? errno : 0;
}

static int trace(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? errno : 0;
}

static const struct {
    int (*try)(void);
    int want;
    const char *what;
} tries[] = {
    { start_a_thread, 0, "threads start after the cage is shut" },
    { use_memory, 0, "memory" },
    { make_pipes_and_poll, 0, "pipes" },
    { open_unix_socket, 0, "sandboxes and the keeper are unix sockets" },
    { read_a_file, 0, "the policy and the keys are read again" },
    { get_memory_for_the_jit, 0, "PCRE2 compiles the deny-list" },
    { open_inet_socket, EPERM, "no network" },
    { write_a_file, EPERM, "no file for writing" },
    { make_a_file, EPERM, "no new file" },
    { read_outside, EACCES, "no file outside of run_dir, /etc and /usr" },
    { run_a_program, EPERM, "no execve" },
    { fork_a_process, EPERM, "no fork" },
    { make_memory_executable, EPERM, "no data made code" },
    { signal_another_process, EPERM, "no signals to others" },
    { trace, EPERM, "no ptrace" },
};

static int in_a_cage(int (*try)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(confine_self("/tmp", NULL) < 0 ? 255 : try());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void the_cage_holds_and_leaves_room_to_work(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
        int got = in_a_cage(tries[i].try);

        if (got != tries[i].want)
            fail_msg("%s: %d instead of %d", tries[i].what, got, tries[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cage_holds_and_leaves_room_to_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
