# class: files
# promise: a file of the host is not at its path
# refused: ENOENT
# control: host
cat "$SECRET"
