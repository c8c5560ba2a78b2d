# class: proc
# promise: the uevent helper is not written
# refused: ENOENT
# needs: /proc/sys/kernel/hotplug
echo '' > /proc/sys/kernel/hotplug
