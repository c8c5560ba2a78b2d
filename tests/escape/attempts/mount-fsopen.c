// class: mounts
// promise: the new mount API is closed: fsopen
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(fsopen("tmpfs", 0));
}
