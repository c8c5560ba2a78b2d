// class: identity
// promise: no process takes the cpu before all others
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(setpriority(PRIO_PROCESS, 0, -20));
}
