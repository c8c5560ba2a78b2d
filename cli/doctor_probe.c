/* Checks that try what the server does: use the kernel's features, make a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/client.h"
#include "cove/mem.h"
#include "cove/text.h"

#define DOCTOR_TENANT "cove-doctor"

enum { POOL_WAIT_MS = 5000, YEAR_2025_S = 1735689600 };

/* ------------------------------------------------------------------ the kernel, by trying */

static bool make_namespaces(void)
{
    return unshare(CLONE_NEWUSER) == 0 &&
           unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                   CLONE_NEWCGROUP) == 0;
}

/* As root: in a mount namespace of its own, so nothing of it is left. */
static bool mount_overlay(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/mnt", "tmpfs", 0, NULL) == 0 && mkdir("/mnt/lower", 0755) == 0 &&
           mkdir("/mnt/upper", 0755) == 0 && mkdir("/mnt/work", 0755) == 0 &&
           mount("none", "/mnt", "overlay", 0,
                 "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work") == 0;
}

/* Makes the attempt in a child process. Returns 0, or the errno of the attempt. */
static int attempt(bool (*what)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        bool worked = what();

        _exit(worked ? 0 : errno ? errno : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static void look_features(const struct patient *p, struct diagnosis *d)
{
    static const struct {
        bool (*what)(void);
        bool needs_root;
        const char *name, *mend;
    } attempts[] = {
        { make_namespaces, false, "making namespaces",
          "sysctl -w user.max_user_namespaces=65536, and allow user namespaces in AppArmor" },
        { mount_overlay, true, "mounting an overlay", "modprobe overlay" },
    };

    (void)p;
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        int error = attempts[i].needs_root && geteuid() != 0 ? 0 : attempt(attempts[i].what);

        if (error == 0)
            continue;
        found(d, FOUND_BROKEN, "%s fails: %.60s", attempts[i].name, strerror(error));
        fix(d, "%s", attempts[i].mend);
        return;
    }
    found(d, FOUND_OK, "namespaces and overlays can be made");
}

/* ------------------------------------------------------------------ a sandbox */

static int run_true(const struct cove_config *c, const char *id, struct cove_err *e)
{
    static const char *const argv[] = { "true", NULL };
    struct spawn_args args = { .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .argv = argv };
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct box_spawned spawned;
    struct box_event event = { 0 };
    struct box_conn conn;
    int rc, pty = -1;
    char path[160];
    AUTO_CLOSE int filter = -1;

    snprintf(path, sizeof(path), "%s/profiles/default.bpf", c->run_dir);
    filter = open(path, O_RDONLY | O_CLOEXEC);
    if (filter < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (box_open(c->run_dir, id, &conn, e) < 0)
        return -1;
    args.flags = SPAWN_TIED;
    args.filter_fd = filter;
    args.stdin_fd = args.stdout_fd = args.stderr_fd = null;
    rc = box_spawn(&conn, &args, &spawned, &pty, e);
    if (rc == 0 && box_next_event(&conn, 10000, &event, e) <= 0)
        rc = e->msg[0] ? -1 : cove_fail(e, COVE_TIMEOUT, "a command did not end within 10 s");
    if (rc == 0 && (event.kind != BOX_EVENT_EXITED || end_exit_code(&event.exited.end) != 0))
        rc = cove_fail(e, COVE_INTERNAL, "the command `true` failed in a new sandbox");
    box_close(&conn);
    cove_close(pty);
    return rc;
}

static int try_sandbox(const struct cove_config *c, struct cove_err *e)
{
    struct keeper_link keeper = KEEPER_LINK(c->run_dir);
    struct keeper_claim claim = { .tenant = DOCTOR_TENANT };
    struct keeper_retire retire = { .tenant = DOCTOR_TENANT };
    struct keeper_box box;
    int rc;

    snprintf(claim.project, sizeof(claim.project), "doctor-%d", getpid());
    rc = keeper_claim(&keeper, &claim, NULL, 0, &box, e);
    if (rc == 0) {
        rc = run_true(c, box.id, e);
        text_copy(retire.id, sizeof(retire.id), box.id);
        keeper_retire(&keeper, &retire, NULL);
    }
    keeper_link_done(&keeper);
    return rc;
}

static void look_sandbox(const struct patient *p, struct diagnosis *d)
{
    uint64_t start_ms = clock_boot_ms();
    struct cove_err e = { 0 };

    if (!cli_keeper_runs(&p->config)) {
        found(d, FOUND_BROKEN, "no sandbox can be made: coved does not run");
        fix(d, "start coved (see coved)");
    } else if (try_sandbox(&p->config, &e) < 0) {
        found(d, FOUND_BROKEN, "no sandbox could be made and used: %.180s", e.msg);
        fix(d, "the server's log says more");
    } else {
        found(d, FOUND_OK, "a sandbox was made, ran a command and ended, in %llu ms",
              (unsigned long long)(clock_boot_ms() - start_ms));
    }
}

static uint64_t count_warm(const struct state *s)
{
    uint64_t warm = 0;

    for (uint32_t i = 0; i < state_box_count(s); i++) {
        struct box_info b;

        state_box_read(s, i, &b);
        warm += b.state == BOX_WARM;
    }
    return warm;
}

/* The sandbox of the check before is being replaced: give the keeper time for that. */
static void look_pool(const struct patient *p, struct diagnosis *d)
{
    uint64_t end_ms = clock_boot_ms() + POOL_WAIT_MS, warm;
    struct cove_err e = { 0 };
    struct state *s;

    if (cli_state(&p->config, &s, &e) < 0) {
        found(d, FOUND_BROKEN, "%.200s", e.msg);
        fix(d, "start coved (see coved)");
        return;
    }
    while ((warm = count_warm(s)) < p->config.pool && clock_boot_ms() < end_ms &&
           cli_keeper_runs(&p->config))
        usleep(50000);
    state_close(s);
    if (warm >= p->config.pool) {
        found(d, FOUND_OK, "%llu warm sandboxes", (unsigned long long)warm);
        return;
    }
    found(d, FOUND_BROKEN, "%llu warm sandboxes, where pool asks for %llu",
          (unsigned long long)warm, (unsigned long long)p->config.pool);
    fix(d, "no new ones can be built, or the machine is too slow: see the server's log");
}

/* ------------------------------------------------------------------ the clock */

static void look_clock(const struct patient *p, struct diagnosis *d)
{
    struct timex t = { 0 };
    int state = adjtimex(&t);

    (void)p;
    if (clock_unix_ms() / 1000 < YEAR_2025_S) {
        found(d, FOUND_BROKEN,
              "the clock is years behind: expired keys and certificates seem to be valid");
        fix(d, "timedatectl set-ntp true");
    } else if (state == TIME_ERROR || t.status & STA_UNSYNC) {
        found(d, FOUND_WARNING, "nothing sets the clock (NTP): keys may expire late or early");
        fix(d, "apt install systemd-timesyncd, or chrony");
    } else {
        found(d, FOUND_OK, "synchronised");
    }
}

const struct doctor_check probe_checks[] = {
    { "features", look_features },
    { "sandbox", look_sandbox },
    { "pool", look_pool },
    { "clock", look_clock },
    { NULL },
};
