// class: network
// promise: the neighbour table is not written: nothing to redirect packets with
// refused: EPERM
// world: internet
// control: host
#include "attempt.h"
#include <arpa/inet.h>
#include <net/if_arp.h>

int main(void)
{
    struct arpreq r = { .arp_flags = ATF_COM | ATF_PERM, .arp_dev = "eth0" };
    struct sockaddr_in *a = (struct sockaddr_in *)&r.arp_pa;

    a->sin_family = AF_INET;
    a->sin_addr.s_addr = htonl(0x0ac90001);
    r.arp_ha.sa_family = ARPHRD_ETHER;
    return TRY(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSARP, &r));
}
