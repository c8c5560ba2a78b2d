// class: processes
// promise: init's memory is not read
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    char byte;
    struct iovec local = { &byte, 1 }, remote = { (void *)0x400000, 1 };

    return TRY(process_vm_readv(1, &local, 1, &remote, 1, 0));
}
