// class: network
// promise: no socket of the family bluetooth
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_BLUETOOTH, SOCK_RAW, 0));
}
