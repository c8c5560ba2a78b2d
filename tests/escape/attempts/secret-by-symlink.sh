# class: files
# promise: a symlink resolves inside
# refused: EACCES, ENOENT
# control: host
ln -sf "$SECRET" /tmp/l; ln -sf "/proc/1/root$SECRET" /tmp/m; cat /tmp/l || cat /tmp/m
