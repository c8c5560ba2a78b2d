// class: namespaces
// promise: nobody joins init's namespaces by /proc/1/ns
// refused: EACCES
// control: host
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/1/ns/mnt", O_RDONLY);

    return fd < 0 ? refused("open") : TRY(setns(fd, 0));
}
