// class: kernel
// promise: no performance counters of others
// refused: EPERM
// control: host
#include "attempt.h"
#include <linux/perf_event.h>

int main(void)
{
    struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
                                    .size = sizeof(attr),
                                    .config = PERF_COUNT_SW_CPU_CLOCK };

    return TRY(syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0));
}
