// class: mounts
// promise: debugfs and tracefs stay closed
#include "attempt.h"

int main(void)
{
    return TRY(mount("debugfs", "/mnt", "debugfs", 0, NULL));
}
