# class: proc
# promise: the limit of namespaces is not lifted
# refused: EROFS
echo 1000 > /proc/sys/user/max_user_namespaces
