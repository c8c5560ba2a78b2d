// class: processes
// promise: another process's memory is not steered
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    struct iovec v = { (void *)0x400000, 4096 };

    return fd < 0 ? refused("pidfd_open")
                  /* ENOMEM: that process has nothing there */
                  : PAST(syscall(SYS_process_madvise, fd, &v, 1, MADV_PAGEOUT, 0), ENOMEM);
}
