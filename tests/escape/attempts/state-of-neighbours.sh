# class: files
# promise: files of another sandbox are not there
ls /workspace/neighbour-* /tmp/neighbour-* /dev/shm/neighbour-*
