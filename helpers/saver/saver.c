/*
 * The saver: packs the files of one sandbox into an archive, or unpacks one.
 *
 * privilege  root of a user namespace that has the ids of that one sandbox, and nobody on the host;
 *            no network; seccomp without execve, sockets, mounts and namespaces
 * does       one order of the keeper, and ends
 * never      sees another sandbox's files, another archive, or the host's files once it has begun
 *
 * The keeper starts one process for each order (sandbox/box/boxed.c). Descriptor 0 is the archive to
 * read, 1 the archive to write, 3 the connection to the keeper, on which the order comes, with the
 * sandbox's files beside it, and the report goes. When the keeper dies, so does the saver.
 */
#include <fcntl.h>
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

static int take_order(struct saver_order *ret, int *ret_files, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { SAVER_ORDER, sizeof(struct saver_order), 0, 0, 1 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct saver_order)];
    struct msg m;

    if (msg_recv(KEEPER_FD, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "no order came");
    memcpy(ret, m.body, sizeof(*ret));
    *ret_files = m.fd_count ? m.fds[0] : -1;
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

static int work(struct saver_report *ret, struct cove_err *e)
{
    struct saver_order order;
    int files = -1;

    if (take_order(&order, &files, e) < 0 || set_limits(e) < 0 ||
        enter_files(files, order.attach, e) < 0 ||
        confine(order.work == SAVER_UNPACK_TREE ? CONFINE_UNPACK : CONFINE_PACK, NULL, e) < 0)
        return -1;
    switch (order.work) {
    case SAVER_PACK_TREE:
        return saver_pack(1, &order, ret, e);
    case SAVER_UNPACK_TREE:
        return saver_unpack(0, &order, ret, e);
    case SAVER_DIGEST_FILE:
        if (fsync(0) < 0)
            return cove_fail_errno(e, COVE_LIMIT, "archive");
        return saver_digest(0, &ret->archive_bytes, ret->digest, e);
    default:
        return cove_fail(e, COVE_INVALID, "unknown kind of order");
    }
}

int main(void)
{
    struct saver_report report = { 0 };
    struct cove_err e = { 0 };
    int rc;

    log_init("saver", LOG_LEVEL_INFO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "cove-saver");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    setlocale(LC_CTYPE, "C.UTF-8"); /* names in archives are UTF-8 */
    rc = work(&report, &e);
    if (rc == 0)
        rc = msg_send(KEEPER_FD, &(struct msg_out){ SAVER_REPORT, MSG_BODY(report) }, 0, &e);
    else
        msg_send(KEEPER_FD, &(struct msg_out){ MSG_ERROR, MSG_BODY(e) }, 0, NULL);
    return rc < 0;
}
