// class: kernel
// promise: no handle of a file is told
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    struct {
        struct file_handle h;
        unsigned char bytes[128];
    } h = { .h.handle_bytes = 128 };
    int id;

    return TRY(name_to_handle_at(AT_FDCWD, "/dev", &h.h, &id, 0));
}
