# class: proc
# promise: no sysrq
# refused: ENOENT
# needs: /proc/sysrq-trigger
echo h > /proc/sysrq-trigger && [ ! -c /proc/sysrq-trigger ]
