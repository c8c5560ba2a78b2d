# class: proc
# promise: the kernel's memory is not read
# refused: ENOENT
# needs: /proc/kcore
head -c 64 /proc/kcore | grep -q .
