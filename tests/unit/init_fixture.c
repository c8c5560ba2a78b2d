#include "config.h" /* _GNU_SOURCE */

#include "tests/unit/init_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/init_fds.h"
#include "cove/mem.h"

struct fixture fx;
struct msg last;
static _Alignas(8) char buf[MSG_MAX_BYTES];

/* --------------------------------------------------------------- starting it */

static socklen_t fill_address(struct sockaddr_un *addr)
{
    *addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
    strcpy(addr->sun_path + 1, fx.address);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(fx.address));
}

static int listen_socket(void)
{
    struct sockaddr_un addr;
    socklen_t len;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(fx.address, sizeof(fx.address), "cove-test-init-%d-%ld", (int)getpid(), random());
    len = fill_address(&addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 128), 0);
    return fd;
}

int fixture_connect(void)
{
    struct sockaddr_un addr;
    socklen_t len = fill_address(&addr);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    msg_prepare_socket(fd);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
    return fd;
}

static void exec_init(const int fds[INIT_FD_END])
{
    static char *const argv[] = { "cove: init test", NULL };
    int high[INIT_FD_END];

    for (int i = INIT_FD_LISTEN; i < INIT_FD_END; i++)
        high[i] = fcntl(fds[i], F_DUPFD, 50);
    for (int i = INIT_FD_LISTEN; i < INIT_FD_END; i++)
        dup2(high[i], i); /* the high copies stay open: init has to close them */
    execv(COVE_INIT_PATH, argv);
    _exit(127);
}

static void start(int cgroup_fd, int memory_fd, int pids_fd)
{
    int ready[2], null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct cove_err e;
    int fds[INIT_FD_END];

    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what init leaves behind comes to us */
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    fds[INIT_FD_LISTEN] = listen_socket();
    fds[INIT_FD_READY] = ready[1];
    fds[INIT_FD_CGROUP] = cgroup_fd >= 0 ? cgroup_fd : null_fd;
    fds[INIT_FD_MEMORY] = memory_fd >= 0 ? memory_fd : null_fd;
    fds[INIT_FD_PIDS] = pids_fd >= 0 ? pids_fd : null_fd;
    fx.init = fork();
    assert_true(fx.init >= 0);
    if (fx.init == 0)
        exec_init(fds);
    close(ready[1]);
    close(fds[INIT_FD_LISTEN]);
    close(null_fd);
    assert_int_equal(read(ready[0], &e, sizeof(e)), sizeof(e));
    assert_int_equal(e.code, COVE_OK);
    close(ready[0]);
    fx.sock = fixture_connect();
    assert_init_answers(); /* so it has been accepted, too */
}

static void make_dir(void)
{
    snprintf(fx.dir, sizeof(fx.dir), "/tmp/cove-test-init-XXXXXX");
    assert_non_null(mkdtemp(fx.dir));
    assert_int_equal(chmod(fx.dir, 0777), 0);
    fx.cgroup[0] = '\0';
}

int fixture_start(void **state)
{
    (void)state;
    make_dir();
    start(-1, -1, -1);
    return 0;
}

