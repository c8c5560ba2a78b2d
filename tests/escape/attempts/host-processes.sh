# class: proc
# promise: processes of the host are not seen
# refused: nothing
# control: host pids
[ -n "$(grep -lsz "[c]ove: keeper" /proc/[0-9]*/cmdline)" ]
