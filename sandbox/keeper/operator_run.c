/* An operator's command as a child process of the keeper, which never waits for it. The output goes back to
 * the operator as a file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/keeper/job.h"
#include "sandbox/keeper/operator.h"

enum {
    RUN_SECONDS = 60,
    OUTPUT_MAX = 8 << 20,
    FILES_MAX = 64 << 20, /* bytes that the command may write into one file */
};

struct command { /* what the child needs */
    const struct operator_run *run;
    const struct operator_command *command;
};

static void become_command(const struct keeper *k, const void *arg)
{
    const struct command *c = arg;
    char *const env[] = { "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
    const struct rlimit files = { FILES_MAX, FILES_MAX };
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t no_signals;

    (void)k;
    sigemptyset(&no_signals);
    sigprocmask(SIG_SETMASK, &no_signals, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    alarm(RUN_SECONDS);
    if (dup2(null, 0) < 0 || dup2(c->run->out, 1) < 0 || dup2(c->run->err, 2) < 0 ||
        setrlimit(RLIMIT_FSIZE, &files) < 0)
        _exit(127);
    execve(COVE_BINDIR "/cove", (char *const *)c->command->argv, env);
    dprintf(2, "cove: " COVE_BINDIR "/cove: %s\n", strerror(errno));
    _exit(127);
}

static void run_done(struct operator_run *run)
{
    run->out = cove_close(run->out);
    run->err = cove_close(run->err);
    run->busy = false;
}

/* The error text is what the command printed before it failed, without the command's name in front. */
static void explain(const struct operator_run *run, int status, struct cove_err *e)
{
    char text[200] = "";
    ssize_t n = pread(run->err, text, sizeof(text) - 1, 0);
    const char *said = strncmp(text, "cove: ", 6) == 0 ? text + 6 : text;

    if (WIFSIGNALED(status))
        cove_fail(e, COVE_BUSY, "the command was ended by signal %d", WTERMSIG(status));
    else if (n <= 0)
        cove_fail(e, COVE_INTERNAL, "the command failed without saying why");
    else
        cove_fail(e, COVE_INVALID, "%.*s", (int)strcspn(said, "\n"), said);
    cove_err_sanitize(e);
}

static void answer(struct keeper *k, const struct operator_run *run, int status)
{
    struct keeper_output body = { .exit = (uint32_t)WEXITSTATUS(status) };
    struct cove_err err = { 0 };
    struct stat st;

    if (!WIFEXITED(status) || body.exit > 1)
        explain(run, status, &err);
    else if (fstat(run->out, &st) < 0 || st.st_size > OUTPUT_MAX)
        cove_fail(&err, COVE_TOO_LARGE, "the answer is larger than %d bytes: ask for less",
                  OUTPUT_MAX);
    if (err.code) {
        keeper_answer_error(k, &run->waiter, &err);
        return;
    }
    fcntl(run->out, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    lseek(run->out, 0, SEEK_SET); /* the child's writing has moved the offset to the end */
    body.bytes = (uint64_t)st.st_size;
    keeper_answer_file(k, &run->waiter, KEEPER_OUTPUT, &body, sizeof(body), run->out);
}

static void on_ended(struct keeper *k, uint32_t index, int status)
{
    struct operator_run *run = operator_run_at(k, index);

    answer(k, run, status);
    run_done(run);
}

int operator_run_start(struct keeper *k, uint32_t index, const struct operator_command *c,
                       const struct waiter *w, struct cove_err *e)
{
    struct operator_run *run = operator_run_at(k, index);
    const struct command command = { .run = run, .command = c };
    const struct job_child child = {
        .name = "cove", .run = become_command, .arg = &command, .index = index, .done = on_ended
    };
    struct job *job;

    *run = (struct operator_run){
        .out = memfd_create("cove-output", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        .err = memfd_create("cove-errors", MFD_CLOEXEC),
        .waiter = *w,
        .busy = true,
    };
    if (run->out < 0 || run->err < 0)
        cove_fail_errno(e, COVE_INTERNAL, "files for the output of cove");
    else if (job_fork(k, &child, &job, e) == 0)
        return 0;
    run_done(run);
    return -1;
}
