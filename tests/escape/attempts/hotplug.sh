# class: proc
# promise: the uevent helper is not written
echo '' > /proc/sys/kernel/hotplug
