# class: proc
# promise: the path of modprobe is not written
# refused: ENOENT
# needs: /proc/sys/kernel/modprobe
echo /sbin/modprobe > /proc/sys/kernel/modprobe
