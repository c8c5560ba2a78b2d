# class: proc
# promise: core_pattern is not written
# refused: EROFS
echo core > /proc/sys/kernel/core_pattern
