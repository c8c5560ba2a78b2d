# class: proc
# promise: the hostname is not written through /proc
# refused: EROFS
# control: host
echo owned > /proc/sys/kernel/hostname
