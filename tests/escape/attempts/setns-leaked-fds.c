// class: namespaces
// promise: no descriptor of the host's is left open in a command
// refused: EBADF
// control: host
#include "attempt.h"

int main(void)
{
    int leaked = 0;
    char link[64], target[256];

    for (int fd = 3; fd < 4096; fd++) {
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
        if (n > 0 && printf("fd %d: %.*s\n", fd, (int)n, target) > 0)
            leaked++;
    }
    errno = EBADF;
    return leaked ? ESCAPED : refused("no descriptor above 2");
}
