# class: proc
# promise: the kernel's command line is not told
# weak: opens
grep . /proc/cmdline
