# class: proc
# promise: there is no /sys
ls /sys/* >/dev/null
