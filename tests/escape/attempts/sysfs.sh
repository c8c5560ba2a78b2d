# class: proc
# promise: there is no /sys
# refused: ENOENT
# control: host
ls /sys/* >/dev/null
