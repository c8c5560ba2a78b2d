/* BOX_SPAWN: from a message to a running process. Everything is made ready here, the child only
 * does system calls. */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { SPAWN_FDS = SPAWN_FD_STDIN | SPAWN_FD_STDOUT | SPAWN_FD_STDERR | SPAWN_FD_FILTER };
enum { SPAWN_ALL = (SPAWN_HOLD << 1) - 1, FILTER_MAX = BPF_MAXINSNS };

struct spawn { /* one request, while it is being carried out */
    const struct box_spawn *args;
    const char *user, *cwd, *label, *note;
    const char **strings;      /* argc of argv, then envc of env; in the message */
    int std_fds[3], filter_fd; /* of the message, -1: none */
    int child_fds[3];          /* ours, made for the child: closed after the start */
    char defaults[6][512];     /* "HOME=..." */
    char cwd_path[MSG_PATH_MAX];
    char **argv, **env;
    struct exec_job job;
    struct stat filter_file;
    int sock; /* our end of the socket over which the start is told */
};

/* --------------------------------------------------------------- reading the request */

static int decode_fds(struct spawn *s, const struct msg *m)
{
    int *slots[] = { &s->std_fds[0], &s->std_fds[1], &s->std_fds[2], &s->filter_fd };
    size_t next = 0;

    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        *slots[i] = -1;
        if (!(s->args->flags & (1U << i)))
            continue;
        if (next == m->fd_count)
            return CUT_OFF;
        *slots[i] = m->fds[next++];
    }
    return next == m->fd_count ? 0 : CUT_OFF;
}

static int decode(struct spawn *s, const struct msg *m, struct cove_err *e)
{
    const struct box_spawn *args = m->body;
    size_t count = 3 + (size_t)args->argc + args->envc + !!(args->flags & SPAWN_NOTE);
    int r;

    s->args = args;
    if (args->argc < 1 || args->argc > MAX_ARGS || args->envc > MAX_ENV ||
        (args->flags & ~(uint32_t)SPAWN_ALL) || decode_fds(s, m) < 0)
        return CUT_OFF;
    s->strings = malloc(count * sizeof(char *));
    if (!s->strings)
        return cove_fail(e, COVE_LIMIT, "out of memory");
    r = tail_strings(m, sizeof(*args), s->strings, count);
    if (r < 0)
        return r;
    s->user = s->strings[0];
    s->cwd = s->strings[1];
    s->label = s->strings[2];
    s->note = args->flags & SPAWN_NOTE ? s->strings[count - 1] : NULL;
    return 0;
}

static int check(const struct spawn *s, struct cove_err *e)
{
    uint32_t flags = s->args->flags;

    if ((flags & SPAWN_PTY) && (flags & (SPAWN_FDS & ~SPAWN_FD_FILTER)))
        return cove_fail(e, COVE_INVALID, "a terminal takes the place of stdin, stdout and stderr");
    if ((flags & SPAWN_STDIN) && (flags & (SPAWN_FD_STDIN | SPAWN_PTY)))
        return cove_fail(e, COVE_INVALID, "two standard inputs");
    if ((flags & SPAWN_NOTIFY) && !(flags & SPAWN_FD_FILTER))
        return cove_fail(e, COVE_INVALID, "notifications need a filter");
    if ((flags & SPAWN_HOLD) && !(flags & SPAWN_LOG))
        return cove_fail(e, COVE_INVALID, "there is no log to hold");
    if (strlen(s->label) >= MAX_LABEL)
        return cove_fail(e, COVE_INVALID, "label is longer than %d", MAX_LABEL - 1);
    if (!s->strings[3][0])
        return cove_fail(e, COVE_INVALID, "the command's name is empty");
    return 0;
}

/* --------------------------------------------------------------- argv, environment, filter */

