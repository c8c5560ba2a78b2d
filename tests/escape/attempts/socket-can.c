// class: network
// promise: other families stay closed: can
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_CAN, SOCK_RAW, 1));
}
