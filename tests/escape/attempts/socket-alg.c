// class: network
// promise: the kernel's crypto sockets stay closed
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_ALG, SOCK_SEQPACKET, 0));
}
