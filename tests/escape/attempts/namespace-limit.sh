# class: proc
# promise: the limit of namespaces is not lifted
# refused: EROFS
# control: host
# needs: CAP_SYS_RESOURCE
most=$(cat /proc/sys/user/max_user_namespaces)
echo "${most:-1000}" > /proc/sys/user/max_user_namespaces # as it is: the control writes it on the host
