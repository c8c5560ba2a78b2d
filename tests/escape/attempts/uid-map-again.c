// class: identity
// promise: the id map is written once, by the keeper
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    int fd = open("/proc/self/uid_map", O_WRONLY), done[2], rc;
    char path[64];
    pid_t child;

    if (fd < 0 || write(fd, "0 0 4294967295", 14) == 14)
        return fd < 0 ? refused("open") : ESCAPED;
    /* The map of a namespace that has none yet: on a host its root may write it. */
    if (pipe(done) < 0 || (child = fork()) < 0)
        return refused("fork");
    if (child == 0) {
        char c = unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';

        _exit(write(done[1], &c, 1) == 1 && pause() == 0);
    }
    if (read(done[0], path, 1) == 1 && path[0] == 'y') {
        snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
        fd = open(path, O_WRONLY);
    }
    rc = TRY(write(fd, "0 0 4294967295", 14));
    kill(child, SIGKILL);
    return rc;
}
