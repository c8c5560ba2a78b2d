// class: network
// promise: no socket of the family xdp
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_XDP, SOCK_RAW, 0));
}
