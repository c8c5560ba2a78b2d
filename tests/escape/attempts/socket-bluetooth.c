// class: network
// promise: other families stay closed: bluetooth
#include "attempt.h"

int main(void)
{
    return TRY(socket(AF_BLUETOOTH, SOCK_RAW, 0));
}
