# class: proc
# promise: memory types are not set
# refused: nothing
# needs: /proc/mtrr
# control: host
[ -w /proc/mtrr ] && [ ! -c /proc/mtrr ] || exit 1
said=$( { echo nonsense > /proc/mtrr; } 2>&1) && exit 0
case $said in *Invalid*) exit 0 ;; esac # it was read
exit 1
