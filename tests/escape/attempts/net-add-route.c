// class: network
// promise: no route is made
// refused: EPERM
// world: internet
// control: host
#include "attempt.h"
#include <arpa/inet.h>
#include <net/route.h>

int main(void)
{
    struct rtentry r = { .rt_flags = RTF_UP | RTF_HOST, .rt_dev = "eth0" };
    struct sockaddr_in *to = (struct sockaddr_in *)&r.rt_dst;

    to->sin_family = AF_INET;
    to->sin_addr.s_addr = htonl(0xcb007101);
    return TRY(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCADDRT, &r));
}
