/*
 * What a worker (or `cove`) takes from an init that was taken over: sandbox/client/client.c and ring.c.
 * The input is a script: which question is asked, and the packets that lie there as answers, with
 * heads that fit or lie and descriptors of all kinds. Whatever it is, the call comes back, nothing
 * is read past its end, and no descriptor stays open.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/client.h"
#include "cove/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct script {
    const uint8_t *at, *end;
};

static uint8_t next(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

/* ------------------------------------------------------------------ init's side */

enum { WRONG_TAG = 1, WRONG_MAGIC = 2, WRONG_SIZE = 4, FDS_SHIFT = 3, KIND_SHIFT = 6 };

/* A memory file with bytes of the script in it: a ring, perhaps. */
static int memory_file(struct script *s)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t left = (size_t)(s->end - s->at);

    if (write(fd, s->at, left) != (ssize_t)left || ftruncate(fd, RING_HEAD_BYTES + 65536) < 0)
        abort();
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    return fd;
}

static int descriptor(unsigned kind, struct script *s)
{
    int ends[2];

    switch (kind) {
    case 0:
        return open("/dev/zero", O_RDONLY | O_CLOEXEC);
    case 1:
        if (pipe(ends) < 0)
            abort();
        close(ends[1]);
        return ends[0];
    case 2:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    default:
        return memory_file(s);
    }
}

/* flags, type, length in two bytes, body */
static void send_packet(int sock, struct script *s)
{
    uint8_t flags = next(s), type = next(s);
    size_t len = (size_t)next(s) << 8, count = flags >> FDS_SHIFT & 7, left;
    struct msg_head head = { MSG_MAGIC, type < 8 ? type : 192u + type % 32, 0, 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } space = { 0 };
    struct iovec iov[2] = { { &head, sizeof(head) } };
    struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };
    int fds[8];

    len |= next(s);
    left = (size_t)(s->end - s->at);
    len = len < left ? len : left;
    iov[1] = (struct iovec){ (void *)(uintptr_t)s->at, len };
    s->at += len;
    head.size = (uint32_t)(sizeof(head) + len + (flags & WRONG_SIZE ? 64 : 0));
    head.tag += flags & WRONG_TAG ? 7 : 0;
    head.magic ^= flags & WRONG_MAGIC ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        fds[i] = descriptor((unsigned)flags >> KIND_SHIFT, s);
    if (count) {
        mh.msg_control = space.bytes;
        mh.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *CMSG_FIRSTHDR(&mh) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
                                                .cmsg_level = SOL_SOCKET,
                                                .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, count * sizeof(int));
    }
    sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

/* ------------------------------------------------------------------ our side */

static int touch_entry(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    (void)arg;
    (void)st;
    return strlen(name) + strlen(target) > 8192;
}

static int touch_proc(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    (void)arg;
    (void)p;
    return strlen(label) + strlen(command) > 8192;
}

static int touch_kept(void *arg, int32_t wd, const char *path)
{
    (void)arg;
    (void)wd;
    return strlen(path) > 8192;
}

static void touch_pairs(const struct pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(pairs[i].name) + strlen(pairs[i].value) > MSG_MAX_BYTES)
            abort();
}

static void read_ring(int fd)
{
    static char record[RING_REC_MAX];
    struct ring_reader r;
    struct ring_rec rec;
    struct cove_err e;
    uint64_t gap;

    if (ring_reader_init(&r, fd, 0, &e) < 0)
        return;
    for (int i = 0; i < 1000 && ring_read(&r, &rec, record, &gap, &e) == 1; i++)
        if (rec.len > sizeof(record))
            abort();
}

static int ask(struct box_conn *c, uint8_t what, struct cove_err *e)
{
    static const char *const argv[] = { "true", NULL };
    const struct spawn_args spawn = {
        .argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .filter_fd = -1
    };
    const struct box_file change = { 0 };
    char target[MSG_PATH_MAX];
    struct box_log_opened opened;
    struct box_spawned spawned;
    struct box_event event;
    struct pair pairs[BOX_MARKS_MAX];
    struct box_stat st;
    const char *note;
    size_t count = 0;
    int32_t wd;
    int fd = -1, rc;

    switch (what % 15) {
    case 0:
        return box_file_stat(c, "root", "/x", 0, &st, e);
    case 1:
        rc = box_file_open(c, "root", "/x", O_RDONLY, 0, 0, &st, &fd, e);
        break;
    case 2:
        rc = box_port(c, 80, &fd, e);
        break;
    case 3:
        return box_list(c, "root", "/", touch_entry, NULL, e);
    case 4:
        return box_procs(c, touch_proc, NULL, e);
    case 5:
        rc = box_log(c, 1, NULL, &opened, &fd, e);
        if (rc == 0)
            read_ring(fd);
        break;
    case 6:
        rc = box_spawn(c, &spawn, &spawned, &fd, e);
        break;
    case 7:
        return box_next_event(c, 0, &event, e);
    case 8:
        rc = box_stdin(c, 1, NULL, false, &fd, e);
        break;
    case 9:
        rc = box_watch(c, "root", "/", 1, -1, &wd, &fd, e);
        break;
    case 10:
        return box_file_stat_link(c, "root", "/x", &st, target, e);
    case 11:
        rc = box_watch_kept(c, "w", touch_kept, NULL, &fd, e);
        break;
    case 12:
        rc = box_marks(c, "/x", "e2b", pairs, &count, e);
        touch_pairs(pairs, rc == 0 ? count : 0);
        return rc;
    case 13:
        rc = box_note(c, 1, &note, e);
        return rc == 0 && strlen(note) > MSG_MAX_BYTES ? -1 : rc;
    default:
        return box_file_change(c, BOX_REMOVE, "root", "/x", NULL, &change, e);
    }
    if (rc == 0 && fd >= 0)
        close(fd);
    return rc;
}

static int lowest_free(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script s = { data, data + size };
    struct box_conn c = { .sock = -1 };
    struct cove_err e = { 0 };
    uint8_t what = next(&s);
    int before = lowest_free(), pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    for (int i = 0; i < 8 && s.at < s.end; i++)
        send_packet(pair[1], &s);
    shutdown(pair[1], SHUT_WR); /* then it is gone: nobody waits for the deadline */
    c.sock = pair[0];
    if (ask(&c, what, &e) < 0 && memchr(e.msg, '\0', sizeof(e.msg)) == NULL)
        abort();
    box_close(&c);
    close(pair[1]);
    if (lowest_free() != before)
        abort(); /* a descriptor stayed open */
    return 0;
}
