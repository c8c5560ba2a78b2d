// class: network
// promise: the interface does not listen to what is not for it
// refused: EPERM
// world: internet
// control: host
#include "attempt.h"
#include <net/if.h>

int main(void)
{
    struct ifreq r = { .ifr_name = "eth0", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_PROMISC };

    return TRY(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &r));
}
