// class: files
// promise: no copy of a volume that has no limit
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_vol_args_v2 args = { .fd = open("/var/tmp", O_RDONLY), .name = "cove-copy" };

    return btrfs_try("BTRFS_IOC_SNAP_CREATE_V2", BTRFS_IOC_SNAP_CREATE_V2, &args);
}
