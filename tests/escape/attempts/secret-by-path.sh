# class: files
# promise: a file of the host is not at its path
cat "$SECRET"
