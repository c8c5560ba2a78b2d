// class: files
// promise: no volume of a sandbox's own, which would have no limit
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_vol_args args = { .name = "cove-own-volume" };

    return btrfs_try("BTRFS_IOC_SUBVOL_CREATE", BTRFS_IOC_SUBVOL_CREATE, &args);
}
