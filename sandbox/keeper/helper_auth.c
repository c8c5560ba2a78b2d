/* cove-auth, the process that knows passwords: started when pam_service is set, replaced when it
 * dies. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

/* What PAM modules need of root: reading the shadow file, becoming somebody, writing to the
 * kernel's audit log. */
static const cap_value_t kept[] = { CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETUID,
                                    CAP_SETGID,       CAP_AUDIT_WRITE,     CAP_KILL };

static int keep_few_capabilities(void)
{
    cap_t few = cap_init();
    int rc = -1;

    for (int cap = 0; cap <= CAP_LAST_CAP; cap++) {
        bool keep = false;

        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
            keep |= kept[i] == cap;
        if (!keep)
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    }
    if (few && cap_set_flag(few, CAP_PERMITTED, ARRAY_SIZE(kept), kept, CAP_SET) == 0 &&
        cap_set_flag(few, CAP_EFFECTIVE, ARRAY_SIZE(kept), kept, CAP_SET) == 0)
        rc = cap_set_proc(few);
    cap_free(few);
    return rc;
}

static int listen_for_workers(struct keeper *k, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/auth.sock", k->config.run_dir);
    unlink(addr.sun_path);
    if (sock < 0 || bind(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chown(addr.sun_path, (uid_t)-1, k->worker_gid) < 0 || chmod(addr.sun_path, 0660) < 0 ||
        listen(sock, 64) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", addr.sun_path);
    return take_fd(&sock);
}

static void become_auth(int exe_fd, int config_fd, int sock)
{
    char *const argv[] = { "cove: auth", NULL };
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    int config = fcntl(config_fd, F_DUPFD_CLOEXEC, 100),
        listening = fcntl(sock, F_DUPFD_CLOEXEC, 100);
    int exe = fcntl(exe_fd, F_DUPFD_CLOEXEC, 100), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the next keeper starts its own */
    if (dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(config, 3) == 3 &&
        dup2(listening, 4) == 4 && keep_few_capabilities() == 0 &&
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

int signin_start(struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int config_fd = -1;
    AUTO_CLOSE int sock = -1;
    pid_t pid;

    if (k->auth.pid || !k->config.pam_service[0])
        return 0;
    config_fd = workers_config(k, e);
    if (config_fd < 0 || (sock = listen_for_workers(k, e)) < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    if (pid == 0)
        become_auth(k->auth_exe, config_fd, sock);
    return workers_watch(k, &k->auth, pid, SRC_AUTH, 0, e);
}

static void forget(struct keeper *k)
{
    keeper_unwatch(k, k->auth.pidfd);
    cove_close(k->auth.pidfd);
    waitpid(k->auth.pid, NULL, 0);
    k->auth = (struct worker){ 0 };
}

void signin_on_exit(struct keeper *k)
{
    if (!k->auth.pid)
        return;
    log_event(LOG_LEVEL_ERROR, "cove-auth died", LOG_N("pid", k->auth.pid));
    workers_pause_after(k, &k->auth);
    forget(k);
    workers_start(k);
}

void signin_stop(struct keeper *k)
{
    if (!k->auth.pid)
        return;
    pidfd_send_signal(k->auth.pidfd, SIGKILL, NULL, 0);
    forget(k);
}
