// class: mounts
// promise: debugfs and tracefs stay closed
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(mount("debugfs", "/mnt", "debugfs", 0, NULL));
}
