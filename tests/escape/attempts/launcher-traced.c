// class: processes
// promise: init's launcher, and what it makes, is not traced
// refused: EPERM
// weak: opens
#include "attempt.h"

int main(void)
{
    int launcher = TRY(ptrace(PTRACE_SEIZE, process_called("cove-launcher"), NULL, NULL));

    return launcher == ESCAPED
               ? ESCAPED
               : TRY(ptrace(PTRACE_SEIZE, process_called("cove-spare"), NULL, NULL));
}
