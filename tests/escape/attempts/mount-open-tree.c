// class: mounts
// promise: the new mount API is closed: open_tree
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE));
}
