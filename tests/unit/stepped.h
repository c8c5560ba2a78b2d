/* A child process that a test stops after each of its instructions. Include cmocka.h before this. */
#ifndef COVE_TEST_STEPPED_H
#define COVE_TEST_STEPPED_H

#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that waits to be stepped through action(), and then ends. */
static inline pid_t start_stepped(void (*action)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(77);
        raise(SIGSTOP);
        action();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        skip(); /* nobody may be traced here */
    assert_true(WIFSTOPPED(status));
    return pid;
}

/* One instruction. False when the child has ended. */
static inline bool step(pid_t pid)
{
    int status;

    assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSTOPPED(status))
        return true;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

#endif
