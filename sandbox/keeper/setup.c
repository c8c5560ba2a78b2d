/* What the keeper does before its first event. keeper_setup() has the steps in order. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

void keeper_init(struct keeper *k)
{
    *k = (struct keeper){
        .loop = { .epoll = -1 },
        .auth_listen = -1,
        .saved_dir = -1,
        .fetch_listen = -1,
        .builder_listen = -1,
        .gate_before = -1,
        .empty_ns = NO_EMPTY_NS,
        .rules_changed = true,
        .disk = { .dir = -1, .pool.boxes = -1 },
    };
}

/* ------------------------------------------------------------------ configuration */

int keeper_load_config(const struct keeper *k, struct cove_config *ret, struct cove_err *e)
{
    struct cove_config c;

    config_default(&c);
    if (k->config_path && config_load(k->config_path, &c, e) < 0)
        return -1;
    for (char *const *o = k->overrides; o && *o; o++) {
        char pair[1024], *eq;

        if (!text_copy(pair, sizeof(pair), *o) || !(eq = strchr(pair, '=')))
            return cove_fail(e, COVE_INVALID, "-o %s: not of the form key=value", *o);
        *eq = '\0';
        if (config_set(&c, pair, eq + 1, e) < 0)
            return cove_context(e, "-o");
    }
    if (config_check(&c, e) < 0)
        return -1;
    *ret = c;
    return 0;
}

void keeper_apply_log_level(const struct cove_config *c)
{
    enum log_level level;

    if (log_level_parse(c->log_level, &level, NULL) == 0)
        log_set_level(level);
}

void keeper_setup_disk(struct keeper *k)
{
    struct disk_size size;
    struct limits limits;
    struct cove_err err = { 0 };

    limits_resolve(&k->config, &k->templates, k->config.template, NULL, "", &limits);
    size = (struct disk_size){ limits.disk_max_bytes, limits.inodes_max };
    if (disk_configure(&k->disk, k->config.disk, &size, k->config.disk_reserve_bytes, &err) < 0)
        log_error("the configured disk cannot be used, so sandboxes keep their files in memory",
                  &err, LOG_S("disk", k->config.disk));
    log_event(LOG_LEVEL_INFO, "disks", LOG_S("backend", disk_backend_name(&k->disk)));
}

/* ------------------------------------------------------------------ the parts */

static int setup_signals(struct keeper *k, struct cove_err *e)
{
    static const int handled[] = { SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD };
    sigset_t set;
    int fd;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
        sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || watch_start(&k->loop, &k->signals, fd, EPOLLIN, keeper_on_signal) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "signals");
    return 0;
}

static int make_dir(const char *path, mode_t mode, gid_t gid, struct cove_err *e)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    if (chown(path, 0, gid) < 0 || chmod(path, mode) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    return 0;
}

static int open_dir(const char *path, int *ret, struct cove_err *e)
{
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INVALID, "%s", path) : 0;
}

/*
 * Everybody may search run_dir, because nginx's user has to reach fcgi.sock in it. Each file and directory in
 * it has its own permissions.
 */
