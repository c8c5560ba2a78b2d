/*
 * What a helper's process does between fork and execve: it takes its descriptors, gives up all privileges that its row does
 * not name, and becomes the helper's program.
 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/supervisor.h"

static bool is_kept(const struct helper_kind *kind, int cap)
{
    for (unsigned i = 0; i < kind->capability_count; i++)
        if (kind->capabilities[i] == cap)
            return true;
    return false;
}

/* Keeps the capabilities of the row and no others. A helper without capabilities becomes the workers' user. */
static int drop_privileges(const struct keeper *k, const struct helper_kind *kind)
{
    gid_t gid = k->worker_gid;
    cap_t caps = cap_init();
    int count = (int)kind->capability_count;

    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        if (!is_kept(kind, cap))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (!caps)
        return -1;
    if (count == 0 && (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 ||
                       setresuid(k->worker_uid, k->worker_uid, k->worker_uid) < 0))
        return -1;
    if (count && (cap_set_flag(caps, CAP_PERMITTED, count, kind->capabilities, CAP_SET) < 0 ||
                  cap_set_flag(caps, CAP_EFFECTIVE, count, kind->capabilities, CAP_SET) < 0))
        return -1;
    if (cap_set_proc(caps) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    cap_free(caps);
    return 0;
}

/* Makes fds[] the descriptors 0, 1, 3 and 4; 2 is the log. They are moved to other numbers first, so that none
 * is overwritten. */
static int place_descriptors(const int fds[HELPER_FDS])
{
    static const int at[HELPER_FDS] = { 0, 1, 3, 4 };
    int high[HELPER_FDS];

    for (int i = 0; i < HELPER_FDS; i++)
        high[i] = fds[i] < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC)
                             : fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < HELPER_FDS; i++)
        if (dup2(high[i], at[i]) != at[i])
            return -1;
    return 0;
}

void helper_become(const struct keeper *k, const struct helper *h, const int fds[HELPER_FDS])
{
    char *const env[] = { "LC_ALL=C.UTF-8", weak_environment(), NULL };
    char title[48];
    char *const argv[] = { title, NULL };
    int exe = fcntl(h->exe, F_DUPFD_CLOEXEC, 100);
    sigset_t no_signals;

    snprintf(title, sizeof(title), "cove: %s", h->kind->name);
    if (h->kind == &worker_kind)
        snprintf(title, sizeof(title), "cove: %s %u", h->kind->name, h->slot);
    sigemptyset(&no_signals);
    sigprocmask(SIG_SETMASK, &no_signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    setsid();
    if (place_descriptors(fds) < 0 || drop_privileges(k, h->kind) < 0)
        _exit(127);
    if (h->kind->takeover == DIES_WITH_KEEPER)
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* must be last: a change of user id clears it */
    execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}
