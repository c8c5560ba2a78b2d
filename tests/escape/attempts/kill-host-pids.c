// class: processes
// promise: no signal reaches a process of the host
// refused: ESRCH
// control: host pids
#include "attempt.h"

int main(void)
{
    int pid = atoi(world("DECOY_PID"));

    return TRY(kill(pid, SIGKILL));
}
