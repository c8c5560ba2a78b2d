// class: kernel
// promise: no file is opened by its handle, past all folders (the shocker attack)
// refused: EPERM
#include "attempt.h"

int main(void)
{
    struct {
        struct file_handle h;
        unsigned char bytes[8];
    } root = { { 8, 1 }, { 2 } };
    int fd = open("/", O_RDONLY);

    return TRY(syscall(SYS_open_by_handle_at, fd, &root, O_RDONLY));
}
