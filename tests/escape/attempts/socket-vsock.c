// class: network
// promise: the hypervisor's sockets stay closed
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_VSOCK, SOCK_STREAM, 0));
}
