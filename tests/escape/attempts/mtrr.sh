# class: proc
# promise: memory types are not set
[ -w /proc/mtrr ] && [ ! -c /proc/mtrr ] && echo nonsense > /proc/mtrr
