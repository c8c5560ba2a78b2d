# class: proc
# promise: network settings are not written
# refused: EROFS
# control: host
echo 1 > /proc/sys/net/ipv4/ip_forward
