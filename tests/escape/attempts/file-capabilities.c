// class: identity
// promise: a file's capabilities give no more than the bounding set
// refused: EPERM
// as: root
// control: host
#include "attempt.h"
#include <sys/xattr.h>

int main(void)
{
    /* vfs_cap_data v3 with CAP_SYS_ADMIN, for the namespace's root */
    uint32_t caps[6] = { 0x03000001, 1u << 21, 0, 0, 0, 0 };

    if (system("cp /bin/grep /workspace/capable") != 0 ||
        setxattr("/workspace/capable", "security.capability", caps, sizeof(caps), 0) < 0)
        return refused("setxattr");
    /* bit 21 is CAP_SYS_ADMIN */
    return system("/workspace/capable -qE 'CapEff:.*[2367abef].....$' /proc/self/status") == 0
               ? ESCAPED
               : REFUSED;
}
