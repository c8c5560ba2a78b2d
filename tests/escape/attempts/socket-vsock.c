// class: network
// promise: the hypervisor's sockets stay closed
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_VSOCK, SOCK_STREAM, 0));
}
