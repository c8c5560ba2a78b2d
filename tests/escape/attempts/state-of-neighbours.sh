# class: files
# promise: files of another sandbox are not there
# refused: ENOENT
# control: neighbour
ls /workspace/neighbour-* || ls /tmp/neighbour-* || ls /dev/shm/neighbour-*
