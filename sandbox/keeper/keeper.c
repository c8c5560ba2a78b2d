/*
 * The keeper.
 *
 * privilege  root
 * does       namespaces, mounts, cgroups, time to live, warm pool, supervision, reload
 * never      parses HTTP or JSON of clients, touches a sandbox's files by a path of the sandbox's
 * making
 *
 * Theory of operation. One thread, one epoll loop. Workers ask over SEQPACKET connections to
 * <run_dir>/keeper.sock (keeper_calls.c: everything a worker can make root do). Each box is watched
 * through a pidfd, each one being built through its ready pipe as well. What the keeper knows of
 * boxes is written through to shared memory, where workers read it without asking; commands in an
 * existing sandbox do not pass here at all. When the keeper dies nothing else does: a new one reads
 * the shared memory, opens pidfds anew and goes on (adopt.c).
 *
 * Signals: SIGTERM, SIGINT stop everything, sandboxes included; SIGQUIT stops keeper and workers
 * and leaves the sandboxes to a successor; SIGHUP reads configuration, policy and keys again.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

enum { AUDIT_FILE_BYTES = 64 << 20 };

/* ------------------------------------------------------------------ events */

int keeper_watch(struct keeper *k, int fd, enum source kind, uint32_t index, struct cove_err *e)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)kind << 32 | index };

    if (epoll_ctl(k->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "epoll");
    return 0;
}

