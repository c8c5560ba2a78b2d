// class: kernel
// promise: the clock is not set
// refused: EPERM
// control: host
#include "attempt.h"
#include <time.h>

int main(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return TRY(clock_settime(CLOCK_REALTIME, &now));
}
