// class: files
// promise: init's program on the host is not written (the runc attack)
// refused: EACCES
#include "attempt.h"

int main(void)
{
    return TRY(open("/proc/1/exe", O_WRONLY));
}
