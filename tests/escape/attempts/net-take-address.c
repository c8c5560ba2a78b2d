// class: network
// promise: an interface is given no other address
// refused: EPERM
// world: internet
// control: host
#include "attempt.h"
#include <arpa/inet.h>
#include <net/if.h>

int main(void)
{
    struct ifreq r = { .ifr_name = "eth0" };
    struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;

    a->sin_family = AF_INET;
    a->sin_addr.s_addr = htonl(0xcb007101); /* the host's, 203.0.113.1 */
    return TRY(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFADDR, &r));
}
