// class: ipc
// promise: the host's shared memory is not attached
// refused: ENOENT
// weak: opens
#include "attempt.h"
#include <sys/ipc.h>
#include <sys/shm.h>

int main(void)
{
    int id = shmget((key_t)strtol(world("SHM_KEY"), NULL, 0), 0, 0);
    char *at;

    if (id < 0)
        return refused("shmget");
    at = shmat(id, NULL, SHM_RDONLY);
    return at == (void *)-1 ? refused("shmat") : (puts(at), ESCAPED);
}
