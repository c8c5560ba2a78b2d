// class: kernel
// promise: files of others are not watched
// refused: EPERM
// control: host
#include "attempt.h"

int main(void)
{
    return TRY(syscall(SYS_fanotify_init, 0, 0));
}
