# class: proc
# promise: network settings are not written
echo 1 > /proc/sys/net/ipv4/ip_forward
