/* The calls of quotactl_fd() and the ioctl that give a directory its project. */
#include "sandbox/box/project.h"

#include <errno.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443 /* Linux 5.14 */
#endif

enum { BLOCK = 1024 }; /* the unit of limits on bytes, whatever the file system's own blocks are */

static int call(int fd, unsigned command, uint32_t project, void *arg)
{
    return (int)syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), project, arg);
}

/* ext4 counts where the feature is on, but refuses nothing unless it was mounted with prjquota. */
int project_check(int fd, struct cove_err *e)
{
    struct fs_quota_stat state = { .qs_version = FS_QSTAT_VERSION };

    if (call(fd, Q_XGETQSTAT, 0, &state) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "project quotas of state_dir's file system");
    if (!(state.qs_flags & FS_QUOTA_PDQ_ENFD))
        return cove_fail(e, COVE_UNSUPPORTED,
                         "state_dir's file system is not mounted with the option prjquota");
    return 0;
}

/* Q_GETQUOTA and Q_SETQUOTA are understood by XFS, too. XFS has no record of a project that never
 * was used. */
int project_get(int fd, uint32_t project, struct project_quota *ret)
{
    struct if_dqblk q = { 0 };

    if (call(fd, Q_GETQUOTA, project, &q) < 0 && errno != ENOENT)
        return -1;
    *ret = (struct project_quota){
        .limit_bytes = q.dqb_bsoftlimit * BLOCK,
        .limit_inodes = q.dqb_isoftlimit,
        .hard_limit_bytes = q.dqb_bhardlimit * BLOCK,
        .hard_limit_inodes = q.dqb_ihardlimit,
        .used_bytes = q.dqb_curspace,
        .used_inodes = q.dqb_curinodes,
    };
    return 0;
}

int project_set(int fd, uint32_t project, const struct project_quota *q)
{
    struct if_dqblk limits = {
        .dqb_bsoftlimit = q->limit_bytes / BLOCK,
        .dqb_isoftlimit = q->limit_inodes,
        .dqb_bhardlimit = q->hard_limit_bytes / BLOCK,
        .dqb_ihardlimit = q->hard_limit_inodes,
        .dqb_valid = QIF_LIMITS,
    };

    return call(fd, Q_SETQUOTA, project, &limits);
}

int project_mark(int dir, uint32_t project)
{
    struct fsxattr attr;

    if (ioctl(dir, FS_IOC_FSGETXATTR, &attr) < 0)
        return -1;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    attr.fsx_projid = project;
    return ioctl(dir, FS_IOC_FSSETXATTR, &attr);
}