static bool is_passed(const struct spawn *s, const char *name)
{
    size_t len = strlen(name);
    const char **env = s->strings + 3 + s->args->argc;

    for (uint32_t i = 0; i < s->args->envc; i++)
        if (strncmp(env[i], name, len) == 0 && env[i][len] == '=')
            return true;
    return false;
}

/*
 * The variable that makes programs use UTF-8. LANG makes each of them read all thirteen files of the
 * locale at its start, a tenth of what `bash -c true` takes; LC_CTYPE makes them read the one that
 * differs from the "C" locale. Where that file is missing bash complains about LC_CTYPE, but not
 * about LANG.
 */
static const char *utf8_variable(void)
{
    static const char *name;

    if (!name)
        name = access("/usr/lib/locale/C.utf8/LC_CTYPE", F_OK) == 0 ? "LC_CTYPE" : "LANG";
    return name;
}

static bool is_default_wanted(const struct spawn *s, const char *name)
{
    if (strcmp(name, "LC_CTYPE") == 0 && (is_passed(s, "LANG") || is_passed(s, "LC_ALL")))
        return false; /* the request has a locale of its own */
    return !is_passed(s, name);
}

static int make_env(struct spawn *s, struct cove_err *e)
{
    const struct user *u = &s->job.user;
    const struct {
        const char *name, *value;
    } defaults[] = {
        { "PATH", DEFAULT_PATH }, { "HOME", u->home },   { "USER", u->name },
        { "LOGNAME", u->name },   { "SHELL", u->shell }, { utf8_variable(), "C.UTF-8" },
    };
    const char **passed = s->strings + 3 + s->args->argc;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(defaults); i++) {
        if (!is_default_wanted(s, defaults[i].name))
            continue;
        snprintf(s->defaults[i], sizeof(s->defaults[i]), "%s=%s", defaults[i].name,
                 defaults[i].value);
        s->env[n++] = s->defaults[i];
    }
    for (uint32_t i = 0; i < s->args->envc; i++) {
        if (passed[i][0] == '=' || !strchr(passed[i], '='))
            return cove_fail(e, COVE_INVALID, "environment '%.60s' is not NAME=VALUE", passed[i]);
        s->env[n++] = (char *)passed[i];
    }
    s->env[n] = NULL;
    return 0;
}

static int make_vectors(struct spawn *s, struct cove_err *e)
{
    s->argv = calloc(s->args->argc + 1, sizeof(char *));
    s->env = calloc(s->args->envc + ARRAY_SIZE(s->defaults) + 1, sizeof(char *));
    if (!s->argv || !s->env)
        return cove_fail(e, COVE_LIMIT, "out of memory");
    memcpy(s->argv, s->strings + 3, s->args->argc * sizeof(char *));
    s->job.argv = s->argv;
    s->job.env = s->env;
    return make_env(s, e);
}

/* Looked at here and not in the child: a file that is no regular one could keep us waiting. */
static int check_filter(struct spawn *s, struct cove_err *e)
{
    struct stat *st = &s->filter_file;

    if (s->filter_fd >= 0 && (fstat(s->filter_fd, st) < 0 || !S_ISREG(st->st_mode)))
        return cove_fail(e, COVE_INVALID, "the filter is not a file");
    return 0;
}

static int read_filter(struct spawn *s, struct cove_err *e)
{
    static LARGE struct sock_filter filter[FILTER_MAX];
    off_t size = s->filter_file.st_size;
    ssize_t n;

    if (s->filter_fd < 0)
        return 0;
    n = pread(s->filter_fd, filter, sizeof(filter), 0);
    if (n <= 0 || n % (ssize_t)sizeof(*filter) || n != size)
        return cove_fail(e, COVE_INVALID, "the filter has %lld bytes", (long long)size);
    s->job.filter.filter = filter;
    s->job.filter.len = (unsigned short)((size_t)n / sizeof(*filter));
    return 0;
}

