// class: network
// promise: no raw packets: nothing to spoof ARP or addresses with
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_PACKET, SOCK_RAW, 0));
}
