# class: files
# promise: no hard link to a file of the host
# refused: ENOENT
# control: host
ln "$SECRET" /tmp/h && cat /tmp/h
