// class: files
// promise: the limit on the disk cannot be lifted
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = 1ULL << 40 },
    };

    return btrfs_try("BTRFS_IOC_QGROUP_LIMIT", BTRFS_IOC_QGROUP_LIMIT, &args);
}
