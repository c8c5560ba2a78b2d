# class: proc
# promise: sysctls are not written
# refused: EROFS
echo 0 > /proc/sys/kernel/printk_delay
