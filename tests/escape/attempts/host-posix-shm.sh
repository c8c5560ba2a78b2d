# class: ipc
# promise: files in the host's /dev/shm are not there
# refused: ENOENT
# control: host
cat "/dev/shm/$SHM_FILE"
