# class: proc
# promise: sysctls are not written
# refused: EROFS
# control: host
delay=$(cat /proc/sys/kernel/printk_delay)
echo "${delay:-0}" > /proc/sys/kernel/printk_delay # as it is: the control writes it on the host
