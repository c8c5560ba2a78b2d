# class: proc
# promise: the kernel's memory is not read
head -c 64 /proc/kcore | grep -q .
