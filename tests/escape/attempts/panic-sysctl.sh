# class: proc
# promise: sysctls are not written
echo 0 > /proc/sys/kernel/printk_delay
