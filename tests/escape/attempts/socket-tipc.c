// class: network
// promise: no socket of the family tipc
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_TIPC, SOCK_STREAM, 0));
}