static void make_counter(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

int fixture_start_with_counters(void **state)
{
    int memory_fd, pids_fd;

    (void)state;
    make_dir();
    mkdir(in_dir("memory"), 0755);
    mkdir(in_dir("pids"), 0755);
    make_counter("memory/memory.oom_control",
                 "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"); /* v1 */
    make_counter("memory/memory.limit_in_bytes", "536870912\n");
    make_counter("pids/pids.events", "max 0\n"); /* the same in v1 and v2 */
    make_counter("pids/pids.max", "64\n");
    memory_fd = open(in_dir("memory"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pids_fd = open(in_dir("pids"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    start(-1, memory_fd, pids_fd);
    close(memory_fd);
    close(pids_fd);
    return 0;
}

static void find_cgroup2(char *out, size_t size)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    struct mntent *m;

    out[0] = '\0';
    while (mounts && (m = getmntent(mounts)))
        if (strcmp(m->mnt_type, "cgroup2") == 0)
            snprintf(out, size, "%s/cove-test-%d", m->mnt_dir, (int)getpid());
    if (mounts)
        endmntent(mounts);
}

int fixture_start_with_cgroup(void **state)
{
    int fd;

    (void)state;
    make_dir();
    find_cgroup2(fx.cgroup, sizeof(fx.cgroup));
    if (fx.cgroup[0] && mkdir(fx.cgroup, 0755) < 0)
        fx.cgroup[0] = '\0';
    fd = fx.cgroup[0] ? open(fx.cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    start(fd, -1, -1);
    cove_close(fd);
    return 0;
}

/* --------------------------------------------------------------- and ending it */

static int child_of(pid_t parent)
{
    char path[64];
    FILE *f;
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    f = fopen(path, "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static void kill_children(void)
{
    int pid;

    while ((pid = child_of(getpid())) > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, __WALL);
    }
}

static void remove_cgroup(void)
{
    DIR *d = opendir(fx.cgroup);
    struct dirent *entry;
    char path[600];

    while (d && (entry = readdir(d)))
        if (entry->d_name[0] == 'c' && strspn(entry->d_name + 1, "0123456789") > 0) {
            snprintf(path, sizeof(path), "%s/%s", fx.cgroup, entry->d_name);
            rmdir(path);
        }
    if (d)
        closedir(d);
    if (rmdir(fx.cgroup) < 0)
        fail_msg("the test's cgroup %s is not empty", fx.cgroup);
}

int fixture_stop(void **state)
{
    char command[128];

    (void)state;
    cove_close(fx.sock);
    assert_true(process_exists(&fx.init)); /* whatever the test did, init lives */
    kill(fx.init, SIGKILL);
    waitpid(fx.init, NULL, 0);
    kill_children();
    if (fx.cgroup[0])
        remove_cgroup();
    snprintf(command, sizeof(command), "rm -rf %s", fx.dir);
    return system(command);
}

/* --------------------------------------------------------------- small things */

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

int open_fd_count(void)
{
    return count_entries("/proc/self/fd");
}

int init_fd_count(void)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)fx.init);
    return count_entries(path);
}

bool process_exists(void *pid)
{
    return kill(*(pid_t *)pid, 0) == 0;
}

bool init_holds_only(void *fd_count)
{
    return init_fd_count() <= *(int *)fd_count;
}

bool eventually(bool (*condition)(void *), void *arg)
{
    for (int i = 0; i < 500; i++) {
        if (condition(arg))
            return true;
        usleep(10000);
    }
    return false;
}

uint64_t status_number(pid_t pid, const char *field, int base)
{
    char path[64], line[256];
    uint64_t value = UINT64_MAX;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, field, strlen(field)) == 0 && line[strlen(field)] == ':')
            value = strtoull(line + strlen(field) + 1, NULL, base);
    fclose(f);
    return value;
}

const char *in_dir(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", fx.dir, name);
    return path;
}

/* --------------------------------------------------------------- talking to it */

static const struct msg_rule anything[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 1 },
    { BOX_SPAWNED, sizeof(struct box_spawned), 0, 0, 1 },
    { BOX_EXITED, sizeof(struct box_exited), 0, 0, 0 },
    { BOX_PROC_LIST, sizeof(struct box_page), MSG_MAX_BYTES, 0, 0 },
    { BOX_LOG_OPENED, sizeof(struct box_log_opened), 0, 1, 1 },
    { BOX_LOG_TICK, sizeof(struct box_log_tick), 0, 0, 0 },
    { BOX_TAKEN, sizeof(struct box_taken), 0, 0, 0 },
    { BOX_STATED, sizeof(struct box_stat), MSG_PATH_MAX, 0, 1 },
    { BOX_ENTRIES, sizeof(struct box_page), MSG_MAX_BYTES, 0, 0 },
    { BOX_WATCHED, sizeof(struct box_watched), 0, 0, 1 },
    { BOX_KEPT_DIRS, sizeof(struct box_page), MSG_MAX_BYTES, 1, 1 },
    { BOX_MARKED, 0, MSG_MAX_BYTES, 0, 0 },
    { BOX_NOTED, 0, MSG_MAX_BYTES, 0, 0 },
    { BOX_EXEC_ASK, sizeof(struct box_exec_ask), MSG_MAX_BYTES, 0, 1 },
    { BOX_EXEC_DENIED, sizeof(struct box_proc_ref), 2048, 0, 0 },
    { 0 },
};

int receive_from(int sock, struct msg *ret, int timeout_ms)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    struct cove_err e;
    int n;

    if (poll(&p, 1, timeout_ms) != 1)
        return -1;
    n = msg_recv(sock, buf, sizeof(buf), anything, 0, ret, &e);
    if (n < 0)
        fail_msg("init sent what no rule allows: %s", e.msg);
    return n;
}

