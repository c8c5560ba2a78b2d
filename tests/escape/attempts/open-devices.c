// class: devices
// promise: the host's devices are not there
// refused: ENOENT
// control: host
#include "attempt.h"

int main(void)
{
    static const char *const names[] = { "/dev/mem",           "/dev/kmem",         "/dev/port",
                                         "/dev/kmsg",          "/dev/vda",          "/dev/sda",
                                         "/dev/loop0",         "/dev/loop-control", "/dev/fuse",
                                         "/dev/kvm",           "/dev/net/tun",      "/dev/vsock",
                                         "/dev/userfaultfd",   "/dev/console",      "/dev/tty0",
                                         "/dev/mapper/control" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (open(names[i], O_RDONLY) >= 0)
            return verdict(0, names[i]);
    return refused("all of them");
}
