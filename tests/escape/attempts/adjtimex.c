// class: kernel
// promise: the clock's speed is not changed
// refused: EPERM
// control: host
#include "attempt.h"
#include <sys/timex.h>

int main(void)
{
    struct timex t = { .modes = ADJ_TICK, .tick = 10000 };

    return TRY(adjtimex(&t));
}
