// class: network
// promise: no network interface is made
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

int main(void)
{
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
    } up = { { sizeof(up), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 },
             { .ifi_index = 1, .ifi_change = IFF_UP } };
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char more[512];
    } answer = { 0 };
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

    if (s < 0 || send(s, &up, sizeof(up), 0) < 0 || recv(s, &answer, sizeof(answer), 0) < 0)
        return refused("netlink");
    errno = -answer.e.error;
    return verdict(answer.e.error ? -1 : 0, "taking lo down");
}
