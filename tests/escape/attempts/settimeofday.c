// class: kernel
// promise: the clock is not set the older way
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    struct timeval now;

    gettimeofday(&now, NULL);
    return TRY(settimeofday(&now, NULL));
}
