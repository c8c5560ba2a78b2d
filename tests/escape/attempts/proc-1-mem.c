// class: processes
// promise: init's memory is not opened
// refused: EACCES
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    return TRY(open("/proc/1/mem", O_RDWR));
}
