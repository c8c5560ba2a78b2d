#include "keeper_fixture.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fake fake;

/* ------------------------------------------------------------------ in place of the kernel */

uint64_t __wrap_clock_boot_ms(void);
int __wrap_build_start(const struct build_args *args, struct box_build *ret, struct cove_err *e);
int __wrap_template_open(int dir, const char *name, struct template *ret, struct cove_err *e);
void __wrap_template_sweep_old(int dir);
int __wrap_cgroup_freeze_begin(const struct cgroups *c, const char *id, bool on,
                               struct cove_err *e);
bool __wrap_cgroup_is_frozen(const struct cgroups *c, const char *id);
int __wrap_cgroup_limit_box(const struct cgroups *c, const char *id, const struct cgroup_limits *l,
                            struct cove_err *e);
void __wrap_cgroup_kill_box(const struct cgroups *c, const char *id);
int __wrap_cgroup_remove_box(const struct cgroups *c, const char *id);
bool __wrap_cgroup_has_pid(const struct cgroups *c, const char *id, pid_t pid);
void __wrap_cgroup_each_box(const struct cgroups *c, cgroup_box_fn each, void *arg);
uint64_t __wrap_cgroup_cpu_usec(const struct cgroups *c, const char *id);
void __wrap_cgroup_count_pids(const struct cgroups *c, const char *id, uint64_t *ret_now,
                              uint64_t *ret_most);
int __wrap_cgroup_limit_pids(const struct cgroups *c, const char *id, uint64_t most,
                             struct cove_err *e);
bool __wrap_disk_wants_more(const struct disk *d);

uint64_t __wrap_clock_boot_ms(void)
{
    return fake.now_ms;
}

/* An init that does nothing until it is killed. */
int __wrap_build_start(const struct build_args *args, struct box_build *ret, struct cove_err *e)
{
    struct cove_err word = { .code = fake.builds_fail ? COVE_INTERNAL : COVE_OK };
    int ready[2];
    pid_t pid;

    (void)e;
    fake.ids[fake.built++ % ARRAY_SIZE(fake.ids)] = args->ids;
    mkdirat(args->boxes_dir, args->id, 0700);
    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    if (!fake.builds_hang)
        assert_int_equal(write(ready[1], &word, sizeof(word)), sizeof(word));
    close(ready[1]);
    *ret = (struct box_build){ pid, pidfd_open(pid, 0), ready[0], -1 };
    return 0;
}

int __wrap_template_open(int dir, const char *name, struct template *ret, struct cove_err *e)
{
    (void)dir;
    (void)ret;
    return strcmp(name, "missing") == 0 ? cove_fail(e, COVE_NOT_FOUND, "template '%s'", name) : 0;
}

void __wrap_template_sweep_old(int dir)
{
    (void)dir;
}

int __wrap_cgroup_freeze_begin(const struct cgroups *c, const char *id, bool on, struct cove_err *e)
{
    (void)c;
    (void)id;
    (void)e;
    *(on ? &fake.frozen : &fake.thawed) += 1;
    return 0;
}

bool __wrap_cgroup_is_frozen(const struct cgroups *c, const char *id)
{
    (void)c;
    (void)id;
    return !fake.freeze_fails;
}

int __wrap_cgroup_limit_box(const struct cgroups *c, const char *id, const struct cgroup_limits *l,
                            struct cove_err *e)
{
    (void)c;
    (void)id;
    (void)l;
    (void)e;
    return 0;
}

void __wrap_cgroup_kill_box(const struct cgroups *c, const char *id)
{
    (void)c;
    (void)id;
    fake.kills++;
}

int __wrap_cgroup_remove_box(const struct cgroups *c, const char *id)
{
    (void)c;
    if (fake.cgroup_busy)
        return -1;
    snprintf(fake.removed[fake.removed_count++ % ARRAY_SIZE(fake.removed)], ID_BYTES, "%s", id);
    return 0;
}

bool __wrap_cgroup_has_pid(const struct cgroups *c, const char *id, pid_t pid)
{
    (void)c;
    (void)id;
    (void)pid;
    return !fake.pids_are_elsewhere;
}

void __wrap_cgroup_each_box(const struct cgroups *c, cgroup_box_fn each, void *arg)
{
    (void)c;
    for (size_t i = 0; i < ARRAY_SIZE(fake.stray); i++)
        if (fake.stray[i][0])
            each(arg, fake.stray[i]);
}

