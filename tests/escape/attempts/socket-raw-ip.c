// class: network
// promise: no raw IP
// refused: EPERM
// weak: opens
#include "attempt.h"
#include <netinet/in.h>

int main(void)
{
    return TRY(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
}
