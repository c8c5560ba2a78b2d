// class: identity
// promise: a file cannot be given to the host's root
// refused: EINVAL
// control: host
// as: root
#include "attempt.h"

int main(void)
{
    int fd = open("/workspace/gift", O_CREAT | O_WRONLY, 0755);

    return fd < 0 ? refused("open") : TRY(fchown(fd, 70000, 70000));
}