uint64_t __wrap_cgroup_cpu_usec(const struct cgroups *c, const char *id)
{
    (void)c;
    (void)id;
    return 0;
}

struct fake_pids *fake_pids_of(const char *id)
{
    static const struct fake_pids unknown = { "", 1, 512 };
    struct fake_pids *p = fake.pids;

    for (; p < fake.pids + ARRAY_SIZE(fake.pids) && p->most; p++)
        if (strcmp(p->id, id) == 0)
            return p;
    assert_true(p < fake.pids + ARRAY_SIZE(fake.pids));
    *p = unknown;
    snprintf(p->id, sizeof(p->id), "%s", id);
    return p;
}

void __wrap_cgroup_count_pids(const struct cgroups *c, const char *id, uint64_t *ret_now,
                              uint64_t *ret_most)
{
    const struct fake_pids *p = fake_pids_of(id);

    (void)c;
    fake.pids_counted++;
    *ret_now = p->now;
    *ret_most = p->most;
}

int __wrap_cgroup_limit_pids(const struct cgroups *c, const char *id, uint64_t most,
                             struct cove_err *e)
{
    (void)c;
    (void)e;
    fake_pids_of(id)->most = most;
    return 0;
}

bool __wrap_disk_wants_more(const struct disk *d)
{
    (void)d;
    return false;
}

/* ------------------------------------------------------------------ the keeper */

