# class: proc
# promise: no kernel addresses
# weak: opens
grep -q . /proc/kallsyms
