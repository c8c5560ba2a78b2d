# class: proc
# promise: the hostname is not written through /proc
echo owned > /proc/sys/kernel/hostname
