// class: identity
// promise: no process becomes a real-time one
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    struct sched_param p = { .sched_priority = 99 };

    return TRY(sched_setscheduler(0, SCHED_FIFO, &p));
}
