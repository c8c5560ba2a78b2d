# class: files
# promise: the host's sockets are not listed
# weak: opens
grep "$RUN_DIR" /proc/net/unix
