# class: proc
# promise: the path of modprobe is not written
echo /sbin/modprobe > /proc/sys/kernel/modprobe
