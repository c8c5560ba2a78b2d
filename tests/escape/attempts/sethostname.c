// class: kernel
// promise: the host keeps its name
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(sethostname("owned", 5));
}
