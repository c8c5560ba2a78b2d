# class: proc
# promise: processes of the host are not seen
grep -lz coved /proc/[0-9]*/cmdline
