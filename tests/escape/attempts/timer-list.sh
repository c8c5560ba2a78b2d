# class: proc
# promise: timers of the host are not listed
grep -q . /proc/timer_list
