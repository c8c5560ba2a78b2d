// class: files
// promise: the limit on the disk cannot be switched off
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_quota_ctl_args args = { .cmd = BTRFS_QUOTA_CTL_DISABLE };

    return btrfs_try("BTRFS_IOC_QUOTA_CTL", BTRFS_IOC_QUOTA_CTL, &args);
}
