// class: mounts
// promise: mounts that no path leads to are not listed by number
// refused: ENOSYS
// control: host
#include "attempt.h"

enum { LISTMOUNT = 458 }; /* on every machine; Linux 6.8 */

int main(void)
{
    struct {
        uint32_t size, spare;
        uint64_t mount, param;
    } from_the_root = { .size = 24, .mount = UINT64_MAX };
    uint64_t ids[64];

    return TRY(syscall(LISTMOUNT, &from_the_root, ids, 64, 0));
}
