/*
 * Starting cove-bucket: the workers' user, no capabilities, the host's network, and nothing but the
 * descriptors that its order needs. The credentials reach it in a file that exists in memory only: they
 * are in no argument, no environment and no log.
 */
#include "sandbox/box/bucket_start.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg.h"

#define OWNER_FILE                                                                                 \
    "machine" /* below state_dir: this machine's name among those that share a bucket */

enum { CREDENTIALS_MAX = 16 * 1024 };

bool bucket_is_configured(const struct cove_config *c)
{
    return c->store_bucket[0] != '\0';
}

/* ------------------------------------------------------------------ what cove-bucket must know */

static int read_or_make_owner(int state_dir, char ret[BUCKET_OWNER_TEXT], struct cove_err *e)
{
    unsigned char bytes[BUCKET_OWNER_TEXT / 2];
    AUTO_CLOSE int fd = -1;

    if (read_file_at(state_dir, OWNER_FILE, ret, BUCKET_OWNER_TEXT) == BUCKET_OWNER_TEXT - 1)
        return 0;
    text_random(bytes, sizeof(bytes));
    text_hex(bytes, sizeof(bytes), ret);
    fd = openat(state_dir, OWNER_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, ret, BUCKET_OWNER_TEXT - 1) != BUCKET_OWNER_TEXT - 1 || fsync(fd) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "this machine's name for the bucket");
    return 0;
}

int bucket_fill_order(const struct cove_config *c, int state_dir, struct bucket_order *o,
                      struct cove_err *e)
{
    struct bucket_place *p = &o->place;

    if (!bucket_is_configured(c))
        return cove_fail(e, COVE_UNSUPPORTED, "store_bucket is not configured");
    text_copy(p->endpoint, sizeof(p->endpoint), c->store_endpoint);
    text_copy(p->region, sizeof(p->region), c->store_region);
    text_copy(p->bucket, sizeof(p->bucket), c->store_bucket);
    text_copy(p->prefix, sizeof(p->prefix), c->store_prefix);
    p->path_style = (uint32_t)c->store_path_style;
    p->stall_ms = (uint32_t)c->store_stall_ms;
    p->part_bytes = c->store_part_bytes;
    p->has_ca = c->store_ca[0] != '\0';
    return read_or_make_owner(state_dir, o->owner, e);
}

static int from_environment(char *out, size_t size, struct cove_err *e)
{
    const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY"),
               *token = getenv("AWS_SESSION_TOKEN");
    int len;

    if (!key || !secret)
        return cove_fail(e, COVE_INVALID,
                         "store_credentials is not configured, and the environment has no "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    len = snprintf(out, size,
                   "aws_access_key_id=%s\naws_secret_access_key=%s\naws_session_token=%s\n", key,
                   secret, token ? token : "");
    return (size_t)len < size ? len : cove_fail(e, COVE_INVALID, "credentials are too long");
}

/* Only root may read the operator's file; the copy is for one process. */
int bucket_open_credentials(const struct cove_config *c, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    char text[CREDENTIALS_MAX];
    ssize_t len;
    bool written;

    if (c->store_credentials[0])
        len = read_file_at(AT_FDCWD, c->store_credentials, text, sizeof(text));
    else
        len = from_environment(text, sizeof(text), e);
    if (len < 0)
        return c->store_credentials[0]
                   ? cove_fail_errno(e, COVE_INVALID, "store_credentials: %s", c->store_credentials)
                   : -1;
    fd = memfd_create("cove-credentials", MFD_CLOEXEC);
    written = fd >= 0 && write(fd, text, (size_t)len) == len;
    explicit_bzero(text, sizeof(text));
    if (!written)
        return cove_fail_errno(e, COVE_INTERNAL, "credentials");
    *ret = take_fd(&fd);
    return 0;
}

int bucket_open_ca(const struct cove_config *c, int *ret, struct cove_err *e)
{
    *ret = c->store_ca[0] ? open(c->store_ca, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (c->store_ca[0] && *ret < 0)
        return cove_fail_errno(e, COVE_INVALID, "store_ca: %s", c->store_ca);
    return 0;
}

/* ------------------------------------------------------------------ the process */

static int place(int from, int at)
{
    int fd = from >= 0 ? fcntl(from, F_DUPFD, 100) : open("/dev/null", O_RDWR);

    return fd < 0 || dup2(fd, at) != at || close(fd) < 0 ? -1 : 0;
}

static void become(const struct bucket_args *args, int sock)
{
    char *const env[] = { "LC_ALL=C.UTF-8", NULL };
    char *const argv[] = { "cove: bucket", NULL };
    int exe = fcntl(args->exe, F_DUPFD_CLOEXEC, 100), high = fcntl(sock, F_DUPFD_CLOEXEC, 100);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (place(args->in, 0) < 0 || place(args->out, 1) < 0 || dup2(high, BUCKET_SOCK_FD) < 0 ||
        setgroups(1, &args->gid) < 0 || setresgid(args->gid, args->gid, args->gid) < 0 ||
        setresuid(args->uid, args->uid, args->uid) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(127);
    execveat(exe, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

static int give_order(const struct bucket_args *args, int sock, struct cove_err *e)
{
    int fds[2 + BUCKET_NOTES], notes = __builtin_popcount(args->order->notes);
    size_t count = 0;

    fds[count++] = args->credentials;
    if (args->order->place.has_ca)
        fds[count++] = args->ca;
    for (int i = 0; i < notes; i++)
        fds[count++] = args->notes[i];
    return msg_send(
        sock,
        &(struct msg_out){ BUCKET_ORDER, MSG_BODY(*args->order), .fds = fds, .fd_count = count },
        MSG_DONTWAIT, e);
}

int bucket_start(const struct bucket_args *args, struct boxed *ret, struct cove_err *e)
{
    struct boxed b = { 0 };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "socket to a job");
    b.sock = pair[0];
    b.pid = fork();
    if (b.pid == 0)
        become(args, pair[1]);
    close(pair[1]);
    b.pidfd = b.pid > 0 ? pidfd_open(b.pid, 0) : -1;
    if (b.pidfd < 0) {
        cove_fail_errno(e, COVE_INTERNAL, "starting cove-bucket");
    } else if (fcntl(b.pidfd, F_SETFD, FD_CLOEXEC) == 0 && give_order(args, b.sock, e) == 0) {
        *ret = b;
        return 0;
    }
    if (b.pid > 0) {
        kill(b.pid, SIGKILL);
        waitpid(b.pid, NULL, 0);
    }
    cove_close(b.pidfd);
    close(b.sock);
    return -1;
}

int bucket_hear(int sock, struct bucket_report *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { BUCKET_REPORT, sizeof(struct bucket_report), 0, 0, 0 },
        { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct bucket_report) + sizeof(struct cove_err)];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return cove_fail(e, COVE_INTERNAL, "cove-bucket ended without saying why");
    if (m.head.type == MSG_ERROR)
        return msg_raise(&m, e);
    memcpy(ret, m.body, sizeof(*ret));
    return 0;
}
