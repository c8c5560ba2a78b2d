// class: kernel
// promise: the host keeps its name
#include "attempt.h"

int main(void)
{
    return TRY(sethostname("owned", 5));
}
