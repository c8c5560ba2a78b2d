# class: proc
# promise: processes of the host are not seen
# refused: nothing
grep -lz coved /proc/[0-9]*/cmdline
