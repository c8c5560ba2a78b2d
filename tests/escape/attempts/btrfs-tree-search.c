// class: files
// promise: files of other sandboxes are not found in the pool
// refused: ENOTTY, EPERM
// control: pool
#include "btrfs.h"

int main(void)
{
    struct btrfs_ioctl_search_args args = {
        .key = { .tree_id = 1,
                 .max_objectid = -1,
                 .max_offset = -1,
                 .max_transid = -1,
                 .max_type = -1,
                 .nr_items = 10 },
    };

    return btrfs_try("BTRFS_IOC_TREE_SEARCH", BTRFS_IOC_TREE_SEARCH, &args);
}
