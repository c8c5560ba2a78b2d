// class: kernel
// promise: no program is loaded into the kernel
// refused: EPERM
// control: host
#include "attempt.h"
#include <linux/bpf.h>

int main(void)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1
    };

    return TRY(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}
