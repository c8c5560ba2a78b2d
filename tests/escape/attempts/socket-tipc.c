// class: network
// promise: other families stay closed: tipc
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_TIPC, SOCK_STREAM, 0));
}
