// class: kernel
// promise: a crash leaves no core file and runs no program of the host's
// refused: EFBIG
// control: host
#include "attempt.h"

int main(void)
{
    int status;

    if (chdir("/workspace") < 0)
        return refused("chdir");
    if (fork() == 0)
        abort();
    wait(&status);
    errno = EFBIG;
    return WCOREDUMP(status) ? verdict(status, "core dump") : refused("core dump");
}
