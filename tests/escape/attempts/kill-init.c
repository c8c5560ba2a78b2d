// class: processes
// promise: init does not die of a signal from inside
// refused: EPERM
// control: host pids
#include "attempt.h"

int main(void)
{
    /* The control names another process: one that has no namespace to protect it. */
    int pid = *world("INIT_PID") ? atoi(world("INIT_PID")) : 1;
    char path[64], stat[512] = "";

    kill(pid, SIGTERM);
    kill(pid, SIGSEGV);
    kill(pid, SIGKILL);
    usleep(50000);
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (read(open(path, O_RDONLY), stat, sizeof(stat) - 1) <= 0 || strstr(stat, ") Z "))
        return ESCAPED;
    errno = EPERM;
    return refused("it is still there");
}