static int open_dir(const char *parent, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", parent, name);
    mkdir(path, 0750);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void not_called(struct watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

static const char *const fixture_templates[] = { "templates/base", "templates/busy" };

/* What keeper_setup() does, as far as it can be done here. */
static void begin(struct fixture *f)
{
    struct keeper *k = &f->k;
    struct cove_err e = { 0 };
    char path[128];
    bool kept;
    int pair[2];

    keeper_init(k);
    fdstore_init(&k->fdstore, &k->notify);
    config_default(&k->config);
    snprintf(k->config.run_dir, sizeof(k->config.run_dir), "%s", f->run_dir);
    snprintf(k->config.state_dir, sizeof(k->config.state_dir), "%s", f->state_dir);
    k->config.max_sandboxes = FIXTURE_BOXES;
    k->config.pool = 0;
    k->config.pool_max = 0;                         /* no more than `pool` */
    k->config.tenant_sandboxes = 2 * FIXTURE_BOXES; /* one tenant may have all of them */
    k->worker_gid = getgid();
    assert_int_equal(loop_init(&k->loop, &e), 0);
    k->state_dir = open(f->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    k->boxes_dir = open_dir(f->state_dir, "boxes");
    if (disk_init(&k->disk, k->state_dir, k->boxes_dir, &e) < 0)
        fail_msg("%s", e.msg);
    close(open_dir(f->run_dir, "boxes"));
    close(open_dir(f->run_dir, "profiles"));
    close(open_dir(f->run_dir, ATTRIBUTES_DIR));
    snprintf(path, sizeof(path), "%s/state", f->run_dir);
    if (state_open(path, getgid(), FIXTURE_BOXES, 2, 2, &k->state, &kept, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(boxes_init(k, &e), 0);
    k->clients = calloc(CLIENTS_MAX, sizeof(*k->clients));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
                     0);
    watch_start(&k->loop, &k->clients[0].watch, pair[0], EPOLLIN, not_called);
    f->sock = pair[1];
    adopt_boxes(k, kept, &e);
    close(open_dir(f->state_dir, "templates"));
    for (size_t i = 0; i < ARRAY_SIZE(fixture_templates); i++)
        close(open_dir(f->state_dir, fixture_templates[i]));
    templates_publish(k, &kept, &e);
}

static void end(struct fixture *f)
{
    struct keeper *k = &f->k;

    for (uint32_t i = 0; i < FIXTURE_BOXES; i++) {
        cove_close(k->boxes[i].build.pidfd);
        cove_close(k->boxes[i].build.ready);
        free(k->boxes[i].waiters);
    }
    watch_close(&k->clients[0].watch);
    close(f->sock);
    loop_done(&k->loop);
    disk_done(&k->disk, true);
    close(k->state_dir);
    close(k->boxes_dir);
    state_close(k->state);
    manifests_done(&k->manifests);
    boxes_done(k);
    free(k->clients);
}

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    fake = (struct fake){ .now_ms = 1000000 };
    snprintf(f->run_dir, sizeof(f->run_dir), "/tmp/cove-keeper-run-XXXXXX");
    snprintf(f->state_dir, sizeof(f->state_dir), "/tmp/cove-keeper-state-XXXXXX");
    assert_non_null(mkdtemp(f->run_dir));
    assert_non_null(mkdtemp(f->state_dir));
    begin(f);
    *state = f;
    return 0;
}

void fixture_restart(struct fixture *f)
{
    end(f);
    begin(f);
}

static void kill_inits(struct fixture *f)
{
    for (uint32_t i = 0; i < FIXTURE_BOXES; i++) {
        pid_t pid = (pid_t)f->k.boxes[i].info.init_pid;

        if (f->k.boxes[i].info.state != BOX_EMPTY && pid > 1 && waitpid(pid, NULL, WNOHANG) == 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;

    kill_inits(f);
    end(f);
    sweep_tree(AT_FDCWD, f->run_dir, NULL);
    sweep_tree(AT_FDCWD, f->state_dir, NULL);
    free(f);
    return 0;
}

/* ------------------------------------------------------------------ what tests say */

struct keeper_claim claim_of(const char *tenant, const char *project)
{
    struct keeper_claim args = { 0 };

    text_copy(args.tenant, sizeof(args.tenant), tenant);
    text_copy(args.project, sizeof(args.project), project);
    return args;
}

uint32_t fixture_claim(struct fixture *f, const struct keeper_claim *args, int attributes)
{
    struct claim c = { args, attributes };
    struct waiter w = { .tag = ++f->last_tag };

    claim_box(&f->k, &c, &w);
    return f->last_tag;
}

void fixture_finish_builds(struct fixture *f)
{
    for (uint32_t i = 0; i < FIXTURE_BOXES; i++)
        if (f->k.boxes[i].build.ready >= 0)
            creation_on_ready(&f->k, i);
}

void fixture_kill_init(struct fixture *f, uint32_t i)
{
    struct pollfd ended = { .fd = f->k.boxes[i].build.pidfd, .events = POLLIN };

    assert_int_equal(pidfd_send_signal(ended.fd, SIGKILL, NULL, 0), 0);
    assert_int_equal(poll(&ended, 1, 10000), 1);
}

uint32_t fixture_answer(struct fixture *f, struct keeper_box *ret_box, struct cove_err *ret_err)
{
    static const struct msg_rule rules[] = {
        { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
        { MSG_DONE, 0, 0, 0, 0 },
        { KEEPER_BOX, sizeof(struct keeper_box), 0, 0, 0 },
        { 0 },
    };
    char buf[1024];
    struct msg m;

    if (msg_recv(f->sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return 0;
    if (m.head.type == KEEPER_BOX && ret_box)
        memcpy(ret_box, m.body, sizeof(*ret_box));
    if (m.head.type == MSG_ERROR && ret_err)
        memcpy(ret_err, m.body, sizeof(*ret_err));
    return m.head.type;
}

struct keeper_box fixture_claimed(struct fixture *f, const char *tenant, const char *project)
{
    struct keeper_claim args = claim_of(tenant, project);
    struct keeper_box box = { 0 };

    fixture_claim(f, &args, -1);
    fixture_finish_builds(f);
    assert_int_equal(fixture_answer(f, &box, NULL), KEEPER_BOX);
    return box;
}

/* What the event loop would do for a dying sandbox. */
static bool settle_one(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    struct pollfd p = { .fd = b->build.pidfd, .events = POLLIN };

    if (b->info.state == BOX_DYING && !b->dead && poll(&p, 1, 0) == 1)
        death_on_exit(k, i);
    return b->info.state == BOX_DYING;
}

void fixture_settle(struct fixture *f)
{
    for (int tries = 0; tries < 2000; tries++) {
        bool dying = false;

        for (uint32_t i = 0; i < FIXTURE_BOXES; i++)
            dying |= settle_one(&f->k, i);
        death_remove_remains(&f->k);
        death_reap(&f->k);
        if (!dying)
            return;
        poll(NULL, 0, 5);
    }
    fail_msg("a sandbox does not end");
}

unsigned fixture_count(const struct fixture *f, enum box_state state)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < FIXTURE_BOXES; i++)
        n += f->k.boxes[i].info.state == state;
    return n;
}

int sealed_memfd(const void *bytes, size_t len)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}
