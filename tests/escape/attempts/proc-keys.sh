# class: proc
# promise: no keys of others are listed
# weak: opens
grep -q . /proc/keys /proc/key-users
