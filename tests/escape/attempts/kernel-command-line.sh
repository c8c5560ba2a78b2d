# class: proc
# promise: the kernel's command line is not told
# refused: nothing
# weak: opens
grep . /proc/cmdline
