// class: identity
// promise: limits are not raised again
// refused: EPERM
// control: host
// needs: CAP_SYS_RESOURCE
#include "attempt.h"

int main(void)
{
    struct rlimit r = { 1 << 20, 1 << 20 };

    return TRY(setrlimit(RLIMIT_NOFILE, &r));
}
