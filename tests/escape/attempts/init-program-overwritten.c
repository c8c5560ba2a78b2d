// class: files
// promise: init's program on the host is not written (the runc attack)
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    /* ETXTBSY: only a moment in which it does not run is missing */
    return PAST(open("/proc/1/exe", O_WRONLY), ETXTBSY);
}
