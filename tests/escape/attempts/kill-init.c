// class: processes
// promise: init does not die of a signal from inside
// refused: EPERM
#include "attempt.h"

int main(void)
{
    kill(1, SIGKILL);
    kill(1, SIGTERM);
    kill(1, SIGSEGV);
    usleep(50000);
    errno = EPERM;
    return refused("we are still here");
}
