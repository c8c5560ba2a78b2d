/* Brings an image to this machine as an OCI directory: skopeo fetches it, or buildah builds it. template_oci.c reads
 * that directory. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/template.h"
#include "cove/file.h"
#include "cove/text.h"

/* Passes the tool's output to this terminal, and to the progress that the console shows. False: the time is over, and the tool has not
 * ended. */
static bool pass_on(struct progress *p, int from, uint64_t until_ms)
{
    struct pollfd said = { .fd = from, .events = POLLIN };
    char bytes[4096];

    for (;;) {
        uint64_t now_ms = clock_boot_ms();
        int ready = now_ms < until_ms ? poll(&said, 1, (int)(until_ms - now_ms)) : 0;
        ssize_t n = ready > 0 ? read(from, bytes, sizeof(bytes)) : -1;

        if (ready == 0 || n == 0)
            return n == 0;
        if (n < 0 && errno != EINTR)
            return true;
        if (n > 0) {
            write_all(STDERR_FILENO, bytes, (size_t)n);
            progress_add(p, bytes, (size_t)n);
        }
    }
}

/* The tool is the first process of a PID namespace, so all that it starts ends with it, also a RUN command
 * that detached itself. Its mounts are its own and end with it, too. */
static pid_t start_tool(const char *const argv[], int out)
{
    pid_t pid =
        (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, 0);

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the tool ends when this `cove` is killed */
    setpgid(0, 0);                    /* Ctrl-C ends this `cove`, and by that the tool */
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
        perror("/proc");
        _exit(1);
    }
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* A tool has build_timeout, as a step of a tenant's build has: buildah was seen to wait for ever after the disk was full, and whoever
 * removes templates waits for it. */
static int run_tool(struct store *s, const char *const argv[], struct cove_err *e)
{
    int status = 0, out[2];
    bool ended;
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", argv[0]);
    pid = start_tool(argv, out[1]);
    close(out[1]);
    ended = pid < 0 || pass_on(&s->progress, out[0], clock_boot_ms() + s->config.build_timeout_ms);
    close(out[0]);
    if (!ended)
        kill(pid, SIGKILL);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", argv[0]);
    if (!ended)
        return cove_fail(e, COVE_INVALID,
                         "%s took longer than build_timeout (%llu s) and was ended", argv[0],
                         (unsigned long long)s->config.build_timeout_ms / 1000);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return cove_fail(e, COVE_UNSUPPORTED, "%s is not installed (Debian: apt install %s)",
                         argv[0], argv[0]);
    return status ? cove_fail(e, COVE_INVALID, "%s has failed, see above", argv[0]) : 0;
}

/* On a terminal skopeo and `buildah push` show their own progress. */
static const char *quietly(void)
{
    return progress_is_seen() ? "--quiet=false" : "--quiet";
}

static int run_skopeo(struct store *s, const char *source, const char *into, struct cove_err *e)
{
    char to[4200];
    const char *const argv[] = {
        "skopeo", "copy", "--insecure-policy", quietly(), source, to, NULL
    };

    snprintf(to, sizeof(to), "oci:%s/image:image", into);
    progress_say(&s->progress, "fetching %.200s", source);
    return run_tool(s, argv, e);
}

/*
 * The commands of a Dockerfile run as root of this machine (chroot isolation): this is for operators, and for
 * Dockerfiles that they trust. buildah keeps its files beside the image and nothing elsewhere.
 */
static int run_buildah(struct store *s, const char *context, const char *into, struct cove_err *e)
{
    char root[4200], run[4200], to[4200];
    const char *const build[] = { "buildah",     "--root",           root,       "--runroot",
                                  run,           "--storage-driver", "vfs",      "bud",
                                  "--isolation", "chroot",           "--format", "oci",
                                  "--tag",       "cove-build",       context,    NULL };
    const char *const push[] = { "buildah", "--root",           root,  "--runroot",
                                 run,       "--storage-driver", "vfs", "push",
                                 quietly(), "cove-build",       to,    NULL };

    snprintf(root, sizeof(root), "%s/root", into);
    snprintf(run, sizeof(run), "%s/run", into);
    snprintf(to, sizeof(to), "oci:%s/image:image", into);
    return run_tool(s, build, e) < 0 || run_tool(s, push, e) < 0 ? -1 : 0;
}

/* The image is put beside the layers, where `cove template gc` finds what a killed process left. */
int oci_fetch(struct store *s, const char *source, char name[64], struct cove_err *e)
{
    char id[COVE_ID_LEN + 1], path[4096];

    text_new_id(id);
    snprintf(name, 64, ".new-%s", id);
    snprintf(path, sizeof(path), "%.3000s/layers/%s", s->config.state_dir, name);
    if (mkdirat(s->layers, name, 0700) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (strncmp(source, OCI_BUILD, strlen(OCI_BUILD)) == 0)
        return run_buildah(s, source + strlen(OCI_BUILD), path, e);
    return run_skopeo(s, source, path, e);
}
