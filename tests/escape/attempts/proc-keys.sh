# class: proc
# promise: no keys of others are listed
# refused: nothing
# weak: opens
grep -q . /proc/keys /proc/key-users
