// class: identity
// promise: no process is made immune against the host's OOM killer
// refused: EACCES
// control: host
// needs: CAP_SYS_RESOURCE
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);

    return fd < 0 ? refused("open") : TRY(write(fd, "-1000", 5));
}
