# class: proc
# promise: modules, disks and interrupts of the host are not listed
# refused: nothing
# weak: opens
cat /proc/partitions /proc/diskstats /proc/interrupts /proc/modules 2>/dev/null | grep -q .
