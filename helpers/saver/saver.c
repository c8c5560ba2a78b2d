/*
 * The saver: packs the files of one sandbox into an archive, or unpacks one.
 *
 * privilege  root of a user namespace that has the ids of that one sandbox, and nobody on the host;
 *            no network; seccomp without execve, sockets, mounts and namespaces
 * does       one order of the keeper, and ends
 * never      sees another sandbox's files, another archive, or the host's files once it has begun
 *
 * The keeper starts one process for each order (sandbox/box/boxed.c), and one ahead. Descriptor 3 is the connection to the
 * keeper, on which the order comes and the report goes. Beside the order are the archive to read, which becomes
 * descriptor 0, the one to write, descriptor 1, and the sandbox's files. Until then the process is nobody, in its
 * namespaces and on the host. When the keeper dies, so does the saver.
 */
#include <fcntl.h>
#include <grp.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "helpers/saver/saver_private.h"
#include "process/confine.h"

enum { KEEPER_FD = 3, MEMORY_MAX = 512 << 20, FILES_MAX = 1024 };

static int place(int from, int at)
{
    return dup2(from, at) < 0 || close(from) < 0 ? -1 : 0;
}

static int take_order(struct saver_order *ret, int *ret_files, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { SAVER_ORDER, sizeof(struct saver_order), 0, 2, 3 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct saver_order)];
    struct msg m;

    if (msg_recv(KEEPER_FD, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "no order came");
    memcpy(ret, m.body, sizeof(*ret));
    *ret_files = m.fd_count > 2 ? m.fds[2] : -1;
    return place(m.fds[0], 0) < 0 || place(m.fds[1], 1) < 0
               ? cove_fail_errno(e, COVE_INTERNAL, "descriptors")
               : 0;
}

/* The keeper has mapped the ids: we become root of our user namespace, with the sandbox's ids on the host. The
 * kernel forgets the signal of our parent's death whenever a process changes its ids. */
static int take_identity(char *title, struct cove_err *e)
{
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "becoming root of the sandbox's files");
    prctl(PR_SET_NAME, "cove-saver");
    strncpy(title, "cove: saver", strlen(title)); /* fills the rest with zeros */
    return 0;
}

/* Makes the files the root directory. Attached as a mount, they replace all of the host's mounts; a directory
 * that cannot be attached becomes the root by chroot(), and the seccomp filter forbids every call that could
 * leave it. */
static int enter_files(int files, bool attach, struct cove_err *e)
{
    if (files < 0)
        return 0;
    if (attach) {
        if (move_mount(files, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
            chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
            umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
            return cove_fail_errno(e, COVE_UNSUPPORTED, "entering the sandbox's files");
    } else if (fchdir(files) < 0 || chroot(".") < 0) {
        return cove_fail_errno(e, COVE_UNSUPPORTED, "entering the sandbox's files");
    }
    close(files);
    return 0;
}

static int set_limits(struct cove_err *e)
{
    const struct rlimit memory = { MEMORY_MAX, MEMORY_MAX }, files = { FILES_MAX, FILES_MAX };

    /* libc would set 64 MiB of addresses aside for each thread. */
    if (mallopt(M_ARENA_MAX, 1) != 1 || setrlimit(RLIMIT_AS, &memory) < 0 ||
        setrlimit(RLIMIT_NOFILE, &files) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "limits");
    return 0;
}

static int work(const struct saver_order *order, struct saver_report *ret, struct cove_err *e)
{
    switch (order->work) {
    case SAVER_PACK_TREE:
        return saver_pack(1, order, ret, e);
    case SAVER_UNPACK_TREE:
        return saver_unpack(0, order, ret, e);
    case SAVER_DIGEST_FILE:
        if (fsync(0) < 0)
            return cove_fail_errno(e, COVE_LIMIT, "archive");
        return saver_digest(0, &ret->archive_bytes, ret->digest, e);
    default:
        return cove_fail(e, COVE_INVALID, "unknown kind of order");
    }
}

static void tell(int rc, const struct saver_report *report, const struct cove_err *e)
{
    if (rc == 0)
        msg_send(KEEPER_FD, &(struct msg_out){ SAVER_REPORT, MSG_BODY(*report) }, 0, NULL);
    else
        msg_send(KEEPER_FD, &(struct msg_out){ MSG_ERROR, MSG_BODY(*e) }, 0, NULL);
}

/* All of them are sent on their way first, so that the file system knows their blocks when the first fsync() writes its
 * journal: then it writes the journal once, not once for each. A file system that cannot send one off by itself does so in
 * fsync(). */
static int sync_all(const int *fds, size_t count, struct cove_err *e)
{
    for (size_t i = 0; i < count; i++)
        sync_file_range(fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
    for (size_t i = 0; i < count; i++)
        if (fsync(fds[i]) < 0)
            return cove_fail_errno(e, COVE_LIMIT, "the store cannot be written to");
    return 0;
}

/* The keeper has written more files beside the archive. */
static void sync_what_comes(const struct saver_report *report)
{
    static const struct msg_rule rules[] = { { SAVER_SYNC, 0, 0, 1, SAVER_SYNC_MAX }, { 0 } };
    char buf[sizeof(struct msg_head)];
    struct cove_err e = { 0 };
    struct msg m;

    while (msg_recv(KEEPER_FD, buf, sizeof(buf), rules, 0, &m, NULL) == 1) {
        tell(sync_all(m.fds, m.fd_count, &e), report, &e);
        msg_close_fds(&m);
    }
}

int main(int argc, char **argv)
{
    struct saver_report report = { 0 };
    struct saver_order order;
    struct cove_err e = { 0 };
    int files = -1, rc;

    log_init("saver", LOG_LEVEL_INFO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "cove-spare");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    setlocale(LC_CTYPE, "C.UTF-8"); /* names in archives are UTF-8 */
    if (argc < 1 || take_order(&order, &files, &e) < 0)
        return 1;
    rc = take_identity(argv[0], &e);
    if (rc == 0)
        rc = set_limits(&e);
    if (rc == 0)
        rc = enter_files(files, order.attach, &e);
    if (rc == 0)
        rc = confine(order.work == SAVER_UNPACK_TREE ? CONFINE_UNPACK : CONFINE_PACK, NULL, &e);
    if (rc == 0)
        rc = work(&order, &report, &e);
    tell(rc, &report, &e);
    if (rc == 0 && order.stays)
        sync_what_comes(&report);
    return rc < 0;
}
