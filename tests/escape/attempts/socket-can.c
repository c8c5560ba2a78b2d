// class: network
// promise: no socket of the family can
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_CAN, SOCK_RAW, 1));
}
