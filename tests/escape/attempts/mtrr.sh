# class: proc
# promise: memory types are not set
# refused: nothing
# needs: /proc/mtrr
[ -w /proc/mtrr ] && [ ! -c /proc/mtrr ] && echo nonsense > /proc/mtrr