void keeper_unwatch(struct keeper *k, int fd)
{
    if (fd >= 0)
        epoll_ctl(k->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* ------------------------------------------------------------------ signals */

static int load_config(struct keeper *k, struct cove_config *ret, struct cove_err *e)
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

/* What is fixed while we run keeps its value; the rest holds for what is made from now on. */
static void keep_fixed_settings(struct cove_config *next, const struct cove_config *now)
{
    memcpy(next->run_dir, now->run_dir, sizeof(next->run_dir));
    memcpy(next->state_dir, now->state_dir, sizeof(next->state_dir));
    memcpy(next->cgroup, now->cgroup, sizeof(next->cgroup));
    memcpy(next->worker_user, now->worker_user, sizeof(next->worker_user));
    memcpy(next->socket_group, now->socket_group, sizeof(next->socket_group));
    next->max_sandboxes = now->max_sandboxes;
    next->threads = now->threads;
    next->id_base = now->id_base;
    next->id_count = now->id_count;
}

static void apply_log_level(const struct cove_config *c)
{
    enum log_level level;

    if (log_level_parse(c->log_level, &level, NULL) == 0)
        log_set_level(level);
}

static void setup_disk(struct keeper *k)
{
    struct disk_size size;
    struct limits limits;
    struct cove_err err = { 0 };

    limits_resolve(&k->config, &k->templates, k->config.template, NULL, "", &limits);
    size = (struct disk_size){ limits.disk_max_bytes, limits.inodes_max };
    if (disk_configure(&k->disk, strcmp(k->config.disk, "image") == 0, &size, &err) < 0)
        log_error("no disk images here: sandboxes' files are kept in their memory", &err);
}

static void reload(struct keeper *k)
{
    struct cove_config next;
    struct cove_err err = { 0 };

    notify_reloading(&k->notify);
    if (load_config(k, &next, &err) < 0) {
        log_error("configuration refused, the old one stays", &err);
        notify_tell(&k->notify,
                    "READY=1\nSTATUS=configuration refused at the last reload, the old one holds");
        return;
    }
    keep_fixed_settings(&next, &k->config);
    k->config = next;
    apply_log_level(&k->config);
    if (publish_all(k, &err) < 0)
        log_error("policy or keys refused, the old ones stay", &err);
    setup_disk(k);
    network_setup(k);
    boxes_review_warm(k);
    signin_stop(k);
    /* The old ones finish what they have; new ones read the new configuration. */
    workers_drain_all(k);
    workers_start(k);
    notify_tell(&k->notify, "READY=1\nSTATUS=");
    log_event(LOG_LEVEL_INFO, "configuration reloaded");
}

static void reap_sweepers(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        pid_t pid = k->boxes[i].sweeper;

        if (pid > 0 && waitpid(pid, NULL, WNOHANG) == pid)
            boxes_on_sweeper(k, pid);
    }
}

/* Returns the signal that ends the loop, or 0. */
static int on_signal(struct keeper *k)
{
    struct signalfd_siginfo info;

    while (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        switch (info.ssi_signo) {
        case SIGCHLD:
            reap_sweepers(k);
            break;
        case SIGHUP:
            reload(k);
            break;
        default:
            return (int)info.ssi_signo;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ the loop */

static int dispatch(struct keeper *k, const struct epoll_event *ev)
{
    uint32_t index = (uint32_t)ev->data.u64;

    switch ((enum source)(ev->data.u64 >> 32)) {
    case SRC_SIGNAL:
        return on_signal(k);
    case SRC_LISTEN:
        calls_accept(k);
        break;
    case SRC_INOTIFY:
        publish_on_inotify(k);
        break;
    case SRC_CLIENT:
        if (k->clients[index].sock >= 0)
            calls_ready(k, index);
        break;
    case SRC_BOX_READY:
        if (k->boxes[index].build.ready >= 0)
            boxes_on_ready(k, index);
        break;
    case SRC_BOX_PID:
        if (k->boxes[index].build.pidfd >= 0)
            boxes_on_death(k, index);
        break;
    case SRC_WORKER:
        if (k->workers[index].pid)
            workers_on_exit(k, index);
        break;
    case SRC_GATE:
        gate_on_exit(k);
        break;
    case SRC_RESOLVER:
        names_on_exit(k);
        break;
    case SRC_NETWORK:
        network_on_change(k);
        break;
    case SRC_RESOLVER_SOCK:
        names_on_message(k);
        break;
    case SRC_JUDGE:
        workers_on_judge_exit(k);
        break;
    case SRC_AUTH:
        signin_on_exit(k);
        break;
    }
    return 0;
}

static int loop(struct keeper *k)
{
    int signo = 0;

    while (!signo) {
        struct epoll_event events[32];
        uint64_t next = boxes_tick(k), now = clock_boot_ms();
        int n;

        if (k->publish_at_ms && k->publish_at_ms < next)
            next = k->publish_at_ms;
        if (now < k->worker_retry_ms && k->worker_retry_ms < next)
            next = k->worker_retry_ms;
        n = epoll_wait(k->epoll, events, ARRAY_SIZE(events), next > now ? (int)(next - now) : 0);
        for (int i = 0; i < n && !signo; i++)
            signo = dispatch(k, &events[i]);
        publish_tick(k);
        network_tick(k);
        names_tick(k);
        workers_start(k);
        notify_alive(&k->notify);
    }
    return signo;
}

/* ------------------------------------------------------------------ set-up */

static int setup_signals(struct keeper *k, struct cove_err *e)
{
    static const int handled[] = { SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
        sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    k->epoll = epoll_create1(EPOLL_CLOEXEC);
    k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (k->epoll < 0 || k->signals < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "event loop");
    return keeper_watch(k, k->signals, SRC_SIGNAL, 0, e);
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
 * run_dir may be searched by all, since nginx's user has to reach fcgi.sock in it; what is in it
 * says itself who may touch it.
 */
static int setup_dirs(struct keeper *k, struct cove_err *e)
{
    const struct cove_config *c = &k->config;
    char path[640];

    if (make_dir(c->run_dir, 0755, 0, e) < 0 || make_dir(c->state_dir, 0711, 0, e) < 0 ||
        open_dir(c->state_dir, &k->state_dir, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/boxes", c->run_dir);
    if (make_dir(path, 0750, k->worker_gid, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/profiles", c->run_dir);
    if (make_dir(path, 0750, k->worker_gid, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/boxes", c->state_dir);
    if (make_dir(path, 0700, 0, e) < 0)
        return -1;
    return open_dir(path, &k->boxes_dir, e);
}

/* One keeper per run_dir: the lock is held as long as the process lives, whatever ends it. */
static int setup_pidfile(struct keeper *k, struct cove_err *e)
{
    char path[256], text[16];
    int fd;

    snprintf(path, sizeof(path), "%s/coved.pid", k->config.run_dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return cove_fail(e, COVE_CONFLICT, "a keeper is running already in %s", k->config.run_dir);
    }
    snprintf(text, sizeof(text), "%d\n", getpid());
    if (ftruncate(fd, 0) < 0 || write(fd, text, strlen(text)) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    return 0; /* stays open */
}

static int open_exe(const struct keeper *k, const char *name, int *ret, struct cove_err *e)
{
    char path[640];

    snprintf(path, sizeof(path), "%s/%s", k->config.libexec_dir, name);
    *ret = open(path, O_PATH | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INVALID, "%s", path) : 0;
}

static int setup_socket(struct keeper *k, struct cove_err *e)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    k->clients = calloc(CLIENTS_MAX, sizeof(*k->clients));
    if (!k->clients)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (int i = 0; i < CLIENTS_MAX; i++)
        k->clients[i].sock = -1;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/keeper.sock", k->config.run_dir);
    k->listen =
        fdstore_take_socket(&k->fdstore, "keeper", SOCK_SEQPACKET, addr.sun_path, addr.sun_path);
    if (k->listen >= 0)
        return keeper_watch(k, k->listen, SRC_LISTEN, 0, e);
    unlink(addr.sun_path);
    k->listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->listen < 0 || bind(k->listen, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        chown(addr.sun_path, (uid_t)-1, k->worker_gid) < 0 || chmod(addr.sun_path, 0660) < 0 ||
        listen(k->listen, 1024) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", addr.sun_path);
    fdstore_put(&k->fdstore, "keeper", k->listen);
    return keeper_watch(k, k->listen, SRC_LISTEN, 0, e);
}

static int setup_state(struct keeper *k, struct cove_err *e)
{
    char path[256];
    bool kept = false;

    snprintf(path, sizeof(path), "%s/state", k->config.run_dir);
    if (state_open(path, k->worker_gid, (uint32_t)k->config.max_sandboxes, WORKER_SLOTS,
                   (uint32_t)k->config.threads, &k->state, &kept, e) < 0)
        return -1;
    k->boxes = calloc(state_box_count(k->state), sizeof(*k->boxes));
    if (!k->boxes)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    snprintf(path, sizeof(path), "%s/meters", k->config.run_dir);
    if (meters_open(path, k->worker_gid, &k->meters, e) < 0 || adopt_boxes(k, kept, e) < 0)
        return -1;
    adopt_workers(k);
    return 0;
}

/* Three descriptors a box, one a client: the default of 1024 is soon used up. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int setup_audit(struct keeper *k, struct cove_err *e)
{
    struct audit_options options = { .max_bytes = AUDIT_FILE_BYTES, .keep = 0 };

    if (!k->config.audit_file[0])
        return 0;
    return audit_open(k->config.audit_file, &options, &k->audit, e);
}

static int setup(struct keeper *k, struct cove_err *e)
{
    if (geteuid() != 0)
        return cove_fail(e, COVE_INVALID,
                         "the keeper makes namespaces and must be started as root");
    umask(022);
    raise_file_limit();
    if (resolve_user(k->config.worker_user, &k->worker_uid, &k->worker_gid, e) < 0 ||
        resolve_group(k->config.socket_group, &k->socket_gid, e) < 0 || setup_dirs(k, e) < 0 ||
        setup_pidfile(k, e) < 0 || setup_signals(k, e) < 0 ||
        open_exe(k, "cove-init", &k->init_exe, e) < 0 ||
        open_exe(k, "cove-worker", &k->worker_exe, e) < 0 ||
        open_exe(k, "cove-judge", &k->judge_exe, e) < 0 ||
        open_exe(k, "cove-auth", &k->auth_exe, e) < 0 ||
        open_exe(k, "cove-gate", &k->gate_exe, e) < 0 ||
        open_exe(k, "cove-resolver", &k->resolver_exe, e) < 0 ||
        cgroup_init(&k->cgroups, k->config.cgroup, e) < 0 ||
        template_make_base(k->state_dir, e) < 0 || disk_init(&k->disk, k->state_dir, e) < 0 ||
        setup_state(k, e) < 0 || publish_all(k, e) < 0 || publish_secret(k, e) < 0 ||
        setup_audit(k, e) < 0 || setup_socket(k, e) < 0 || workers_listen(k, e) < 0 ||
        gate_listen(k, e) < 0)
        return -1;
    setup_disk(k);
    network_adopt(k);
    network_setup(k);
    network_review(k);
    network_watch(k);
    publish_watch(k);
    fdstore_done(&k->fdstore);
    return 0;
}

/* ------------------------------------------------------------------ the end */

static void remove_run_files(const struct keeper *k)
{
    static const char *const names[] = { "keeper.sock",   "fcgi.sock",      "state",
                                         "state.workers", "policy",         "keys",
                                         "tenants",       "templates",      "meters",
                                         "auth.sock",     "coved.pid",      "network",
                                         "resolver.pid",  TOKEN_SECRET_FILE };
    char path[256];
    int dir;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, names[i]);
        unlink(path);
    }
    if ((dir = open(k->config.run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0) {
        sweep_tree(dir, "boxes", NULL);
        sweep_tree(dir, "profiles", NULL);
        sweep_tree(dir, "net", NULL);
        close(dir);
    }
}

static void stop(struct keeper *k, int signo)
{
    k->stopping = true;
    notify_tell(&k->notify, "STOPPING=1");
    log_event(LOG_LEVEL_INFO, "keeper stopping", LOG_N("signal", signo));
    if (signo != SIGQUIT)
        boxes_destroy_all(k);
    workers_stop(k, signo == SIGQUIT);
    disk_done(&k->disk);
    if (signo != SIGQUIT) {
        net_done(&k->net);
        cgroup_remove_all(&k->cgroups, k->config.cgroup);
        remove_run_files(k);
        fdstore_drop(&k->fdstore, "keeper");
        fdstore_drop(&k->fdstore, "fcgi-own");
    }
    log_event(LOG_LEVEL_INFO, "keeper stopped");
}

static int usage(FILE *to, int code)
{
    fputs("usage: coved [-c FILE] [-o KEY=VALUE]... [--check | --show-config | --sweep | "
          "--version]\n",
          to);
    return code;
}

static int show_config(const struct cove_config *c)
{
    struct buf text;

    buf_init(&text, 64 * 1024);
    config_print(c, &text);
    fwrite(text.data, 1, text.len, stdout);
    buf_done(&text);
    return 0;
}

/* After a keeper that was killed and will have no successor; says what it took away. */
static int sweep_network(const struct cove_config *c)
{
    if (net_sweep(c))
        puts("rules, interfaces and forwarding");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' }, { "set", required_argument, NULL, 'o' },
        { "check", no_argument, NULL, 'k' },        { "show-config", no_argument, NULL, 's' },
        { "sweep", no_argument, NULL, 'w' },        { "version", no_argument, NULL, 'V' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    static struct keeper keeper = { .epoll = -1,
                                    .signals = -1,
                                    .inotify = -1,
                                    .listen = -1,
                                    .rules_changed = true,
                                    .disk = { .dir = -1 } };
    char **overrides = calloc((size_t)argc + 1, sizeof(*overrides));
    struct cove_err err = { 0 };
    int opt, count = 0, check = 0, show = 0, sweep = 0;

    log_init("keeper", LOG_LEVEL_INFO);
    while (overrides && (opt = getopt_long(argc, argv, "c:o:h", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            keeper.config_path = strdup(optarg);
            break;
        case 'o':
            overrides[count++] = strdup(optarg);
            break;
        case 'k':
            check = 1;
            break;
        case 's':
            show = 1;
            break;
        case 'w':
            sweep = 1;
            break;
        case 'V':
            puts("coved " COVE_VERSION);
            return 0;
        default:
            return usage(opt == 'h' ? stdout : stderr, opt == 'h' ? 0 : 2);
        }
    }
    if (optind < argc)
        return usage(stderr, 2);
    keeper.overrides = overrides;
    if (load_config(&keeper, &keeper.config, &err) < 0) {
        fprintf(stderr, "coved: %s\n", err.msg);
        return 2;
    }
    if (check || show)
        return show ? show_config(&keeper.config) : 0;
    if (sweep)
        return sweep_network(&keeper.config);
    apply_log_level(&keeper.config);
    notify_init(&keeper.notify); /* before title_init(), which takes the environment's place */
    fdstore_init(&keeper.fdstore, &keeper.notify);
    title_init(argc, argv);
    if (setup(&keeper, &err) < 0) {
        log_error("keeper not started", &err);
        fprintf(stderr, "coved: %s\n", err.msg);
        return 1;
    }
    title_set("cove: keeper");
    workers_start(&keeper);
    for (int i = 0; i < WORKER_SLOTS; i++)
        if (keeper.workers[i].pid && !keeper.workers[i].child)
            kill(keeper.workers[i].pid, SIGTERM); /* the keeper before's: ours are up now */
    names_end_old(&keeper);
    log_event(LOG_LEVEL_INFO, "keeper started", LOG_S("version", COVE_VERSION),
              LOG_S("run_dir", keeper.config.run_dir));
    notify_tell(&keeper.notify, "READY=1");
    stop(&keeper, loop(&keeper));
    return 0;
}
