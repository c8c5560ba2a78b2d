// class: files
// promise: the pool cannot be resized
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_vol_args args = { .name = "1:max" };

    return btrfs_try("BTRFS_IOC_RESIZE", BTRFS_IOC_RESIZE, &args);
}
