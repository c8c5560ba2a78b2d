// class: kernel
// promise: no file is opened by its handle, past all folders (the shocker attack)
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    struct {
        struct file_handle h;
        unsigned char bytes[8];
    } guessed = { { 8, 1 }, { 2 } };
    struct {
        struct file_handle h;
        unsigned char bytes[128];
    } told = { .h.handle_bytes = 128 };
    int fd = open("/dev", O_RDONLY), id;

    if (name_to_handle_at(AT_FDCWD, "/dev", &told.h, &id, 0) == 0)
        return TRY(syscall(SYS_open_by_handle_at, fd, &told, O_RDONLY));
    return TRY(syscall(SYS_open_by_handle_at, fd, &guessed, O_RDONLY));
}
