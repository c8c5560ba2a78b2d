// class: processes
// promise: init is not seized
// refused: EPERM
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(ptrace(PTRACE_SEIZE, 1, NULL, NULL));
}
