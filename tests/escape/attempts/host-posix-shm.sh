# class: ipc
# promise: files in the host's /dev/shm are not there
cat "/dev/shm/$SHM_FILE"
