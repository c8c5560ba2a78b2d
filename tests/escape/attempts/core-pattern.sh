# class: proc
# promise: core_pattern is not written
# refused: EROFS
# control: host
pattern=$(cat /proc/sys/kernel/core_pattern)
echo "$pattern" > /proc/sys/kernel/core_pattern # as it is: the control writes it on the host
