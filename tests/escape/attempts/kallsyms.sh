# class: proc
# promise: no kernel addresses
# refused: nothing
# weak: opens
grep -q . /proc/kallsyms