const void *expect_on(int sock, uint32_t type, int *ret_fd)
{
    int n = receive_from(sock, &last, ANSWER_MS);

    if (n != 1)
        fail_msg("expected message %u, got %s", type, n == 0 ? "cut off" : "nothing");
    if (last.head.type != type)
        fail_msg("expected message %u, got %u%s%s", type, last.head.type,
                 last.head.type == MSG_ERROR ? ": " : "",
                 last.head.type == MSG_ERROR ? ((const struct cove_err *)last.body)->msg : "");
    if (ret_fd) {
        assert_int_equal(last.fd_count, 1);
        *ret_fd = last.fds[0];
    } else {
        msg_close_fds(&last);
    }
    return last.body;
}

const void *expect(uint32_t type, int *ret_fd)
{
    return expect_on(fx.sock, type, ret_fd);
}

enum cove_code expect_error(void)
{
    return ((const struct cove_err *)expect(MSG_ERROR, NULL))->code;
}

void send_on(int sock, uint32_t type, uint32_t tag, const void *body, size_t len, const char *tail,
             size_t tail_len, const int *fds, size_t fd_count)
{
    struct cove_err e;

    if (msg_send(sock,
                 &(struct msg_out){ type, .tag = tag, .body = body, .body_len = len, .tail = tail,
                                    .tail_len = tail_len, .fds = fds, .fd_count = fd_count },
                 0, &e) < 0)
        fail_msg("sending message %u: %s", type, e.msg);
}

void assert_init_answers(void)
{
    send_on(fx.sock, BOX_PING, 1, NULL, 0, NULL, 0, NULL, 0);
    expect(MSG_DONE, NULL);
}

static void add_string(char *tail, size_t *len, const char *s)
{
    strcpy(tail + *len, s ? s : "");
    *len += strlen(s ? s : "") + 1;
}

void send_spawn(int sock, const struct command *cmd)
{
    static char tail[MSG_MAX_BYTES];
    struct box_spawn body = { .flags = cmd->flags,
                              .context = cmd->context,
                              .timeout_ms = cmd->timeout_ms,
                              .rows = cmd->rows,
                              .cols = cmd->cols,
                              .log_bytes = cmd->log_bytes,
                              .max_open_files = cmd->max_open_files,
                              .max_file_bytes = cmd->max_file_bytes };
    size_t len = 0;

    add_string(tail, &len, cmd->user);
    add_string(tail, &len, cmd->cwd);
    add_string(tail, &len, cmd->label);
    for (; cmd->argv[body.argc]; body.argc++)
        add_string(tail, &len, cmd->argv[body.argc]);
    for (; cmd->env[body.envc]; body.envc++)
        add_string(tail, &len, cmd->env[body.envc]);
    send_on(sock, BOX_SPAWN, 1, &body, sizeof(body), tail, len, cmd->fds, cmd->fd_count);
}

struct box_spawned spawn(const struct command *cmd)
{
    send_spawn(fx.sock, cmd);
    return *(const struct box_spawned *)expect(BOX_SPAWNED, NULL);
}

struct cove_end expect_exit(uint32_t proc)
{
    const struct box_exited *msg = expect(BOX_EXITED, NULL);

    assert_int_equal(msg->proc, proc);
    return msg->end;
}

struct cove_end run(const struct command *cmd, char *out, size_t out_size)
{
    struct command with_pipe = *cmd;
    struct box_spawned s;
    size_t len = 0;
    ssize_t n;
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    with_pipe.flags |= SPAWN_FD_STDOUT | SPAWN_FD_STDERR;
    memmove(with_pipe.fds + 2, with_pipe.fds, 2 * sizeof(int)); /* a filter comes after them */
    with_pipe.fds[0] = with_pipe.fds[1] = fds[1];
    with_pipe.fd_count += 2;
    s = spawn(&with_pipe);
    close(fds[1]);
    while ((n = read(fds[0], out + len, out_size - 1 - len)) > 0)
        len += (size_t)n;
    out[len] = '\0';
    close(fds[0]);
    return expect_exit(s.proc);
}

struct cove_end run_sh(const char *script, char *out, size_t out_size)
{
    return run(&(struct command){ .argv = { "sh", "-c", script } }, out, out_size);
}
