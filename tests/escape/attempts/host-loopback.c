// class: network
// promise: services on the host's loopback are not reached
// refused: ECONNREFUSED
// weak: opens
#include "attempt.h"
#include <netinet/in.h>

int main(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(world("HOST_PORT"))),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    return TRY(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof(a)));
}