static int setup_dirs(struct keeper *k, struct cove_err *e)
{
    static const char *const for_workers[] = { "boxes", "profiles", ATTRIBUTES_DIR, SNAPSHOTS_DIR };
    const struct cove_config *c = &k->config;
    char path[640];

    if (make_dir(c->run_dir, 0755, 0, e) < 0 || make_dir(c->state_dir, 0711, 0, e) < 0 ||
        open_dir(c->state_dir, &k->state_dir, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(for_workers); i++) {
        snprintf(path, sizeof(path), "%s/%s", c->run_dir, for_workers[i]);
        if (make_dir(path, 0750, k->worker_gid, e) < 0)
            return -1;
    }
    snprintf(path, sizeof(path), "%s/" HELPERS_DIR, c->run_dir);
    if (make_dir(path, 0700, 0, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/boxes", c->state_dir);
    if (make_dir(path, 0700, 0, e) < 0 || open_dir(path, &k->boxes_dir, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/builds", c->state_dir);
    if (make_dir(path, 0770, k->worker_gid, e) < 0 || open_dir(path, &k->builds_dir, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/spool", c->state_dir);
    if (make_dir(path, 0770, k->worker_gid, e) < 0)
        return -1;
    return open_dir(path, &k->spool_dir, e);
}

/*
 * One keeper per run_dir: the lock is held as long as the process lives, whatever ends it. It is a
 * lock of fcntl()'s old kind, which a forked child does not inherit: a sweeper that outlives its
 * keeper must not keep the next keeper out.
 */
static int setup_pidfile(struct keeper *k, struct cove_err *e)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[256], text[16];
    int fd;

    snprintf(path, sizeof(path), "%s/coved.pid", k->config.run_dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    if (fcntl(fd, F_SETLK, &lock) < 0) {
        close(fd);
        return cove_fail(e, COVE_CONFLICT, "a keeper is running already in %s", k->config.run_dir);
    }
    snprintf(text, sizeof(text), "%d\n", getpid());
    if (ftruncate(fd, 0) < 0 || write(fd, text, strlen(text)) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    return 0; /* the file stays open, and with it the lock */
}

static int open_exe(const struct keeper *k, const char *name, int flags, int *ret,
                    struct cove_err *e)
{
    char path[640];

    snprintf(path, sizeof(path), "%s/%s", k->config.libexec_dir, name);
    *ret = open(path, flags | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INVALID, "%s", path) : 0;
}

static int setup_socket(struct keeper *k, struct cove_err *e)
{
    char path[160];
    int sock;

    snprintf(path, sizeof(path), "%s/keeper.sock", k->config.run_dir);
    sock = fdstore_take_socket(&k->fdstore, "keeper", SOCK_SEQPACKET, path, path);
    if (sock < 0) {
        if (unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 1024, k->worker_gid, &sock, e) < 0)
            return -1;
        fdstore_put(&k->fdstore, "keeper", sock);
    }
    return clients_listen(k, sock, e);
}

static int setup_state(struct keeper *k, struct cove_err *e)
{
    char path[256];
    bool kept = false;

    snprintf(path, sizeof(path), "%s/state", k->config.run_dir);
    if (state_open(path, k->worker_gid, (uint32_t)k->config.max_sandboxes, WORKER_SLOTS,
                   (uint32_t)k->config.threads, &k->state, &kept, e) < 0)
        return -1;
    if (boxes_init(k, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/meters", k->config.run_dir);
    if (meters_make(path, k->worker_gid, e) < 0 || sampling_setup(k, e) < 0 ||
        saved_open(k, e) < 0 || ended_open(k, e) < 0 || adopt_boxes(k, kept, e) < 0)
        return -1;
    workers_adopt(k);
    return 0;
}

/* The keeper needs three descriptors for each sandbox and one for each client, so the default limit of 1024
 * would soon be reached. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/*
 * fs.file-max bounds the open files of all processes of the machine that are not root's, workers and nginx among them. The
 * kernel makes it of the machine's memory, and two sandboxes can hold that many within their memory limits: 300 bytes each.
 * systemd lifts the bound when a machine starts; this does the same where there is no systemd.
 */
static void lift_files_of_machine(void)
{
    write_file_at(AT_FDCWD, "/proc/sys/fs/file-max", "9223372036854775807", NULL);
}

static int setup_base(struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int sudo_exe = -1;

    if (open_exe(k, "cove-sudo", O_RDONLY, &sudo_exe, e) < 0)
        return -1;
    return template_make_base(k->state_dir, sudo_exe, e);
}

int keeper_setup(struct keeper *k, struct cove_err *e)
{
    if (geteuid() != 0)
        return cove_fail(e, COVE_INVALID,
                         "the keeper makes namespaces and must be started as root");
    umask(022);
    raise_file_limit();
    lift_files_of_machine();
    if (resolve_user(k->config.worker_user, &k->worker_uid, &k->worker_gid, e) < 0 ||
        resolve_group(k->config.socket_group, &k->socket_gid, e) < 0 || setup_dirs(k, e) < 0 ||
        setup_pidfile(k, e) < 0 || loop_init(&k->loop, e) < 0 || setup_signals(k, e) < 0 ||
        open_exe(k, "cove-init", O_PATH, &k->init_exe, e) < 0 ||
        open_exe(k, "cove-saver", O_PATH, &k->saver_exe, e) < 0 ||
        open_exe(k, "cove-bucket", O_PATH, &k->bucket_exe, e) < 0 ||
        empty_ns_make(&k->empty_ns, e) < 0 || supervisor_init(k, e) < 0 ||
        cgroup_init(&k->cgroups, k->config.cgroup, e) < 0 || setup_base(k, e) < 0 ||
        disk_init(&k->disk, k->state_dir, k->boxes_dir, e) < 0 || setup_state(k, e) < 0 ||
        publish_all(k, e) < 0 || publish_secret(k, e) < 0 || audit_log_open(k, e) < 0 ||
        setup_socket(k, e) < 0 || workers_listen(k, e) < 0 || gate_listen(k, e) < 0)
        return -1;
    keeper_setup_disk(k);
    snapshots_load(k);
    network_adopt(k);
    network_setup(k);
    network_review(k);
    network_watch(k);
    publish_watch(k);
    fdstore_done(&k->fdstore);
    return 0;
}