static int read_user(struct spawn *s, struct cove_err *e)
{
    if (user_find(s->user, &s->job.user, e) < 0)
        return -1;
    s->job.cwd_is_home = !s->cwd[0];
    s->job.cwd = s->cwd_path;
    if (s->job.cwd_is_home)
        text_copy(s->cwd_path, sizeof(s->cwd_path), s->job.user.home);
    else if (user_path(&s->job.user, s->cwd, s->cwd_path, e) < 0)
        return -1;
    return 0;
}

/* --------------------------------------------------------------- stdin, stdout, stderr */

static int make_pty(struct init *in, struct spawn *s, struct proc *p, struct cove_err *e)
{
    struct winsize size = { .ws_row = s->args->rows, .ws_col = s->args->cols };
    int unlock = 0, slave;

    p->pty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (p->pty < 0 || ioctl(p->pty, TIOCSPTLCK, &unlock) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a terminal");
    slave = ioctl(p->pty, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return cove_fail_errno(e, COVE_LIMIT, "opening a terminal");
    s->child_fds[0] = slave;
    ioctl(p->pty, TIOCSWINSZ, &size);
    if (fchown(slave, s->job.user.uid, (gid_t)-1) < 0 || fchmod(slave, 0620) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "giving a terminal to '%s'", s->job.user.name);
    s->job.stdio[0] = s->job.stdio[1] = s->job.stdio[2] = slave;
    s->job.pty = true;
    return s->args->flags & SPAWN_LOG ? log_add_pty(in, p, e) : 0;
}

static int make_stdin(struct spawn *s, struct proc *p, struct cove_err *e)
{
    int fds[2];

    s->job.stdio[0] = s->std_fds[0] >= 0 ? s->std_fds[0] : STDIN_FILENO; /* ours is /dev/null */
    if (!(s->args->flags & SPAWN_STDIN))
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a pipe");
    s->job.stdio[0] = s->child_fds[0] = fds[0];
    p->stdin_fd = fds[1];
    return 0;
}

static int make_output(struct init *in, struct spawn *s, struct proc *p, int fd, struct cove_err *e)
{
    if (s->std_fds[fd] >= 0 || !(s->args->flags & SPAWN_LOG)) {
        s->job.stdio[fd] = s->std_fds[fd] >= 0 ? s->std_fds[fd] : fd;
        return 0;
    }
    if (log_add_pipe(in, p, fd == 1 ? RING_STDOUT : RING_STDERR, &s->child_fds[fd], e) < 0)
        return -1;
    s->job.stdio[fd] = s->child_fds[fd];
    return 0;
}

static int make_stdio(struct init *in, struct spawn *s, struct proc *p, struct cove_err *e)
{
    if ((s->args->flags & SPAWN_LOG) && log_new(in, p, s->args->log_bytes, e) < 0)
        return -1;
    if (s->args->flags & SPAWN_PTY)
        return make_pty(in, s, p, e);
    if (make_stdin(s, p, e) < 0 || make_output(in, s, p, 1, e) < 0)
        return -1;
    return make_output(in, s, p, 2, e);
}

static int make_socket(struct spawn *s, struct cove_err *e)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a socket");
    s->sock = fds[0];
    s->job.sock = fds[1];
    return 0;
}

/* --------------------------------------------------------------- the process */

static char *shown_command(const struct spawn *s)
{
    char text[COMMAND_SHOWN];
    size_t len = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < s->args->argc && len < sizeof(text) - 1; i++) {
        snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", s->strings[3 + i]);
        len += strlen(text + len);
    }
    return strdup(text);
}

static struct proc *make_proc(struct init *in, const struct spawn *s, struct cove_err *e)
{
    struct proc *p = calloc(1, sizeof(*p));

