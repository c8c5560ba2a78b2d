// class: exhaustion
// promise: no filter on a socket takes the memory in which the kernel compiles the filters of all
// refused: EPERM
// control: host
#include <linux/filter.h>

#include "attempt.h"

/* The filter drops everything. The profile says that it was attached, and a datagram arrives all the same. */
int main(void)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = { 1, &drop };
    int ends[2];
    char byte = 'x';

    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0)
        return 2;
    if (setsockopt(ends[1], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0)
        return refused("SO_ATTACH_FILTER");
    if (write(ends[0], &byte, 1) == 1 && recv(ends[1], &byte, 1, MSG_DONTWAIT) == 1) {
        errno = EPERM;
        return refused("SO_ATTACH_FILTER without effect");
    }
    printf("ESCAPED: the filter is attached\n");
    return ESCAPED;
}
