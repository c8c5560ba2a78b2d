// class: network
// promise: abstract sockets of the host are not reached
// refused: ECONNREFUSED
// weak: opens
#include "attempt.h"
#include <stddef.h>
#include <sys/un.h>

int main(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, SOCK_STREAM, 0);

    strcpy(a.sun_path + 1, world("ABSTRACT"));
    return TRY(connect(
        s, (void *)&a,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(world("ABSTRACT")))));
}