    if (!p) {
        cove_fail(e, COVE_LIMIT, "out of memory");
        return NULL;
    }
    TAILQ_INIT(&p->wants);
    p->stdin_fd = p->pty = -1;
    p->flags = s->args->flags;
    p->context = s->args->context;
    p->running = true;
    p->label = strdup(s->label);
    p->command = shown_command(s);
    p->note = s->note ? strdup(s->note) : NULL;
    p->end.started_unix_ms = clock_unix_ms();
    proc_set_deadline(in, p, s->args->timeout_ms);
    p->oom_before = cgroup_oom_kills(in);
    p->pids_before = cgroup_pids_refused(in);
    if (!p->label || !p->command)
        cove_fail(e, COVE_LIMIT, "out of memory");
    else if (proc_add(in, p, e) == 0)
        return p;
    proc_free(in, p);
    return NULL;
}

static int start(struct init *in, struct spawn *s, struct proc *p, struct cove_err *e)
{
    int cgroup_fd;

    if (make_socket(s, e) < 0 || cgroup_make(in, &p->cgroup, &cgroup_fd, e) < 0)
        return -1;
    p->pid = exec_start(&s->job, cgroup_fd, e);
    if (p->pid < 0)
        cgroup_leave(in, p->number, &p->cgroup);
    return p->pid < 0 ? -1 : 0;
}

/* From the process made ahead, if it fits; and the next one is to be like this one. */
static int start_quickly(struct init *in, struct spawn *s, struct proc *p, struct cove_err *e)
{
    bool notify = s->args->flags & SPAWN_NOTIFY;

    if (spare_take(in, &s->job, &s->filter_file, p, &s->sock) == 0)
        return 0;
    if (read_filter(s, e) < 0 || start(in, s, p, e) < 0)
        return -1;
    if (s->job.filter.len > 0)
        spare_remember(in, &s->filter_file, &s->job.filter, notify);
    return 0;
}

static int carry_out(struct init *in, struct spawn *s, struct conn *c, uint32_t tag,
                     struct cove_err *e)
{
    struct proc *p = make_proc(in, s, e);
    struct want *w;

    if (!p)
        return -1;
    w = want_new(c, p, WANT_EXIT, tag, e);
    if (w)
        w->spawner = true;
    if (!w || make_stdio(in, s, p, e) < 0 || start_quickly(in, s, p, e) < 0) {
        proc_free(in, p);
        return -1;
    }
    if (s->args->flags & SPAWN_HOLD)
        log_hold(p, c, 0);
    if (start_watch(in, c, tag, p, take_fd(&s->sock), e) < 0) {
        proc_kill_tree(in, p); /* its end is reaped as nobody's */
        cgroup_leave(in, p->number, &p->cgroup);
        proc_free(in, p);
        return -1;
    }
    return 0;
}

static void spawn_done(struct spawn *s)
{
    for (int i = 0; i < 3; i++)
        cove_close(s->child_fds[i]);
    cove_close(s->job.sock);
    cove_close(s->sock);
    free(s->strings);
    free(s->argv);
    free(s->env);
}

/* Safe: it runs with the bounding set, the user and the filter it was given, in this sandbox and in
 * no other. */
int on_spawn(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    static LARGE struct spawn s; /* large, and one at a time */
    int r;

    memset(&s, 0, offsetof(struct spawn, defaults));
    memset(&s.argv, 0, sizeof(s) - offsetof(struct spawn, argv));
    s.child_fds[0] = s.child_fds[1] = s.child_fds[2] = s.job.sock = s.sock = -1;
    r = decode(&s, m, e);
    if (r == 0) {
        s.job.notify = s.args->flags & SPAWN_NOTIFY;
        s.job.max_open_files = s.args->max_open_files;
        s.job.max_file_bytes = s.args->max_file_bytes;
        if (check(&s, e) < 0 || read_user(&s, e) < 0 || make_vectors(&s, e) < 0 ||
            check_filter(&s, e) < 0) {
            r = -1;
        } else {
            meminfo_refresh(in);
            r = carry_out(in, &s, c, m->head.tag, e);
        }
    }
    spawn_done(&s);
    spare_soon(in);
    return r;
}
