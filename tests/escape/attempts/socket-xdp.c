// class: network
// promise: other families stay closed: xdp
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_XDP, SOCK_RAW, 0));
}
