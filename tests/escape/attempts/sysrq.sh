# class: proc
# promise: no sysrq
echo h > /proc/sysrq-trigger && [ ! -c /proc/sysrq-trigger ]
