// class: network
// promise: the kernel's crypto sockets stay closed
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_ALG, SOCK_SEQPACKET, 0));
}
