# class: files
# promise: files of another sandbox are not there
# refused: ENOENT
ls /workspace/neighbour-* /tmp/neighbour-* /dev/shm/neighbour-*
