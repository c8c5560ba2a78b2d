# class: proc
# promise: the kernel's log is not read through /proc
# refused: nothing
timeout 1 head -c 64 /proc/kmsg | grep -q .
