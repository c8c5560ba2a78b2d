// class: identity
// promise: a set-uid program reaches the namespace's root and no further
// refused: ENOENT
// control: host
#include "attempt.h"

int main(void)
{
    if (system("cp /bin/cat /workspace/suid-cat && chmod 4755 /workspace/suid-cat") != 0)
        return refused("chmod");
    return execl("/workspace/suid-cat", "cat", world("SECRET"), NULL) < 0 ? refused("execl")
                                                                          : ESCAPED;
}
