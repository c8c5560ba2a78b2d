// class: files
// promise: the classic way out of a chroot ends at the sandbox's root
// refused: ENOENT
// control: host
// as: root
#include "attempt.h"

int main(void)
{
    int top = open("/", O_RDONLY | O_DIRECTORY);

    mkdir("/tmp/jail", 0755);
    if (chroot("/tmp/jail") < 0)
        return refused("chroot");
    if (fchdir(top) < 0)
        return refused("fchdir");
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return refused("chdir");
    if (chroot(".") < 0)
        return refused("chroot");
    return read_to_stdout(world("SECRET"));
}
