// class: network
// promise: the packet filter is not touched
// refused: EPERM
// as: root
// control: host
#include "attempt.h"
#include <linux/netlink.h>

int main(void)
{
    struct {
        struct nlmsghdr h;
        unsigned char family, version;
        unsigned short res;
    } get = { { sizeof(get), 10 << 8 | 16 /* NFT_MSG_GETGEN of nftables */,
                NLM_F_REQUEST | NLM_F_ACK, 1, 0 },
              1,
              0,
              0 };
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char more[512];
    } answer = { 0 };
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);

    if (s < 0 || send(s, &get, sizeof(get), 0) < 0 || recv(s, &answer, sizeof(answer), 0) < 0)
        return refused("netlink");
    errno = answer.h.nlmsg_type == NLMSG_ERROR ? -answer.e.error : 0;
    return verdict(errno ? -1 : 0, "nftables");
}
