# class: proc
# promise: core_pattern is not written
echo core > /proc/sys/kernel/core_pattern
