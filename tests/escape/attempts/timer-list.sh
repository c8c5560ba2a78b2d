# class: proc
# promise: timers of the host are not listed
# refused: nothing
# control: host
grep -q . /proc/timer_list
