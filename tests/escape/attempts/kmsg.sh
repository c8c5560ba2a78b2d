# class: proc
# promise: the kernel's log is not read through /proc
# refused: nothing
# control: host
[ ! -c /proc/kmsg ] && exec 3< /proc/kmsg # masked, it is /dev/null
