# class: files
# promise: the host's sockets are not listed
# refused: nothing
# weak: opens
grep "$RUN_DIR" /proc/net/unix
