// class: mounts
// promise: the classic way out of a chroot finds nothing above or below the sandbox's root
// refused: nothing
// weak: opens
// as: root
#include "attempt.h"

int main(void)
{
    int top = open("/", O_RDONLY | O_DIRECTORY);
    struct stat own, found;

    mkdir("/tmp/jail-below", 0755);
    if (stat("/", &own) < 0 || chroot("/tmp/jail-below") < 0)
        return refused("chroot");
    if (fchdir(top) < 0)
        return refused("fchdir");
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return refused("chdir");
    if (chroot(".") < 0 || stat("/", &found) < 0)
        return refused("chroot");
    if (own.st_dev != found.st_dev || own.st_ino != found.st_ino)
        return verdict(0, "another root");
    printf("refused: it ends in the sandbox's root\n");
    return REFUSED;
}
