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
#include "tests/fuzz/packets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        send_packet(pair[1], 192, 32, &s);
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
